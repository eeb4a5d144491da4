"""A forecast as HTML: a bar for each turn, one row for each sub-model, and the memory below; as text for a terminal."""

from collections.abc import Callable, Mapping, Sequence

from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.views import markup
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.figures.schedule import BESIDE, FAINTEST, gather
from unifiednn_core.views.forecast import PolicyForecast
from unifiednn_core.views.runs import Slice

MAX_BARS = 300
COLUMNS = 60
"""Width of a chart in a terminal."""
HOLDS, JOINS, WAITS = "#", "+", "."


def seconds_text(made: PolicyForecast) -> Callable[[float], str]:
    """How the seconds of a forecast are told: relative ones as percent of the work."""
    return (lambda share: f"{share:.0f} %") if made.basis == "relative" else duration_text


def gantt(made: PolicyForecast, numbers: Mapping[str, int]) -> str:
    """Turns of each sub-model over time, with its finish at the end of the row; memory as a small line below."""
    told, whole_s = seconds_text(made), made.makespan_s or 1.0
    turns, rows = gather(made.turns, MAX_BARS), []
    for place, (name, finish_s) in enumerate(made.finish_s.items()):
        number = numbers.get(name, place)
        bars = "".join(_bar(turn, whole_s, sign(number).colour) for turn in turns if turn.submodel == name)
        end = told(finish_s)
        rows.append(
            f'<div class="u-gantt-row" role="row"><span role="rowheader">{markup.signed_name(number, name)}</span>'
            f'<span class="u-gantt-track" role="cell" title="{markup.text(f"{name} ends after {end}")}">{bars}</span>'
            f'<span class="u-num" role="cell">{markup.text(end)}</span></div>'
        )
    label = markup.text(f"Turns under {made.policy_text}")
    return f'<div class="u-gantt" role="table" aria-label="{label}">{"".join(rows)}{_memory(made, whole_s)}</div>'


def _bar(turn: Slice, whole_s: float, colour: str) -> str:
    left, width = 100 * turn.start_s / whole_s, max(0.15, 100 * (turn.end_s - turn.start_s) / whole_s)
    opacity = max(FAINTEST, turn.share * (1.0 if turn.lane == 1 else BESIDE))
    return f'<i style="left:{left:.2f}%;width:{width:.2f}%;background:{colour};opacity:{opacity:.2f}"></i>'


def _memory(made: PolicyForecast, whole_s: float) -> str:
    """Memory over time as a step line from 0, with the peak in words."""
    if not made.memory.x or made.peak_bytes is None:
        return ""
    most, points, last = max(made.memory.y), list[str](), 0.0
    for at_s, size in zip(made.memory.x, made.memory.y, strict=True):
        x, y = 1000 * at_s / whole_s, 40 - 38 * size / most
        points += [f"{x:.1f},{last:.1f}"] * bool(points) + [f"{x:.1f},{y:.1f}"]
        last = y
    words = f"Memory, at most {memory_text(made.peak_bytes)}"
    looks = 'fill="none" stroke="currentColor" vector-effect="non-scaling-stroke"'
    line = f'<polyline points="{" ".join(points)}" {looks}/>'
    return (
        f'<div class="u-gantt-row" role="row"><span class="u-faint" role="rowheader">{markup.text("Memory")}</span>'
        f'<svg class="u-gantt-memory" viewBox="0 0 1000 40" preserveAspectRatio="none" role="img" '
        f'aria-label="{markup.text(words)}">{line}</svg>'
        f'<span class="u-num" role="cell">{markup.text(memory_text(made.peak_bytes))}</span></div>'
    )


def gantt_text(made: PolicyForecast, columns: int = COLUMNS) -> list[str]:
    """The chart for a terminal: `#` holds the device, `+` steps beside the policy's choice, `.` waits."""
    told, whole_s = seconds_text(made), made.makespan_s or 1.0
    width = max(map(len, made.finish_s), default=0)
    return [
        f"{name:<{width}} |{_cells(name, finish_s, made.turns, whole_s, columns)}| {told(finish_s)}"
        for name, finish_s in made.finish_s.items()
    ]


def _cells(name: str, finish_s: float, turns: Sequence[Slice], whole_s: float, columns: int) -> str:
    cells = [WAITS if (at + 0.5) * whole_s / columns < finish_s else " " for at in range(columns)]
    for turn in turns:
        if turn.submodel == name:
            first = min(columns - 1, int(columns * turn.start_s / whole_s))
            last = max(first + 1, round(columns * turn.end_s / whole_s))
            for at in range(first, min(columns, last)):
                cells[at] = HOLDS if turn.lane == 1 or cells[at] == HOLDS else JOINS
    return "".join(cells)
