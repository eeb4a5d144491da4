"""What a figure shows, as a test reads it."""

import base64

import numpy as np


def unpack(array):
    """Values of a packed array."""
    return np.frombuffer(base64.b64decode(array["bdata"]), "<f4")


def named(figure, name):
    """Traces of this name."""
    return [trace for trace in figure["data"] if trace["name"] == name]
