"""Small pieces of HTML that pages and reports share, and the one renderer of tables. Texts are escaped here."""

from collections.abc import Callable, Collection, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from unifiednn_core.views.figures.palette import sign

if TYPE_CHECKING:
    from pandas import DataFrame

Looks = Mapping[str, Callable[[Any], str]]
"""By column of a table, a function that makes HTML of its values."""


def bold(words: str) -> str:
    """Text as HTML, in bold."""
    return f"<b>{escape(words)}</b>"


def faint(words: str) -> str:
    """Text as HTML, secondary."""
    return f'<span class="u-faint">{escape(words)}</span>'


def mono(words: str) -> str:
    """Text as HTML, in the font of code."""
    return f'<span class="u-mono">{escape(words)}</span>'


def small(words: str) -> str:
    """Paragraph of secondary text, set small."""
    return f'<div class="u-small u-faint">{escape(words)}</div>'


def signed_name(number: int, name: str) -> str:
    """Letter of a sub-model on its colour, and its name, on one line."""
    mark = sign(number)
    return (
        '<span class="u-line" style="flex-wrap:nowrap">'
        f'<span class="u-sign" style="background:{mark.colour};color:{mark.ink}">{mark.letter}</span>'
        f'<b class="u-clip" title="{escape(name)}">{escape(name)}</b></span>'
    )


def signed(sign_and_name: tuple[int, str] | tuple[()]) -> str:
    """`signed_name` of a pair, as it stands in a frame; nothing for an empty one."""
    return signed_name(*sign_and_name) if sign_and_name else ""


def arm_badge(mode: str, more: str = "") -> str:
    """Name of an arm: the hybrid filled, a baseline neutral and dashed."""
    return f'<span class="u-arm u-arm-{escape(mode)}">{escape(mode.capitalize() + more)}</span>'


def frame(rows: Iterable[Mapping[str, object]]) -> "DataFrame":
    """A table as a frame: one row for each mapping from heads to values."""
    import pandas as pd

    # As plain objects: pandas refuses text that is no valid Unicode, and names of files come from outside.
    return pd.DataFrame(list(rows), dtype=object)


def table(caption: str, frame: "DataFrame", looks: Looks | None = None, right: Collection[str] = ()) -> str:
    """A frame as a table that screen readers can walk through; None is shown as a dash.

    Values without a look are shown as escaped text. Columns of numbers are set to the right, and those in `right`.
    """
    from pandas.api.types import infer_dtype

    head, columns = "", []
    for name, values in frame.items():
        numbers = name in right or infer_dtype(values) in ("integer", "floating")
        start, look = ' class="u-num"' if numbers else "", (looks or {}).get(str(name), _plain)
        head += f'<th scope="col"{start}>{escape(str(name))}</th>'
        columns.append([f"<td{start}>{'-' if value is None else look(value)}</td>" for value in values])
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    return (
        f'<div class="u-scroll"><table class="u-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else escape(str(value))
