"""The door: runs, library, permissions."""
