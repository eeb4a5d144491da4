"""Specs of runs: their entries, validation, and states."""
