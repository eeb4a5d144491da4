"""Decides on which device each operator of a network runs: fast, and never above the memory limit of a device."""

from collections.abc import Sequence
from dataclasses import dataclass

from unifiednn_core.base.errors import Infeasible
from unifiednn_core.base.units import memory_text
from unifiednn_core.techniques.placement.fit import fitted
from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.mapping import mapped, together
from unifiednn_core.techniques.placement.refine import EFFORT, FEW_UNITS, Assignment, Score, Search, refined
from unifiednn_core.techniques.placement.simulate import Tasks
from unifiednn_core.techniques.placement.slicing import slices
from unifiednn_core.techniques.placement.stages import consecutive

AVOID_SENDING = (1.0, 6.0, 40.0)
"""Copies need memory, too: slices are mapped as if it took so many times as long to send them."""
_REFINED = 3
"""So many of the first guesses are refined, the best ones; of a graph of few operators all."""


@dataclass(frozen=True, slots=True)
class PlacedOps:
    """Where each operator runs, and what that takes, simulated."""

    device_of: tuple[int, ...]
    makespan_s: float
    """Each device takes the most urgent of its tasks that can run."""
    program_s: float
    """Each device does its tasks in the order of the program, as `execute` does."""
    bound_s: float
    """No placement on so many devices can be faster."""
    peaks_bytes: tuple[int, ...]
    """Of each device, in the order that needs more."""


def place(graph: CostGraph, caps: Sequence[int | None], link: Link | None = None, *, effort: int = EFFORT) -> PlacedOps:
    """Place a network on one device for each of the caps, in bytes; None is no limit. Equal graphs get equal results.

    `effort` bounds the search, in simulated tasks. Raises `Infeasible` if nothing fits.
    """
    if not caps:
        raise ValueError("a placement needs at least one device")
    search = Search(Tasks(graph), tuple(caps), link or Link(), effort)
    _refuse_the_impossible(graph, caps)
    guesses = sorted(_fitting(search), key=lambda guess: (search.score(guess), guess))
    chosen = guesses if len(graph.units) <= FEW_UNITS else guesses[:_REFINED]
    best = min((refined(search, guess) for guess in chosen), key=lambda one: (search.score(one), one))
    device_of = search.device_of(best)
    if search.score(best).excess_bytes:
        raise _none_found(search, best)
    times = search.tasks.list_schedule(device_of, len(caps), search.link)
    return PlacedOps(
        device_of,
        times.makespan_s,
        search.tasks.program_order(device_of, len(caps), search.link).makespan_s,
        graph.bound_s(len(caps)),
        search.peaks_bytes(device_of, times),
    )


def _fitting(search: Search) -> set[Assignment]:
    """Make the first placements fit, the fastest first.

    Once the effort is spent, those are left out that are slower before they fit than one that does.
    """
    found = set[Assignment]()
    for guess in sorted(_guesses(search), key=lambda guess: (search.score(guess).makespan_s, guess)):
        if search.is_over() and found and min(map(search.score, found)) < Score(0, search.score(guess).makespan_s):
            break
        found.add(fitted(search, guess))
    return found


def _guesses(search: Search) -> list[Assignment]:
    """Make first placements: all on one device, by slices, and as consecutive stages of equal time."""
    graph, devices, caps = search.graph, search.devices, search.caps
    largest = max(range(devices), key=lambda one: (float("inf") if caps[one] is None else caps[one] or 0, -one))
    found = [(largest,) * len(graph.ops)]
    sliced = slices(graph, devices, search.link)
    found += [mapped(graph, sliced, devices, search.link, avoid_sending=factor) for factor in AVOID_SENDING]
    for limits in {(None,) * devices, tuple(caps)}:
        device_of = consecutive(graph, limits, search.link)
        if device_of is not None:
            found.append(together(graph, device_of, devices))
    return [tuple(guess[unit[0]] for unit in graph.units) for guess in found]


def _refuse_the_impossible(graph: CostGraph, caps: Sequence[int | None]) -> None:
    """Raise `Infeasible` where the weights alone, which have to be somewhere, are too large."""
    if any(cap is None for cap in caps):
        return
    limits = [cap or 0 for cap in caps]
    weights_bytes = sum(weight.size_bytes for weight in graph.weights)
    if weights_bytes > sum(limits):
        problem = (
            f"All weights need {memory_text(weights_bytes)}, and {len(caps)} devices together may have "
            f"{memory_text(sum(limits))}."
        )
        raise Infeasible(problem)
    of_unit = [0] * len(graph.units)
    for weight in graph.weights:
        of_unit[graph.unit_of[weight.ops[0]]] += weight.size_bytes
    largest = max(of_unit, default=0)
    if largest > max(limits):
        name = graph.ops[graph.units[of_unit.index(largest)][0]].name
        problem = (
            f"Weights of '{name}' that have to be together need {memory_text(largest)}, and no device may have more "
            f"than {memory_text(max(limits))}."
        )
        raise Infeasible(problem)


def _none_found(search: Search, best: Assignment) -> Infeasible:
    over = [
        f"device {device} needs {memory_text(peak)} and may have {memory_text(cap)}"
        for device, (peak, cap) in enumerate(zip(search.score(best).peaks_bytes, search.caps, strict=True))
        if cap is not None and peak > cap
    ]
    return Infeasible(f"No placement was found that fits; in the closest one {', '.join(over)}.")
