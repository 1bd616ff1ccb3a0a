"""Views of the dashboard: thin, one file a page."""
