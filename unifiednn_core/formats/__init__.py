"""Model files and architectures."""
