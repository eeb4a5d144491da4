"""The dashboard: one screen per file."""
