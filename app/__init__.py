"""The Streamlit dashboard; ships as ``echotrap.app``."""
