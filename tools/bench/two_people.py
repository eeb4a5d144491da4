"""Memory of the networks of two people in one hybrid, beside the two workers that would train them otherwise.

Each way is the product's own: submissions that are gathered into one hybrid, and submissions with a hybrid each, one
after the other on one device, and at once on two. All workers load torch themselves, so that no template counts.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from tools.machine import ToolFailed
from unifiednn_core.base.paths import CPU_DEVICES_SETTING, WARM_START_SETTING, Home
from unifiednn_core.formats.architectures import registry
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import Actor, Role
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.pooling import Pooling, PoolMode
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run
from unifiednn_core.store.schema import RunRow, SubModelRow

AT_MOST = 0.60
PATIENCE_S = 900.0
PEOPLE = tuple(Actor(id=f"{name}@example.org", name=name, role=Role.OPERATOR, here=True) for name in ("one", "two"))
POOLED, IN_TURN, AT_ONCE = "one hybrid", "two workers, one after the other", "two workers at once"
BEYOND = "width 64"
"""A case of which nothing is promised: networks that are larger than the context of a process."""
_IMAGES = (3, 32, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to train two submissions, as it was measured."""

    case: str
    way: str
    peaks_bytes: tuple[int, ...]
    """Of each worker."""
    source: str
    data_bytes: int
    """Files of the common data set."""
    state_sha256: tuple[str, ...]
    """Of each network."""


@contextmanager
def opened(**settings: str) -> Iterator[Service]:
    """A service in a home of its own whose people share processes; `settings` are of the environment."""
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
        service = Service.open(Home(Path(folder)))
        try:
            service.people.set_sharing("everyone")
            yield service
        finally:
            service.close()
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value


def submitted(service: Service, person: Actor, part: SubModelSpec, **spec: Any) -> str:
    """Submit one network for hybrids that are shared; returns the id of the run."""
    document = {"name": part.name, "hybrid": "shared", "threads": 1, **spec}
    document["submodels"] = [part.model_dump(mode="json", exclude_none=True)]
    return service.acting_as(person).runs.submit(parse_run(document))


def ended(service: Service, run_ids: Sequence[str]) -> list[tuple[RunRow, SubModelRow]]:
    """Wait until these runs have completed; raises `ToolFailed`."""
    until(lambda: all(service.store.runs.get(run_id)[0].state in ENDED for run_id in run_ids), "the end of all runs")
    found = [(run, part) for run, [part] in map(service.store.runs.get, run_ids)]
    for run, part in found:
        if run.state != State.COMPLETED:
            raise ToolFailed(f"{part.name} ended {part.state}: {part.cause or run.cause}.")
    return found


def until(done: Callable[[], object], what: str) -> None:
    """Wait; raises `ToolFailed`."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > deadline_s:
            raise ToolFailed(f"{what} did not come within {PATIENCE_S:g} s.")
        time.sleep(0.05)


def cases(service: Service) -> dict[str, tuple[SubModelSpec, SubModelSpec]]:
    """Pairs of networks with a common data set: the demo's, and two sizes of ResNet-18."""
    demo = service.library.prepare_samples()
    parts = {part.name: part for part in demo.submodels}
    found = {"the demo's ResNet and Transformer": (_for(parts["resnet"], 3), _for(parts["transformer"], 3))}
    folder = service.home.root / "bench"
    folder.mkdir()
    for width, samples, batch_size in ((32, 1_280, 64), (64, 320, 32)):
        data = folder / f"images-{samples}.npz"
        numbers = np.random.default_rng(samples)
        images = numbers.integers(0, 256, (samples, *_IMAGES), dtype=np.uint8)
        np.savez(data, inputs=images, targets=numbers.integers(0, 10, samples))
        pair = [_resnet(folder, data, width, batch_size, seed) for seed in (1, 2)]
        weights = sum(parameter.numel() for parameter in registry.build("resnet", {"width": width}).parameters())
        found[f"two ResNet-18 of width {width}, {weights / 1e6:.1f} M weights each"] = (pair[0], pair[1])
    return found


def _for(part: SubModelSpec, epochs: int) -> SubModelSpec:
    given = {"epochs": epochs, "lr_scheduler": None}
    return part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update=given)})


def _resnet(folder: Path, data: Path, width: int, batch_size: int, seed: int) -> SubModelSpec:
    torch.manual_seed(seed)
    weights = folder / f"resnet-{width}-{seed}.safetensors"
    save_file(registry.build("resnet", {"width": width}).state_dict(), weights)
    return SubModelSpec.model_validate(
        {
            "name": f"resnet-{seed}",
            "model": str(weights),
            "architecture": {"name": "resnet", "args": {"width": width}},
            "train_data": str(data),
            "scale": 1 / 255,
            "hyperparameters": {
                "epochs": 1,
                "batch_size": batch_size,
                "learning_rate": 0.001 * seed,
                "seed": seed,
                "optimizer": "sgd",
                "optimizer_args": {"momentum": 0.9},
            },
        }
    )


