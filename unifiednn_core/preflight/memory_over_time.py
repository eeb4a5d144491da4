"""Predicted memory of a hybrid over the simulated turns of a policy. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from unifiednn_core.machine.allocator import GLIBC
from unifiednn_core.preflight.estimate import Part, stage_bytes, working_bytes
from unifiednn_core.scheduling.simulator import SimulatedTurn, Stage

MOST_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """What the memory of a run is predicted from."""

    parts: tuple[Part, ...]
    device_type: str
    context_bytes: int
    company_bytes: int = 0
    """Most that company adds."""
    allocator: str = GLIBC


def memory_over_time(turns: Sequence[SimulatedTurn], model: MemoryModel) -> tuple[tuple[float, int], ...]:
    """Seconds and bytes at each change, at most `MOST_POINTS`; where there were more, the largest of each bin."""
    if not turns:
        return ()
    parts = {part.name: part for part in model.parts}
    starts_s, ends_s = dict[str, float](), dict[str, float]()
    for turn in turns:
        starts_s[turn.submodel] = min(turn.start_s, starts_s.get(turn.submodel, turn.start_s))
        ends_s[turn.submodel] = max(turn.end_s, ends_s.get(turn.submodel, turn.end_s))

    @cache
    def size(holder: str, beside: frozenset[str], started: frozenset[str], waiting: frozenset[str]) -> int:
        stage = stage_bytes(Stage(holder, started, waiting), parts, model.device_type, model.allocator)
        added = sum(working_bytes(parts[name], model.device_type, model.allocator) for name in beside)
        return model.context_bytes + stage + min(added, model.company_bytes)

    points: list[tuple[float, int]] = []
    moments = sorted({moment for turn in turns for moment in (turn.start_s, turn.end_s)})
    pending, at_work = list(turns), list[SimulatedTurn]()
    for now_s in moments[:-1]:
        at_work = [turn for turn in at_work if turn.end_s > now_s]
        while pending and pending[0].start_s <= now_s:
            at_work.append(pending.pop(0))
        if not at_work:
            continue
        first, *others = sorted(at_work, key=lambda turn: turn.lane)
        started = frozenset(name for name in parts if starts_s.get(name, now_s + 1) <= now_s < ends_s.get(name, 0.0))
        waiting = frozenset(name for name in parts if starts_s.get(name, 0.0) > now_s)
        points.append((now_s, size(first.submodel, frozenset(one.submodel for one in others), started, waiting)))
    points.append((moments[-1], model.context_bytes))
    return _thinned(points)


def _thinned(points: Sequence[tuple[float, int]]) -> tuple[tuple[float, int], ...]:
    """Changes only; of too many, the largest of each group of neighbours."""
    changes = [point for place, point in enumerate(points) if place == 0 or points[place - 1][1] != point[1]]
    group = -(-len(changes) // MOST_POINTS)
    groups: Iterable[Sequence[tuple[float, int]]]
    groups = (changes[at : at + group] for at in range(0, len(changes), group)) if group > 1 else ([p] for p in changes)
    return tuple((one[0][0], max(size for _, size in one)) for one in groups)
