"""Public kit: holds policies and formats of other authors against the contracts of this project."""
