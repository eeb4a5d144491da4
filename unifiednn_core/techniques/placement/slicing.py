"""The graph of operators in slices: chains that wait for each other, which gain nothing from several devices."""

from collections.abc import Sequence
from dataclasses import dataclass

from unifiednn_core.techniques.placement.graph import CostGraph, Link


@dataclass(frozen=True, slots=True)
class Levels:
    """Longest ways through the operators, in seconds, with what is sent if all are on devices of their own."""

    before_s: list[float]
    """From the start to each operator, without it."""
    after_s: list[float]
    """From each operator to the end, with it."""

    def weight_s(self, number: int) -> float:
        """Length of the longest way through an operator."""
        return self.before_s[number] + self.after_s[number]


@dataclass(frozen=True, slots=True)
class Slices:
    """All operators, each in one slice, and each slice in the order of the program."""

    primary: tuple[tuple[int, ...], ...]
    """One for each device: the longest way, then the longest one in what is left, and so on."""
    secondary: tuple[tuple[int, ...], ...]
    """Ways through what is left after that."""
    levels: Levels


def slices(graph: CostGraph, devices: int, link: Link) -> Slices:
    """Cut the graph in slices."""
    taken = [False] * len(graph.ops)
    whole = levels(graph, link, taken)
    primary = []
    for _ in range(devices):
        now = levels(graph, link, taken)
        primary.append(_heaviest(graph, now, taken))
    left = levels(graph, link, taken)
    order = sorted(range(len(taken)), key=lambda number: (-left.weight_s(number), number))
    secondary = [_way(graph, left, taken, number) for number in order if not taken[number]]
    return Slices(tuple(primary), tuple(secondary), whole)


def levels(graph: CostGraph, link: Link, without: Sequence[bool]) -> Levels:
    """Compute the longest ways through all operators but some."""
    count = len(graph.ops)
    before_s, after_s = [0.0] * count, [0.0] * count
    sending_s = {edge: link.seconds(edge.size_bytes) + link.seconds(edge.gradient_bytes) for edge in graph.edges}
    for number in range(count):
        if not without[number]:
            ways = (
                before_s[edge.source] + graph.op_s(edge.source) + sending_s[edge]
                for edge in graph.incoming[number]
                if not without[edge.source]
            )
            before_s[number] = max(ways, default=0.0)
    for number in reversed(range(count)):
        if not without[number]:
            ways = (
                after_s[edge.target] + sending_s[edge] for edge in graph.outgoing[number] if not without[edge.target]
            )
            after_s[number] = graph.op_s(number) + max(ways, default=0.0)
    return Levels(before_s, after_s)


def _heaviest(graph: CostGraph, now: Levels, taken: list[bool]) -> tuple[int, ...]:
    free = [number for number, is_taken in enumerate(taken) if not is_taken]
    if not free:
        return ()
    return _way(graph, now, taken, max(free, key=lambda number: (now.after_s[number], -number)))


def _way(graph: CostGraph, now: Levels, taken: list[bool], start: int) -> tuple[int, ...]:
    """Take the longest way from an operator on."""
    found, here = list[int](), start
    while True:
        taken[here] = True
        found.append(here)
        after = [edge.target for edge in graph.outgoing[here] if not taken[edge.target]]
        if not after:
            return tuple(found)
        here = max(after, key=lambda number: (now.after_s[number], -number))
