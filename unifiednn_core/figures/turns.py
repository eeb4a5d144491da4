"""Turns on the device, merged until a chart can show them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from unifiednn_core.views.runs import Slice

MAX_BARS = 600


@dataclass(frozen=True, slots=True)
class Turn:
    """One or several turns of a sub-model, drawn as one bar. Seconds count from the start of the run."""

    submodel: str
    start_s: float
    end_s: float
    steps: int
    reason: str
    """Why the last of them was granted."""
    turns: int = 1


def merge(slices: Sequence[Slice], limit: int = MAX_BARS) -> list[Turn]:
    """Merge a sub-model's own turns, first back to back ones, then over ever longer gaps, down to `limit` bars.

    No step is lost. A sub-model always keeps one bar, so more sub-models than `limit` give more bars.
    """
    lanes: dict[str, list[Turn]] = {}
    for s in slices:
        lanes.setdefault(s.submodel, []).append(Turn(s.submodel, s.start_s, s.end_s, s.steps, s.reason))
    gap_s = 1e-3  # two turns with no step of another between them
    while True:
        lanes = {name: _close(lane, gap_s) for name, lane in lanes.items()}
        if sum(map(len, lanes.values())) <= max(limit, len(lanes)):
            return [turn for lane in lanes.values() for turn in lane]
        gap_s *= 2


def _close(lane: Sequence[Turn], gap_s: float) -> list[Turn]:
    closed: list[Turn] = []
    for turn in lane:
        if closed and turn.start_s - closed[-1].end_s <= gap_s:
            last = closed.pop()
            turn = replace(turn, start_s=last.start_s, steps=last.steps + turn.steps, turns=last.turns + turn.turns)
        closed.append(turn)
    return closed
