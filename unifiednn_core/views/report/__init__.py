"""A comparison in words, as cards and tables, and as one HTML page that needs nothing else. Pure."""