def measure(repeats: int = 3) -> list[Way]:
    """Train each pair so often in each way, in turns."""
    found = []
    ways: tuple[tuple[str, PoolMode, str], ...] = (
        (POOLED, "gathered", "1"),
        (IN_TURN, "private", "1"),
        (AT_ONCE, "private", "2"),
    )
    for _ in range(repeats):
        for way, mode, devices in ways:
            with opened(**{WARM_START_SETTING: "off", CPU_DEVICES_SETTING: devices}) as service:
                found += _measured(service, way, mode)
    return found


def _measured(service: Service, way: str, mode: PoolMode) -> list[Way]:
    service.store.hybrids.set_pooling(Pooling(mode=mode, gather_s=600, gather_n=2), "")
    found = []
    for case, pair in cases(service).items():
        runs = [submitted(service, person, part, device="cpu") for person, part in zip(PEOPLE, pair, strict=True)]
        service.start_supervisor()
        rows = [part for _, part in ended(service, runs)]
        until(lambda: not service.store.workers.held(), "the end of all workers")
        ids = dict.fromkeys(part.hybrid_id or "" for part in rows)
        hybrids = [service.store.hybrids.get(one)[0] for one in ids]
        if len(hybrids) != (1 if way == POOLED else 2):
            raise ToolFailed(f"{way}: there were {len(hybrids)} workers.")
        spec = RunSpec.model_validate(service.store.runs.get(runs[0])[0].spec)
        data = service.home.file(spec.submodels[0].train_data.removeprefix("sha256:"))
        found.append(
            Way(
                case=case,
                way=way,
                peaks_bytes=tuple(hybrid.peak_memory_bytes or 0 for hybrid in hybrids),
                source=hybrids[0].memory_source or "",
                data_bytes=data.stat().st_size,
                state_sha256=tuple(part.state_sha256 or "" for part in rows),
            )
        )
    return found


ABOUT = (
    "Two people submit one network each, with a common data set: peak memory of the hybrid in which they meet, beside"
    " the sum of the peaks of two workers."
)


def described(found: Sequence[Way]) -> dict[str, Any]:
    """Tables and figures."""
    names = list(dict.fromkeys(one.case for one in found))

    def sums(case: str, way: str) -> list[int]:
        return [sum(one.peaks_bytes) for one in found if (one.case, one.way) == (case, way)]

    def ratio(case: str, against: str) -> float:
        return median(pooled / apart for pooled, apart in zip(sums(case, POOLED), sums(case, against), strict=True))

    def mib(case: str, way: str) -> str:
        sizes = [size / 2**20 for size in sums(case, way)]
        return f"{median(sizes):.0f} MiB ({min(sizes):.0f} to {max(sizes):.0f})"

    rows = [
        (
            case,
            *(mib(case, way) for way in (POOLED, IN_TURN, AT_ONCE)),
            f"{ratio(case, IN_TURN):.2f}",
            f"{ratio(case, AT_ONCE):.2f}",
        )
        for case in names
    ]
    thresholds = [
        {
            "case": case,
            "figure": "memory",
            "against": IN_TURN,
            "at_most": AT_MOST,
            "median": round(ratio(case, IN_TURN), 4),
            "holds": ratio(case, IN_TURN) <= AT_MOST,
        }
        for case in names
        if BEYOND not in case
    ]
    same = all(len({one.state_sha256 for one in found if one.case == case}) == 1 for case in names)
    data = "; ".join(f"{case}: {next(o.data_bytes for o in found if o.case == case) / 2**20:.1f} MiB" for case in names)
    return {
        "about": ABOUT,
        "passed": same and all(entry["holds"] for entry in thresholds),
        "thresholds": thresholds,
        "notes": [
            f"Source: {found[0].source}. Workers at once share the pages of torch's files, which each counts by its"
            " part; one after the other, each counts them all.",
            f"Files of the common data: {data}.",
            "A hybrid saves a second context and a second data set, and most of the temporary memory of all but one"
            " network: the smaller the networks are beside the context of a process, the more it saves. Of the largest"
            " networks here nothing is promised.",
            "All weights have the same bits in all ways." if same else "**The weights differ.**",
        ],
        "tables": [
            {
                "title": "Medians over the repeats (least to greatest):",
                "heads": ("two people's networks", POOLED, IN_TURN, AT_ONCE, "hybrid / in turn", "hybrid / at once"),
                "rows": rows,
            }
        ],
        "measured": [asdict(one) for one in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
