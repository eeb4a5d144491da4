"""Errors, clock, paths, durable files."""
