"""Processes: supervisor, workers, export."""
