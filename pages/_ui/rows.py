"""Tables whose rows are links, with ticks and sorting. Each is one element, so that a live page stays cheap."""

import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import streamlit as st

from unifiednn_core.views import markup


class Column(NamedTuple):
    """A column."""

    name: str
    label: str
    sorts: bool = False
    number: bool = False


class TableLine(NamedTuple):
    """A row. `cells` are HTML already, all but the first, which is made of `label` and `href`."""

    key: str
    label: str
    cells: Sequence[str]
    href: str = ""
    """Address of the whole row, relative to the page; empty for a row that is no link."""
    badge: str = ""
    """HTML after the label."""


class Answer(NamedTuple):
    """What the viewer did."""

    ticked: tuple[str, ...]
    """Keys of the ticked rows, also of other pages."""
    opened: str
    """Key of the row that was clicked just now."""
    sorted: str
    """Name of the column whose head was clicked just now."""


def draw(
    columns: Sequence[Column],
    lines: Sequence[TableLine],
    *,
    caption: str,
    key: str,
    sort: str = "",
    descending: bool = False,
    ticks: bool = True,
) -> Answer:
    """Draw the table; the first column has the labels."""
    html = table(columns, lines, caption=caption, sort=sort, descending=descending, ticks=ticks)
    data = {"html": html, "revision": zlib.crc32(html.encode()), "round": st.session_state.get(f"{key}-round", 0)}
    said = mount(data, key)
    ticked = said.get("ticked")
    if st.session_state.pop(f"{key}-cleared", False):
        ticked = ()  # the browser has not heard of it yet
    names = tuple(str(one) for one in ticked) if isinstance(ticked, list | tuple) else ()
    return Answer(names, str(said.get("opened") or ""), str(said.get("sorted") or ""))


def clear(key: str) -> None:
    """Take all ticks away, from the next drawing on."""
    st.session_state[f"{key}-round"] = st.session_state.get(f"{key}-round", 0) + 1
    st.session_state[f"{key}-cleared"] = True


def table(
    columns: Sequence[Column],
    lines: Sequence[TableLine],
    *,
    caption: str,
    sort: str = "",
    descending: bool = False,
    ticks: bool = True,
) -> str:
    """The table as HTML."""
    head = "".join(_head(column, sort, descending=descending) for column in columns)
    if ticks:
        box = f'<input type="checkbox" data-all data-focus="all" aria-label="{markup.text("Select all rows")}">'
        head = f'<th class="u-tick"><label>{box}</label></th>{head}'
    body = "".join(_row(columns, line, ticks=ticks) for line in lines)
    return (
        f'<table class="u-table u-lines"><caption>{markup.text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def mount(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Draw the component; returns its state."""
    ignore = {f"on_{name}_change": lambda: None for name in ("ticked", "opened", "sorted")}
    said: Mapping[str, Any] = _component()(data=dict(data), key=key, default={"ticked": []}, **ignore)
    return said


def _head(column: Column, sort: str, *, descending: bool) -> str:
    label = markup.text(column.label)
    looks = ' class="u-num"' if column.number else ""
    if not column.sorts:
        return f'<th scope="col"{looks}>{label}</th>'
    order = "" if column.name != sort else f' aria-sort="{"descending" if descending else "ascending"}"'
    sign = markup.icon("arrow_downward" if descending else "arrow_upward") if order else ""
    name = markup.text(column.name)
    return (
        f'<th scope="col"{looks}{order}>'
        f'<button type="button" data-sort="{name}" data-focus="sort {name}">{label}{sign}</button></th>'
    )


def _row(columns: Sequence[Column], line: TableLine, *, ticks: bool) -> str:
    key, label = markup.text(line.key), markup.text(line.label)
    name = f'<span class="u-clip" title="{label}">{label}</span>'
    if line.href:
        address = markup.text(line.href)
        name = (
            f'<a class="u-clip" href="{address}" data-open="{key}" data-focus="open {key}" title="{label}">{label}</a>'
        )
    cells = [f'<td class="u-first"><span class="u-name">{name}{line.badge}</span></td>']
    for column, cell in zip(columns[1:], line.cells, strict=True):
        looks = ' class="u-num"' if column.number else ""
        cells.append(f'<td data-label="{markup.text(column.label)}"{looks}>{cell}</td>')
    if ticks:
        says = markup.text(f"Select {line.label}")
        box = f'<input type="checkbox" data-tick="{key}" data-focus="tick {key}" aria-label="{says}">'
        cells.insert(0, f'<td class="u-tick"><label>{box}</label></td>')
    return f"<tr>{''.join(cells)}</tr>"


@cache
def _component() -> Any:
    script = Path(__file__).with_name("rows.js").read_text(encoding="utf-8")
    return st.components.v2.component("unifiednn_rows", js=script, isolate_styles=False)
