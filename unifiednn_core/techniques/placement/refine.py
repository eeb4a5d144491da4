"""Placements made better, one move at a time: first until they fit the memory of each device, then faster."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.simulate import Tasks, Times, peaks_bytes

EFFORT = 1_200_000
"""Simulated tasks after which the search ends; about 20 seconds."""
FEW_UNITS = 16
"""Of so few units, pairs are exchanged as well."""

Assignment = tuple[int, ...]
"""The device of each unit."""
Move = tuple[tuple[int, int], ...]
"""Units, each with its new device."""


@dataclass(frozen=True, slots=True, order=True)
class Score:
    """How good a placement is; less is better, and memory comes first."""

    excess_bytes: int
    """By which devices are above their limits, summed."""
    makespan_s: float
    peaks_bytes: tuple[int, ...] = field(default=(), compare=False)
    """Of each device; empty without any limit."""


@dataclass
class Search:
    """The problem, and what was simulated so far."""

    tasks: Tasks
    caps: Sequence[int | None]
    link: Link
    effort: int = EFFORT
    scores: dict[Assignment, Score] = field(default_factory=dict)

    @property
    def graph(self) -> CostGraph:
        """Operators and who reads whose result."""
        return self.tasks.graph

    @property
    def devices(self) -> int:
        """Their number."""
        return len(self.caps)

    def is_over(self) -> bool:
        """Whether the effort is spent."""
        return len(self.scores) * len(self.tasks.seconds) >= self.effort

    def score(self, placed: Assignment) -> Score:
        """Simulate a placement, unless it was before."""
        if placed not in self.scores:
            device_of = self.device_of(placed)
            times = self.tasks.list_schedule(device_of, self.devices, self.link)
            peaks: tuple[int, ...] = ()
            if any(cap is not None for cap in self.caps):
                peaks = self.peaks_bytes(device_of, times)
            pairs = zip(peaks, self.caps, strict=bool(peaks))
            excess_bytes = sum(max(0, peak - cap) for peak, cap in pairs if cap is not None)
            self.scores[placed] = Score(excess_bytes, times.makespan_s, peaks)
        return self.scores[placed]

    def device_of(self, placed: Assignment) -> tuple[int, ...]:
        """Return the device of each operator."""
        return tuple(placed[unit] for unit in self.graph.unit_of)

    def peaks_bytes(self, device_of: Sequence[int], times: Times) -> tuple[int, ...]:
        """Return the peak of each device, at these times or in the order of the program, whichever is higher."""
        orders = (times, self.tasks.program_order(device_of, self.devices, self.link))
        found = [peaks_bytes(self.tasks, device_of, self.devices, self.link, order) for order in orders]
        return tuple(max(pair) for pair in zip(*found, strict=True))


def refined(search: Search, start: Assignment) -> Assignment:
    """Take the best move of each round of moves until none helps or the effort is spent."""
    placed, best = start, search.score(start)
    while not search.is_over():
        before = best
        for move in moves(search, placed):
            moved = list(placed)
            for unit, device in move:
                moved[unit] = device
            score = search.score(tuple(moved))
            if score < best:
                placed, best = tuple(moved), score
            if search.is_over():
                break
        if best == before:
            break
    return placed


def moves(search: Search, placed: Assignment) -> Iterator[Move]:
    """List moves from a placement: runs of the program at the seams between devices, single units, exchanges."""
    graph, devices = search.graph, range(search.devices)
    firsts = [unit[0] for unit in graph.units]
    count = len(firsts)
    length = max(1, count // 4)
    seams = [at for at in range(1, count) if placed[at] != placed[at - 1]]
    while length > 1:
        for seam in seams:
            yield tuple((unit, placed[seam]) for unit in range(max(0, seam - length), seam))
            yield tuple((unit, placed[seam - 1]) for unit in range(seam, min(count, seam + length)))
        length //= 2
    for unit in range(count):
        for device in devices:
            if device != placed[unit]:
                yield ((unit, device),)
    if count <= FEW_UNITS:
        for one, other in combinations(range(count), 2):
            if placed[one] != placed[other]:
                yield ((one, placed[other]), (other, placed[one]))
            else:
                yield from (((one, device), (other, device)) for device in devices if device != placed[one])
