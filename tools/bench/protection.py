"""What it costs to keep tenants apart, beside the same work without it: in one process, in turns.

Each cost is a function that yields pairs of CPU seconds of this thread: without and with the protection. Figures are
medians over the pairs of a repeat.
"""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, fx, nn

from tools.bench import overhead
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.resident_data import HOST
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.guard import GraphGuard

Pairs = Iterator[tuple[float, float]]
_STEP_S = overhead.LONG_STEP_S
_MOST_SHARE = 0.01
_PAIRS = 150
OF_A_TURN = "a turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one piece of work, without and with a protection: medians over the pairs of each repeat."""

    protection: str
    work: str
    without_s: tuple[float, ...]
    with_s: tuple[float, ...]

    @property
    def added_s(self) -> tuple[float, ...]:
        """What the protection adds, repeat by repeat."""
        return tuple(more - less for less, more in zip(self.without_s, self.with_s, strict=True))

    @property
    def ratios(self) -> tuple[float, ...]:
        """Time with it for each second without it."""
        return tuple(more / less for less, more in zip(self.without_s, self.with_s, strict=True))

    @property
    def share(self) -> float:
        """What it adds, as a share of a step of 5 ms."""
        return median(self.added_s) / _STEP_S


def copies_of_evaluation() -> Pairs:
    """Evaluate a batch on a view of the data set and on a copy, now this one first and now that one."""
    data, submodel = _long()
    module, size = submodel.module.eval(), submodel.spec.hyperparameters.batch_size

    def view(samples: slice) -> Batch:
        targets = None if data.targets is None else data.targets[samples]
        return Batch({name: one[samples] for name, one in data.inputs.items()}, targets)

    def timed(batch: Callable[[slice], Batch], samples: slice) -> float:
        began_s = time.thread_time()
        given = batch(samples)
        submodel.criterion(module(given.inputs["inputs"]), given.targets).item()
        return time.thread_time() - began_s

    with torch.no_grad():
        for number in range(_PAIRS):
            start = number * size % data.samples
            ways = (view, data.batch) if number % 2 else (data.batch, view)
            seconds = {way: timed(way, slice(start, start + size)) for way in ways}
            yield seconds[view], seconds[data.batch]


def check_of_settings() -> Pairs:
    """Take a step, and look whether it left the settings of the process as they were."""
    process = ProcessState(HOST)
    for step_s in _steps():
        began_s = time.thread_time()
        process.restore(seldom=False)
        yield step_s, step_s + time.thread_time() - began_s


def check_of_signals() -> Pairs:
    """The same after the last step of a turn, which has been looked at already."""
    process = ProcessState(HOST)
    for step_s in _steps():
        process.restore(seldom=False)
        began_s = time.thread_time()
        process.restore()
        yield step_s, step_s + time.thread_time() - began_s


def contracts_of_operators() -> Pairs:
    """Take a step, and run an empty graph, as it is and behind its guard, whose kind of input is known by then."""
    data, submodel = _long()
    inputs = data.batch(slice(0, submodel.spec.hyperparameters.batch_size)).inputs["inputs"]
    graph = fx.symbolic_trace(nn.Identity())
    guarded, bare = GraphGuard(graph), partial(type(graph).forward, graph)
    guarded(inputs)

    def timed(run: Callable[[Tensor], Tensor]) -> float:
        began_s = time.thread_time()
        run(inputs)
        return time.thread_time() - began_s

    for number, step_s in enumerate(_steps()):
        ways = (bare, guarded) if number % 2 else (guarded, bare)
        seconds = {way: timed(way) for way in ways}
        yield step_s + seconds[bare], step_s + seconds[guarded]


def _steps() -> Iterator[float]:
    """Take steps of more than 5 ms; yields the CPU seconds of each."""
    _, submodel = _long()
    with submodel.world():
        for _ in range(_PAIRS):
            began_s = time.thread_time()
            submodel.step()
            yield time.thread_time() - began_s
            if submodel.at_epoch_end:
                submodel.end_epoch()


# Protection, the work that pays for it, and its function. A step pays for one evaluated batch if there are as many test
# samples as training samples, and for one turn if turns are of one step: usually for far less.
COSTS: tuple[tuple[str, str, Callable[[], Pairs]], ...] = (
    ("copies of inputs and targets", "an evaluated batch", copies_of_evaluation),
    ("contracts of operators", "a step", contracts_of_operators),
    ("settings of the process", "a step", check_of_settings),
    ("signals of the process", OF_A_TURN, check_of_signals),
)


def measure(repeats: int = 5) -> tuple[Cost, ...]:
    """Measure each cost on a network whose steps take more than 5 ms, in one thread."""
    overhead.keep_freed_memory()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tuple(_measured(protection, work, pairs, repeats) for protection, work, pairs in COSTS)
    finally:
        torch.set_num_threads(before)


def _measured(protection: str, work: str, pairs: Callable[[], Pairs], repeats: int) -> Cost:
    list(pairs())  # kernels are compiled and caches filled
    found = []
    for _ in range(repeats):
        gc.collect()
        found.append([median(seconds) for seconds in zip(*pairs(), strict=True)])
    without_s, with_s = zip(*found, strict=True)
    return Cost(protection=protection, work=work, without_s=without_s, with_s=with_s)


def _long() -> tuple[Dataset, SubModel]:
    data = overhead.data_of(overhead.LONG)
    [submodel] = overhead.submodels_of(overhead.LONG, data, 1)
    return data, submodel


ABOUT = "What it costs to keep tenants apart, beside the same work without it."
HEADS = ("protection", "work", "without", "with", "ratio", "added", "share of a step of 5 ms", "holds")


def described(found: tuple[Cost, ...]) -> dict[str, Any]:
    """Tables and figures."""
    rows = [
        (
            cost.protection,
            cost.work,
            f"{1e6 * median(cost.without_s):,.0f} µs",
            f"{1e6 * median(cost.with_s):,.0f} µs",
            f"{median(cost.ratios):.4f}",
            f"{1e6 * median(cost.added_s):+,.1f} µs",
            f"{cost.share:+.2%}",
            "yes" if cost.share < _MOST_SHARE else "**no**",
        )
        for cost in found
    ]
    total = sum(max(0.0, cost.share) for cost in found if cost.work != OF_A_TURN)
    return {
        "about": ABOUT,
        "passed": total < _MOST_SHARE and all(cost.share < _MOST_SHARE for cost in found),
        "thresholds": [],
        "notes": [
            "Promised: less than 1 % of a step of 5 ms, all together that a step pays for, and what a turn pays for. "
            f"A step with one evaluated batch pays {total:.2%}."
        ],
        "tables": [{"title": "Medians over the repeats:", "heads": HEADS, "rows": rows}],
        "measured": [asdict(cost) for cost in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
