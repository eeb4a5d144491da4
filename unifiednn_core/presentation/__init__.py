"""Rows of the store as the values that pages and command line show. Pure functions."""
