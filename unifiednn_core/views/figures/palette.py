"""The sign of a sub-model: a colour, a dash pattern and a letter, equal in every chart, table and badge."""

from typing import NamedTuple

# Okabe and Ito (2008), in the order in which neighbours differ most; grey replaces black, which dark mode hides.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8A8F98")
DARK = COLOURS[0]
"""The only one on which white is easier to read than black."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "2px,6px")


class Sign(NamedTuple):
    """How a sub-model is distinguished from others, with and without colour."""

    letter: str
    """A, B ... Z, AA ...: unique in a run."""
    colour: str
    """Colour as `#RRGGBB`."""
    ink: str
    """Black or white: the one with more contrast to `colour`."""
    dash: str
    """Dash pattern in plotly's terms."""


def sign(arrival: int) -> Sign:
    """Sign of the sub-model that arrived at this place, from 0; colour and dash repeat together only after 56."""
    colour = COLOURS[arrival % len(COLOURS)]
    ink = "#FFFFFF" if colour == DARK else "#000000"
    return Sign(_letter(arrival), colour, ink, DASHES[arrival % len(DASHES)])


def _letter(arrival: int) -> str:
    letters, number = "", arrival + 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters
