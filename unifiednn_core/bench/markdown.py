"""Figures and tables as Markdown. Pure functions."""

from collections.abc import Sequence
from statistics import median

from unifiednn_core.units import memory_text

Row = Sequence[str]
MISSING = "not available"
Figures = Sequence[float] | None


def table(heads: Row, rows: Sequence[Row]) -> str:
    """A table whose first column is text and whose others are figures."""
    ruler = ("---", *("---:" for _ in heads[1:]))
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ruler, *rows))


def seconds(figures: Figures) -> str:
    """Median, and least and greatest where there are several."""
    return _spread(figures, "{:.1f}", " s")


def memory(figures: Figures) -> str:
    """Median, and least and greatest where there are several."""
    if not figures:
        return MISSING
    texts = [memory_text(round(value)) for value in (median(figures), min(figures), max(figures))]
    return texts[0] if len(set(figures)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def ratio(figures: Figures) -> str:
    """Median, least and greatest, and what that means: gains and losses in equal words."""
    if not figures:
        return MISSING
    word = "less" if max(figures) < 1 else "more" if min(figures) > 1 else "no difference beyond the spread"
    return f"{_spread(figures, '{:.2f}', '')}, {word}"


def percent(share: float | None) -> str:
    """A share, without decimals of which nothing is known."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def _spread(figures: Figures, form: str, unit: str) -> str:
    if not figures:
        return MISSING
    middle, low, high = (form.format(value) for value in (median(figures), min(figures), max(figures)))
    return f"{middle}{unit}" if low == high else f"{middle}{unit} ({low} to {high})"
