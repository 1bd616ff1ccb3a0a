"""What Streamlit does not have: a chart that keeps its zoom, and rollout text that is only ever text."""
