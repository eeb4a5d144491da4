"""What a figure shows, as a test reads it."""

import base64

import numpy as np


def as_sent(build):
    """A builder of figures that gives what the browser gets: `{data, layout}`."""
    return lambda *arguments, **options: build(*arguments, **options).to_plotly_json()


def unpack(array):
    """Values of a packed array."""
    return np.frombuffer(base64.b64decode(array["bdata"]), "<f4")


def named(figure, name):
    """Traces of this name."""
    return [trace for trace in figure["data"] if trace["name"] == name]
