"""Data sets: readers, preview, split."""
