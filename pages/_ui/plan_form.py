"""The plan of a table's columns as a table to edit: it begins with the plan of a data set of the library."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import pandas as pd
import streamlit as st

from unifiednn_core.spec.columns import ABRIDGED, CategoryColumn, ColumnPlan, NumberColumn
from unifiednn_core.views import markup
from unifiednn_core.views.runs import FileView

LABEL = "Change the plan of"
HELP = (
    "Shows how the columns of this data set became numbers. What you change there holds for the next file with these "
    "columns: add the same file again."
)
KINDS = ("number", "category", "text", "list", "ignore")
NUMBERS = get_args(NumberColumn.model_fields["missing"].annotation)
MISSING = tuple(dict.fromkeys((*NUMBERS, *get_args(CategoryColumn.model_fields["missing"].annotation))))
FITTED = ("fill", "values", "words", "longest", "pad")
"""Entries of a column that the import finds in the data."""
COLUMN, BECOMES, INPUT, MISSES, ONE_HOT = "Column", "Becomes", "Input", "A missing value", "One column each"


def plan(planned: Mapping[str, FileView], *, key: str) -> dict[str, Any] | None:
    """Draw the choice of a plan, and the table that changes it; returns the plan, None for none."""
    chosen = st.selectbox(
        LABEL,
        list(planned),
        None,
        lambda sha: planned[sha].filename,
        key,
        HELP,
        placeholder="the columns are read as they look",
        disabled=not planned,
    )
    seen = planned[chosen].preview if chosen else None
    if chosen is None or seen is None or (known := seen.notes.plan) is None:
        return None
    if len(known.columns) >= ABRIDGED:
        st.html(markup.small("This plan is too long for a table. Import the file with --plan plan.json."))
        return None
    settings = {
        COLUMN: st.column_config.TextColumn(COLUMN, disabled=True),
        BECOMES: st.column_config.SelectboxColumn(BECOMES, options=KINDS, required=True),
        MISSES: st.column_config.SelectboxColumn(MISSES, options=MISSING),
        INPUT: st.column_config.TextColumn(INPUT),
        ONE_HOT: st.column_config.CheckboxColumn(ONE_HOT),
    }
    edited = st.data_editor(
        pd.DataFrame(rows(known)), hide_index=True, column_config=settings, key=f"{key}-{chosen}", width="stretch"
    )
    names = [column.name for column in known.used()]
    index = names.index(known.target) if known.target in names else None
    target = st.selectbox("Its targets", names, index, key=f"{key}-target-{chosen}", placeholder="none")
    return edited_plan(known, edited.to_dict("records"), target)


def rows(known: ColumnPlan) -> list[dict[str, Any]]:
    """One row for each column of a plan; `edited_plan` reads them back."""
    return [
        {
            COLUMN: column.name,
            BECOMES: column.kind,
            INPUT: getattr(column, "input", None),
            MISSES: getattr(column, "missing", None),
            ONE_HOT: getattr(column, "one_hot", False),
        }
        for column in known.columns
    ]


def edited_plan(known: ColumnPlan, edited: Sequence[Mapping[Any, Any]], target: str | None) -> dict[str, Any]:
    """The plan that the rows say, without what the import found; entries without a cell stay as they are."""
    columns = [_column(column.model_dump(), row) for column, row in zip(known.columns, edited, strict=True)]
    return {"columns": columns, "target": target, "header": known.header}


def _column(known: Mapping[str, Any], row: Mapping[Any, Any]) -> dict[str, Any]:
    kind = row[BECOMES]
    same = {entry: value for entry, value in known.items() if entry not in FITTED and value is not None}
    column = {**same} if kind == known["kind"] else {"kind": kind, "name": known["name"]}
    if kind != "ignore" and _said(row[INPUT]):
        column["input"] = row[INPUT]
    if kind in ("number", "category") and _said(row[MISSES]):
        column["missing"] = row[MISSES]
    if kind == "category":
        column["one_hot"] = bool(row[ONE_HOT])
    return column


def _said(cell: object) -> bool:
    """Whether a cell holds a word; an empty one is None or NaN."""
    return isinstance(cell, str) and bool(cell)
