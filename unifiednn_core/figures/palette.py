"""The sign of a sub-model: one colour, one dash pattern and one letter, the same in every chart, table and badge."""

from dataclasses import dataclass

# Okabe and Ito (2008), in the order in which neighbours differ most; grey stands in for black, which dark mode hides.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#8A8F98")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "2px,6px")


@dataclass(frozen=True, slots=True)
class Sign:
    """How one sub-model is recognised, with and without colour."""

    letter: str
    """A, B ... Z, AA ...: never used twice in a run."""
    colour: str
    """Colour as `#RRGGBB`."""
    ink: str
    """Black or white, whichever reads better on `colour`."""
    dash: str
    """Dash pattern in plotly's terms."""


def sign(arrival: int) -> Sign:
    """Sign of the sub-model that arrived at this place, from 0; colour and dash repeat together only after 56."""
    colour = COLOURS[arrival % len(COLOURS)]
    return Sign(_letter(arrival), colour, _ink(colour), DASHES[arrival % len(DASHES)])


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two `#RRGGBB` colours after WCAG 2, from 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _letter(arrival: int) -> str:
    letters, number = "", arrival + 1
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("A") + digit) + letters
    return letters


def _ink(colour: str) -> str:
    return max("#000000", "#FFFFFF", key=lambda ink: contrast(colour, ink))


def _luminance(colour: str) -> float:
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
