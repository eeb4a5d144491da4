"""Runs side by side as HTML tables, for the page and the report alike."""

from collections.abc import Iterable, Sequence
from typing import get_args

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.figures.board import Chart, curve_chart
from unifiednn_core.views.figures.curves import Quantity
from unifiednn_core.views.figures.memory import totals
from unifiednn_core.views.figures.schedule import schedule
from unifiednn_core.views.markup import Looks, bold, faint, notice, small, table, text
from unifiednn_core.views.side_by_side import Side, cautions, facts, figures, machines, merged, settings, weights
from unifiednn_core.views.wording import STATES

QUANTITIES: tuple[Quantity, ...] = ("loss", "accuracy")
MODES = frozenset(get_args(Mode))
FILE, SHOWN_CHARACTERS = "sha256:", 12
"""How the reference of a file begins, and how many of its hexadecimal digits are shown."""


def figures_table(sides: Sequence[Side]) -> str:
    """Figures and facts, one column for each side; percentages are against the first."""
    rows = [
        *((name, tuple(map(_word, texts))) for name, texts in facts(sides).items()),
        *((figure.title, figure.texts()) for figure in figures(sides)),
    ]
    return _table("Figures; differences are against the first", "Figure", sides, rows)


def settings_table(sides: Sequence[Side]) -> str:
    """Settings that differ."""
    rows = settings(sides)
    if not rows:
        return small("All settings are equal.")
    return _table("Only settings that differ", "Setting", sides, rows)


def machines_table(sides: Sequence[Side]) -> str:
    """Facts of the machines that differ, and what other work used."""
    rows = machines(sides)
    if not rows:
        return small("Machine and versions are equal.")
    return _table("Only facts that differ", "Fact", sides, rows)


def weights_table(sides: Sequence[Side]) -> str:
    """Hashes of weights."""
    rows = weights(sides)
    if not rows:
        return small("They have no sub-model name in common.")
    caption = "SHA-256 of the weights: the same bits have the same hash"
    shown = [(name, tuple(f"{FILE}{sha}" if sha else "-" for sha in hashes)) for name, hashes in rows]
    return _table(caption, "Sub-model", sides, shown)


def cautions_html(sides: Sequence[Side]) -> str:
    """What makes figures differ besides the settings; empty if nothing does."""
    return "".join(notice("orange", "warning", "Caution", sentence) for sentence in cautions(sides))


def charts(sides: Sequence[Side]) -> list[Chart]:
    """Curves of all sub-models, memory of each run, and all turns, counted from the launch of each."""
    view = merged(sides)
    curves = [curve_chart(view, quantity) for quantity in QUANTITIES]
    lines, first = [], 0
    for side in sides:
        lines.append((side.label, view.submodels[first].name, first, side.view))
        first += len(side.view.submodels)
    label = "Memory of each run over time"
    used = Chart("memory", "Memory", totals(lines), label, "seconds", "memory", wide=True)
    label = "Turns of each sub-model in each run"
    turns = Chart("schedule", "Schedule", schedule(view), label, "seconds", "schedule", wide=True)
    return [*curves, used, turns]


def _table(caption: str, head: str, sides: Sequence[Side], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    columns = [f"{side.label} " for side in sides]  # a run may be named like the first column
    listed = [{head: name, **dict(zip(columns, values, strict=True))} for name, values in rows]
    looks: Looks = {head: bold, **dict.fromkeys(columns, _cell)}
    return table(caption, listed, looks)


def _word(value: str) -> str:
    """A state as pages name it; other facts as they are."""
    if value in list(State):
        return STATES[State(value)].label
    return value


def _cell(value: str) -> str:
    if value.startswith(FILE) and len(value) > SHOWN_CHARACTERS:
        return f'<span class="u-mono" title="{text(value)}">{text(value.removeprefix(FILE)[:SHOWN_CHARACTERS])}…</span>'
    return faint(value) if value == "-" else text(value)
