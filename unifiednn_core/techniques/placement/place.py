"""Decides on which device each operator of a network runs: fast, and never above the memory limit of a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from unifiednn_core.base.errors import Infeasible
from unifiednn_core.base.units import memory_text
from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.plan import PlacementPlan, PlannedDevice, PlannedTask
from unifiednn_core.techniques.placement.simulate import Tasks, Times, memory_bytes, peaks_bytes

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


ROUNDS = 24
_PATIENCE = 5
_MORE = 1.05
"""Some more than what is missing leaves, because what a move frees is an estimate."""
_Table = NDArray[np.float64]


def fitted(search: Search, start: Assignment) -> Assignment:
    """Move units until no device is above its limit, or moves do not help any more; returns the best that was found."""
    placed = best = start
    if not search.score(start).excess_bytes:
        return start
    resident_bytes, work_s = _of_units(search)
    worse = 0
    for _ in range(ROUNDS):
        if not search.score(placed).excess_bytes or worse >= _PATIENCE:
            break
        placed = _relieved(search, placed, resident_bytes, work_s)
        worse = 0 if search.score(placed) < search.score(best) else worse + 1
        best = min(best, placed, key=search.score)
    return best


def _of_units(search: Search) -> tuple[_Table, _Table]:
    """Bytes that leave a device with each unit, which are weights, what it keeps and its results; and its seconds."""
    graph, tasks = search.graph, search.tasks
    resident_bytes = _summed(graph.unit_of, tasks.output_bytes + tasks.saved_bytes * graph.training, len(graph.units))
    for number, size_bytes in tasks.weights:
        resident_bytes[graph.unit_of[number]] += size_bytes
    return resident_bytes, _summed(graph.unit_of, [*map(graph.op_s, range(tasks.count))], len(graph.units))


def _summed(places: object, values: object, count: int) -> _Table:
    found: _Table = np.bincount(np.asarray(places), np.asarray(values, float), count).astype(float)
    return found


def _relieved(search: Search, placed: Assignment, resident_bytes: _Table, work_s: _Table) -> Assignment:
    """Move what frees the missing bytes of each device, the fullest first, at the least loss of seconds by byte."""
    peaks = search.score(placed).peaks_bytes
    room = [float("inf") if cap is None else cap - peak for peak, cap in zip(peaks, search.caps, strict=True)]
    device = np.array(placed)
    load_s = _summed(device, work_s, search.devices)
    sent_s, shared_bytes = _ties(search, device)
    moved = list(placed)
    for full in sorted(range(search.devices), key=room.__getitem__):
        freed_bytes = resident_bytes + shared_bytes.sum(axis=1) - 2 * shared_bytes[:, full]
        others = [other for other in range(search.devices) if other != full and room[other] > 0]
        units, places = np.nonzero(((device == full) & (freed_bytes > 0))[:, None] & np.ones(len(others), bool))
        there = np.array(others, int)[places]
        slower_s = np.maximum(0.0, work_s[units] + load_s[there] - load_s[full])
        loss_s = sent_s[units, full] - sent_s[units, there] + slower_s
        order = np.lexsort((there, units, loss_s / freed_bytes[units]))
        missing, gone = -room[full] * _MORE, set[int]()
        for unit, other in zip(units[order].tolist(), there[order].tolist(), strict=True):
            if missing <= 0:
                break
            if unit not in gone and room[other] >= resident_bytes[unit]:
                gone.add(unit)
                moved[unit], missing = other, missing - freed_bytes[unit]
                room[other] -= resident_bytes[unit]
    return tuple(moved)


def _ties(search: Search, device: NDArray[np.int64]) -> tuple[_Table, _Table]:
    """Seconds of sending, and bytes of copies, between each unit and the other units of each device."""
    tasks, link, unit_of = search.tasks, search.link, np.array(search.graph.unit_of)
    source, target = unit_of[tasks.source], unit_of[tasks.target]
    apart = source != target
    source, target = source[apart], target[apart]
    size_bytes, gradient_bytes = tasks.size_bytes[apart], tasks.gradient_bytes[apart]
    sent_s = sum(
        np.where(one > 0, link.latency_s + one / link.bytes_per_s, 0.0) for one in (size_bytes, gradient_bytes)
    )
    of_source, of_target = source * search.devices + device[target], target * search.devices + device[source]
    shape = len(device), search.devices

    def to_each(values: object) -> _Table:
        size = shape[0] * shape[1]
        return (_summed(of_source, values, size) + _summed(of_target, values, size)).reshape(shape)

    return to_each(sent_s), to_each(size_bytes // 2)


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


WINDOWS = 512
"""Parts of the critical path in which the work of each device is counted."""


def mapped(graph: CostGraph, found: Slices, devices: int, link: Link, *, avoid_sending: float = 1.0) -> tuple[int, ...]:
    """Return the device of each operator; units are together.

    A slice runs in a window of time, between what it waits for and what waits for it. It joins the device where the
    work in this window, and what has to be sent to others and from them, take least; what is sent counts
    `avoid_sending` times.
    """
    device_of = np.full(len(graph.ops), -1)
    levels = found.levels
    longest_s = max((levels.weight_s(number) for number in range(len(graph.ops))), default=0.0) or 1.0
    window_of = [min(WINDOWS - 1, int(WINDOWS * start_s / longest_s)) for start_s in levels.before_s]
    load_s = np.zeros((devices, WINDOWS))

    def put(members: Sequence[int], device: int) -> None:
        for number in members:
            device_of[number] = device
            load_s[device, window_of[number]] += graph.op_s(number)

    for device, members in enumerate(found.primary):
        put(members, device)
    for members in found.secondary:
        cost_s = load_s[:, window_of[members[0]] : window_of[members[-1]] + 1].sum(axis=1)
        for number in members:
            for edges, others in ((graph.incoming[number], "source"), (graph.outgoing[number], "target")):
                for edge in edges:
                    other = device_of[edge.source if others == "source" else edge.target]
                    if other >= 0:
                        sending_s = avoid_sending * (link.seconds(edge.size_bytes) + link.seconds(edge.gradient_bytes))
                        cost_s += sending_s
                        cost_s[other] -= sending_s
        put(members, int(cost_s.argmin()))
    return together(graph, device_of.tolist(), devices)


def together(graph: CostGraph, device_of: Sequence[int], devices: int) -> tuple[int, ...]:
    """Bring the operators of each unit to the device that has most of its work."""
    united = list(device_of)
    for unit in graph.units:
        if len(unit) > 1:
            work_s = [0.0] * devices
            for number in unit:
                work_s[device_of[number]] += graph.op_s(number) + 1e-12  # so that operators of no time count, too
            device = max(range(devices), key=lambda one: (work_s[one], -one))
            for number in unit:
                united[number] = device
    return tuple(united)


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


def planned(
    graph: CostGraph, placement: PlacedOps, caps: Sequence[int | None], link: Link | None = None
) -> PlacementPlan:
    """Make the plan of a placement that `place` found under these caps with this link."""
    tasks, device_of, count = Tasks(graph), placement.device_of, len(graph.ops)
    link = link or Link()
    times = tasks.list_schedule(device_of, len(caps), link)
    alive = memory_bytes(tasks, device_of, len(caps), link, times)
    own: list[list[PlannedTask]] = [[] for _ in caps]
    starts_s, ends_s = times.starts_s, times.ends_s
    for task in sorted(range(len(starts_s)), key=lambda task: (starts_s[task], ends_s[task], task)):
        number = task if task < count else 2 * count - 1 - task
        done = own[device_of[number]]
        size_bytes = int(alive[device_of[number]][len(done)])
        name = graph.ops[number].name
        done.append(PlannedTask(name, task >= count, starts_s[task], ends_s[task], size_bytes))
    weight_bytes = [0] * len(caps)
    for weight in graph.weights:
        weight_bytes[device_of[weight.ops[0]]] += weight.size_bytes
    devices = tuple(
        PlannedDevice(cap, peak, held, sum(one.end_s - one.start_s for one in done), tuple(done))
        for cap, peak, held, done in zip(caps, placement.peaks_bytes, weight_bytes, own, strict=True)
    )
    return PlacementPlan(
        placement.makespan_s,
        placement.program_s,
        placement.bound_s,
        graph.work_s,
        _sent_bytes(graph, device_of),
        devices,
    )


def _sent_bytes(graph: CostGraph, device_of: Sequence[int]) -> int:
    copies: dict[tuple[int, int], int] = {}
    back_bytes = 0
    for edge in graph.edges:
        device = device_of[edge.target]
        if device != device_of[edge.source]:
            copies[edge.source, device] = max(copies.get((edge.source, device), 0), edge.size_bytes)
            back_bytes += edge.gradient_bytes if graph.training else 0
    return sum(copies.values()) + back_bytes


MOST_CUTS = 4096
"""Of more places to cut only some are tried, equally far apart in time."""
_Sizes = NDArray[np.int64]


def consecutive(graph: CostGraph, caps: Sequence[int | None], link: Link) -> tuple[int, ...] | None:
    """Return the device of each operator, by dynamic programming over the places to cut; None if nothing fits.

    `caps` are bytes of each device, None for no limit. To receive counts as time of a device where it takes longer
    than to compute. It is no placement: operators that have to be together may be torn.
    """
    places = _places(graph)
    last = len(places) - 1
    passed_s = np.concatenate(([0.0], np.cumsum([*map(graph.op_s, range(len(graph.ops)))])))[places]
    sent_bytes = _sizes_sent(graph)[places]
    sending_s = np.array([link.seconds(int(size_bytes)) for size_bytes in sent_bytes])
    peak = _peaks(graph)
    best = np.full((len(caps) + 1, last + 1), np.inf)
    chosen = np.zeros((len(caps) + 1, last + 1), int)
    best[0, 0] = 0.0
    for device, cap in enumerate(caps):
        lowest = 0
        for end in range(last + 1):
            best[device + 1, end], chosen[device + 1, end] = best[device, end], end  # nothing on this device
            while cap is not None and lowest < end and sent_bytes[lowest] + peak(places[lowest], places[end]) > cap:
                lowest += 1  # a part of a stage needs no more than it
            if lowest < end:
                own_s = np.maximum(passed_s[end] - passed_s[lowest:end], sending_s[lowest:end])
                slowest = np.maximum(best[device, lowest:end], own_s)
                at = int(slowest.argmin())
                if slowest[at] < best[device + 1, end]:
                    best[device + 1, end], chosen[device + 1, end] = slowest[at], lowest + at
    if not np.isfinite(best[len(caps), last]):
        return None
    found, end = [0] * len(graph.ops), last
    for device in reversed(range(len(caps))):
        start = int(chosen[device + 1, end])
        found[places[start] : places[end]] = [device] * (places[end] - places[start])
        end = start
    return tuple(found)


def _places(graph: CostGraph) -> list[int]:
    """Numbers of operators before which the program may be cut, with its two ends."""
    count = len(graph.ops)
    if count - 1 <= MOST_CUTS:
        return [*range(count), count]
    at_s = np.cumsum([graph.op_s(number) for number in range(count - 1)])
    chosen = np.unique(np.searchsorted(at_s, np.linspace(at_s[0], at_s[-1], MOST_CUTS)))
    return [0, *(chosen + 1).tolist(), count]


def _sizes_sent(graph: CostGraph) -> _Sizes:
    """Bytes that are sent if the program is cut before each operator; nothing at its two ends."""
    sizes = np.zeros(len(graph.ops) + 1, np.int64)
    for number, edges in enumerate(graph.outgoing):
        if reads := [edge for edge in edges if edge.size_bytes]:
            last = max(edge.target for edge in reads)
            _between(sizes, number + 1, last, max(edge.size_bytes for edge in reads))
    return sizes.cumsum()


def _peaks(graph: CostGraph) -> Callable[[int, int], int]:
    """Prepare a function that bounds the peak in bytes from one operator to before another one, without its inputs."""
    count = len(graph.ops)
    weights, kept, passing, gradients = (np.zeros(count + 1, np.int64) for _ in range(4))
    for weight in graph.weights:
        weights[weight.ops[0]] += weight.size_bytes
    for owner, members in graph.storages().items():
        edges = [edge for member in members for edge in graph.outgoing[member]]
        size_bytes = graph.ops[owner].output_bytes
        is_kept = any(edge.kept for edge in edges) or any(graph.ops[member].keeps_output for member in members)
        if graph.training and is_kept:
            kept[owner] += size_bytes
        else:
            _between(passing, owner, max((edge.target for edge in edges), default=owner), size_bytes)
    for number, op in enumerate(graph.ops):
        kept[number] += op.saved_bytes if graph.training else 0
        if graph.training and (readers := graph.outgoing[number]):
            size_bytes = max(edge.gradient_bytes for edge in readers)
            _between(gradients, number, max(edge.target for edge in readers), size_bytes)
    held = np.concatenate(([0], np.cumsum((weights + kept)[:-1])))
    largest = _largest_of(np.maximum(np.cumsum(passing)[:-1], np.cumsum(gradients)[:-1]))
    return lambda first, behind: int(held[behind] - held[first]) + largest(first, behind)


def _between(sizes: _Sizes, first: int, last: int, size_bytes: int) -> None:
    sizes[first] += size_bytes
    sizes[last + 1] -= size_bytes


def _largest_of(values: _Sizes) -> Callable[[int, int], int]:
    """Prepare a function that finds the largest value from a place to before another one, at once."""
    tables = [values]
    while (step := 1 << (len(tables) - 1)) * 2 <= len(values):
        tables.append(np.maximum(tables[-1][:-step], tables[-1][step:]))

    def largest(first: int, behind: int) -> int:
        level = (behind - first).bit_length() - 1
        return int(max(tables[level][first], tables[level][behind - (1 << level)]))

    return largest
