"""Development tools beside the package."""
