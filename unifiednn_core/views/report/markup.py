"""Small pieces of HTML that pages and reports share. Texts are escaped here."""

from collections.abc import Iterable, Sequence
from html import escape

from unifiednn_core.views.figures.palette import sign


def text(words: str) -> str:
    """Text as HTML."""
    return escape(words)


def bold(words: str) -> str:
    """Text as HTML, in bold."""
    return f"<b>{escape(words)}</b>"


def faint(words: str) -> str:
    """Text as HTML, secondary."""
    return f'<span class="u-faint">{escape(words)}</span>'


def small(words: str) -> str:
    """Paragraph of secondary words, set small."""
    return f'<div class="u-small u-faint">{escape(words)}</div>'


def section(words: str, aside: str = "") -> str:
    """Heading of a part of the page."""
    return f'<h2 class="u-section">{escape(words)}<small>{escape(aside)}</small></h2>'


def sign_badge(number: int) -> str:
    """Letter of a sub-model on its colour."""
    mark = sign(number)
    return f'<span class="u-sign" style="background:{mark.colour};color:{mark.ink}">{mark.letter}</span>'


def signed_name(number: int, name: str) -> str:
    """Sign and name of a sub-model on one line."""
    return (
        f'<span class="u-line" style="flex-wrap:nowrap">{sign_badge(number)}'
        f'<b class="u-clip" title="{escape(name)}">{escape(name)}</b></span>'
    )


def arm_badge(mode: str, more: str = "") -> str:
    """Name of an arm: the hybrid filled, a baseline neutral and dashed."""
    return f'<span class="u-arm u-arm-{escape(mode)}">{escape(mode.capitalize() + more)}</span>'


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: frozenset[int] = frozenset()
) -> str:
    """Table that screen readers can walk through. Cells are HTML already; heads and caption are text.

    `numeric` holds the places of the columns that are set to the right.
    """
    right = [' class="u-num"' if at in numeric else "" for at in range(len(heads))]
    head = "".join(f'<th scope="col"{r}>{escape(words)}</th>' for words, r in zip(heads, right, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{r}>{cell}</td>" for cell, r in zip(row, right, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="u-scroll"><table class="u-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
