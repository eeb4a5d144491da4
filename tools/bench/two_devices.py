"""Two submissions on one logical CPU device and on two, and how soon a drained device is left.

All devices have as many cores: where there is one, the other is drained. Both ways are measured in turns.
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tools.bench.two_people import PEOPLE, ended, opened, submitted, until
from tools.machine import ToolFailed
from unifiednn_core.base.paths import CPU_DEVICES_SETTING
from unifiednn_core.preflight import client
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import SubModelSpec

AT_MOST, MOVES_WITHIN_S = 0.60, 2.0
_EPOCHS, _LONG = 120, 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two submissions at one time."""

    devices: int
    makespan_s: float
    """From the first submission to the last model."""
    service_s: float
    """Seconds of training of both."""
    hybrids: int
    state_sha256: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A sub-model whose device is drained."""

    to: str
    """What is on the other device."""
    step_s: float
    """Mean of its steps."""
    left_s: float
    """From the order to drain until it has left its hybrid."""
    goes_on_s: float
    """From that order until its next attempt begins."""
    repeated_steps: int


def measure(repeats: int = 5) -> tuple[list[Pair], list[Move]]:
    """Train so many pairs each way, and drain as many devices with and without company on the other."""
    pairs, moves = [], []
    with opened(**{CPU_DEVICES_SETTING: "2"}) as service:
        if len(service.devices.devices()) < 2 or not all(one.cpus for one in service.devices.devices()):
            raise ToolFailed("Two devices with cores of their own need two cores.")
        client.start()
        until(client.template.ready, "the template")
        part = next(part for part in service.library.prepare_samples().submodels if part.name == "resnet")
        service.start_supervisor()
        try:
            for _ in range(repeats):
                pairs += [_pair(service, part, devices) for devices in (1, 2)]
            for _ in range(repeats):
                moves += [_move(service, part, company=company) for company in (True, False)]
        finally:
            client.stop()
    return pairs, moves


def _trained(part: SubModelSpec, name: str, epochs: int, seed: int) -> SubModelSpec:
    given = {"epochs": epochs, "lr_scheduler": None, "seed": seed}
    hyperparameters = part.hyperparameters.model_copy(update=given)
    return part.model_copy(update={"name": name, "hyperparameters": hyperparameters})


def _pair(service: Service, part: SubModelSpec, devices: int) -> Pair:
    (service.devices.ready_device if devices == 2 else service.devices.drain_device)("cpu:1")
    began_s = time.monotonic()
    parts = [_trained(part, f"resnet-{seed}", _EPOCHS, seed) for seed in (1, 2)]
    runs = [submitted(service, person, one, device="cpu") for person, one in zip(PEOPLE, parts, strict=True)]
    rows = [row for _, row in ended(service, runs)]
    makespan_s = time.monotonic() - began_s
    until(lambda: not service.store.workers.held(), "the end of all workers")
    service.devices.ready_device("cpu:1")
    return Pair(
        devices=devices,
        makespan_s=makespan_s,
        service_s=sum(row.service_s for row in rows),
        hybrids=len({row.hybrid_id for row in rows}),
        state_sha256=tuple(row.state_sha256 or "" for row in rows),
    )


def _move(service: Service, part: SubModelSpec, *, company: bool) -> Move:
    goer = submitted(service, PEOPLE[0], _trained(part, "goer", _LONG, 1), device="cpu")
    runs, store = [goer], service.store
    until(lambda: store.runs.get(goer)[1][0].steps_done > 0, "the first step")
    if company:
        runs.append(submitted(service, PEOPLE[1], _trained(part, "stayer", _LONG, 2), device="cpu"))
        until(lambda: store.runs.get(runs[1])[1][0].steps_done > 0, "the first step of the other one")
    before = store.runs.get(goer)[1][0]
    hybrid, _ = store.hybrids.get(before.hybrid_id or "")
    began_s = time.monotonic()
    service.devices.drain_device(hybrid.device or "")
    until(lambda: store.runs.get(goer)[1][0].hybrid_id != before.hybrid_id, "the leave")
    left_s = time.monotonic() - began_s
    until(lambda: store.runs.get(goer)[1][0].attempt > before.attempt, "the next attempt")
    goes_on_s = time.monotonic() - began_s
    row = store.runs.get(goer)[1][0]
    view = service.runs.observe(goer).submodels[0]
    for run_id in runs:
        service.runs.discard(run_id)
    until(lambda: not store.workers.held(), "the end of all workers")
    service.devices.ready_device(hybrid.device or "")
    return Move(
        to="a hybrid" if company else "nothing",
        step_s=row.service_s / max(1, row.steps_done),
        left_s=left_s,
        goes_on_s=goes_on_s,
        repeated_steps=view.redone_steps,
    )


ABOUT = (
    "Two people submit the demo's ResNet at once, on a server with one logical CPU device and with two; then a device"
    " is drained on which one of them trains."
)


def described(pairs: Sequence[Pair], moves: Sequence[Move]) -> dict[str, Any]:
    """Tables and figures."""
    ones, twos = ([pair for pair in pairs if pair.devices == count] for count in (1, 2))
    ratios = [two.makespan_s / one.makespan_s for one, two in zip(ones, twos, strict=True)]
    evened = median(two.makespan_s / two.service_s for two in twos) / median(
        one.makespan_s / one.service_s for one in ones
    )
    same = len({pair.state_sha256 for pair in pairs}) == 1
    slowest_s = max(move.left_s - move.step_s for move in moves)
    first = [
        (
            f"{count}",
            _spread([pair.makespan_s for pair in of]),
            _spread([pair.service_s for pair in of]),
            f"{max(pair.hybrids for pair in of)}",
        )
        for count, of in ((1, ones), (2, twos))
    ]
    second = [
        (
            f"{to}",
            _spread([move.step_s for move in of]),
            _spread([move.left_s for move in of]),
            _spread([move.goes_on_s for move in of]),
            str(max(move.repeated_steps for move in of)),
        )
        for to in dict.fromkeys(move.to for move in moves)
        if (of := [move for move in moves if move.to == to])
    ]
    middle = median(ratios)
    return {
        "about": ABOUT,
        "passed": same and middle <= AT_MOST and slowest_s <= MOVES_WITHIN_S,
        "thresholds": [
            {
                "case": "two devices",
                "figure": "makespan",
                "against": "one device",
                "at_most": AT_MOST,
                "median": round(middle, 4),
                "holds": middle <= AT_MOST,
            }
        ],
        "notes": [
            f"Two devices / one device: {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), from the first"
            " submission to the last model. A submission includes its check, and each worker its start.",
            f"For each second of training, which other programs on the machine stretch alike: {evened:.2f}.",
            f"Promised: what trains on a drained device leaves it within its step and {MOVES_WITHIN_S:g} s. Slowest,"
            f" without its step: {slowest_s:.2f} s.",
            "All weights have the same bits." if same else "**The weights differ.**",
        ],
        "tables": [
            {
                "title": "Medians over the repeats (least to greatest):",
                "heads": ("devices", "makespan", "seconds of training of both", "hybrids"),
                "rows": first,
            },
            {
                "title": "A device is drained:",
                "heads": ("on the other device is", "step", "has left after", "goes on after", "steps repeated"),
                "rows": second,
            },
        ],
        "measured": [*map(asdict, pairs), *map(asdict, moves)],
    }


def _spread(figures: Sequence[float]) -> str:
    return f"{median(figures):.2f} s ({min(figures):.2f} to {max(figures):.2f})"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(*measure(repeats=int(sys.argv[1])))) + "\n")
