"""Kits that third-party code must pass."""
