"""Processes: supervisor, agents, workers, export."""
