"""Turns Python code into a checked `.pt2` file, on its owner's machine."""
