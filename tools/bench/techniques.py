"""What each technique saves and costs: memory of a step and between turns, seconds and bits, beside a network without.

Each sub-model trains alone, where living tensors are counted, and then beside the same one without techniques, in turns
of one step, so that a slow machine slows both. A technique without an entry in `VARIANTS` has its defaults.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch

from sample_models.architectures import build
from sample_models.paper_networks import NETWORKS
from tools.bench.report import memory
from tools.bench.submodels import SEED, keep_freed_memory, made
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import HOST
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.techniques import TECHNIQUES, name_of
from unifiednn_core.techniques.live_bytes import LiveBytes

Asked = Mapping[str, Any]
VARIANTS: Mapping[str, Sequence[Asked]] = {
    "compression": ({}, {"bfloat16": True}),
    "virtual_nodes": ({"nodes": 2}, {"nodes": 8}),
    "dropit": ({"keep": 0.1}, {"keep": 0.2}, {"keep": 0.1, "form": "published"}),
}
BATCHES = {"lenet": 128, "resnet18": 64, "xlm_roberta": 32}
"""Networks, narrowed for a CPU, and their batch sizes."""
PLAIN = "plain"
_STEPS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What one sub-model left behind."""

    sha256: str
    step_s: float
    """Median, in seconds of the processor."""
    step_bytes: int
    """Most that a step needs, without weights, gradients, optimizer state and data; 0 if it was not counted."""
    rest_bytes: int
    """Weights and optimizer state in memory while others step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One technique on one network."""

    network: str
    technique: str
    exact: bool
    """As the technique promises."""
    without: Trained
    given: Trained
    same_alone: bool
    """Whether it has the same bits alone and beside the plain one."""

    @property
    def holds(self) -> bool:
        """Whether the bits are as promised."""
        return self.same_alone and (not self.exact or self.without.sha256 == self.given.sha256)


def measure() -> list[Row]:
    """Measure all techniques on all networks."""
    keep_freed_memory()
    torch.set_num_threads(1)
    rows = []
    for network in BATCHES:
        plain = _trained(network, {PLAIN: {}}, counts=True)[PLAIN]
        for technique in TECHNIQUES:
            for variant in VARIANTS.get(name_of(technique), ({},)):
                asked = {"name": name_of(technique), **variant}
                alone = _trained(network, {"given": asked}, counts=True)["given"]
                both = _trained(network, {PLAIN: {}, "given": asked}, counts=False)
                told = ", ".join([technique.title, *(f"{name} {value}" for name, value in variant.items())])
                rows.append(
                    Row(
                        network=network,
                        technique=told,
                        exact=technique.model_validate(asked).exact,
                        without=_with_peak(both[PLAIN], plain),
                        given=_with_peak(both["given"], alone),
                        same_alone=(alone.sha256, plain.sha256) == (both["given"].sha256, both[PLAIN].sha256),
                    )
                )
    return rows


def _with_peak(beside: Trained, alone: Trained) -> Trained:
    return Trained(**asdict(beside) | {"step_bytes": alone.step_bytes})


def _trained(network: str, asked: Mapping[str, Asked], *, counts: bool) -> dict[str, Trained]:
    """Train sub-models by name, each with at most one technique, in turns of one step."""
    known = NETWORKS[network]
    like = {"epochs": 2, "batch_size": BATCHES[network], "learning_rate": 0.01, "optimizer": "adam"}
    given = {name: like | {"techniques": [one] if one else []} for name, one in asked.items()}
    parts = made(partial(build, known.architecture, known.narrow), _data(network), given)
    watch = _Watch(LiveBytes() if counts else None)
    policy = policy_named("round_robin", {"unit": "steps", "amount": 1})
    engine = Engine(HybridModel(parts), policy, device=HOST, threads=1, report=watch.take)
    watch.footprints = engine.footprints
    with watch.live or nullcontext():
        engine.run()
    return {name: watch.trained(name) for name in asked}


def _data(network: str) -> Dataset:
    """Drawn at random: no figure here depends on what is learned."""
    known, generator = NETWORKS[network], torch.Generator().manual_seed(SEED)
    shape = (_STEPS * BATCHES[network], *known.sample["cpu"])
    words = int(known.narrow.get("vocabulary", 0))
    inputs = torch.randint(2, words, shape, generator=generator) if words else torch.randn(shape, generator=generator)
    return Dataset.of(inputs, torch.randint(0, known.narrow["classes"], shape[:1], generator=generator))


class _Watch:
    """Notes the reports of an engine: seconds and bytes of each step, and how each sub-model ended."""

    def __init__(self, live: LiveBytes | None):
        self.live = live
        self.footprints: Callable[[], Mapping[str, Any]] = dict
        self._sha256: dict[str, str] = {}
        self._step_s: dict[str, list[float]] = {}
        self._step_bytes: dict[str, list[int]] = {}
        self._rest_bytes: dict[str, int] = {}
        self._since_s = time.thread_time()

    def take(self, report: Report) -> None:
        """Note one report."""
        if isinstance(report, Stepped):
            self._step_s.setdefault(report.submodel, []).append(time.thread_time() - self._since_s)
            if self.live is not None and self.live.timeline:
                peak_bytes = max(self.live.timeline) - self.live.current_bytes
                self._step_bytes.setdefault(report.submodel, []).append(peak_bytes)
            for name, one in self.footprints().items():
                if name != report.submodel:
                    self._rest_bytes[name] = one.weights_bytes + one.optimizer_bytes if one.placed else 0
        elif isinstance(report, Ended):
            if report.cause:
                raise RuntimeError(f"{report.submodel}: {report.cause}")
            self._sha256[report.submodel] = state_sha256(report.state_dict or {})
        if self.live is not None:
            self.live.timeline = []
        self._since_s = time.thread_time()

    def trained(self, name: str) -> Trained:
        """Figures of one; its first step, which loads kernels and makes the optimizer's state, does not count."""
        return Trained(
            sha256=self._sha256[name],
            step_s=median(self._step_s[name][1:]),
            step_bytes=max(self._step_bytes.get(name, [0, 0])[1:]),
            rest_bytes=self._rest_bytes.get(name, 0),
        )


def described(rows: Sequence[Row]) -> dict[str, Any]:
    """Table and figures."""
    cells = [
        (
            f"{row.network}, {BATCHES[row.network]}",
            row.technique,
            *(_pair(getattr(row.without, name), getattr(row.given, name)) for name in ("step_bytes", "rest_bytes")),
            f"{row.given.step_s / row.without.step_s:.2f}",
            "the same" if row.without.sha256 == row.given.sha256 else "**differ**" if row.exact else "lossy",
            "yes" if row.holds else "**no**",
        )
        for row in rows
    ]
    heads = ("network, batch", "technique", "memory of a step", "between turns", "times the seconds", "bits", "holds")
    return {
        "about": "What each technique saves and costs, beside the same network without it.",
        "passed": all(row.holds for row in rows),
        "notes": ["Promised: an exact technique leaves every bit, and all train alone as they do beside others."],
        "tables": [{"title": "Without → with the technique:", "heads": heads, "rows": cells}],
        "measured": [asdict(row) for row in rows],
    }


def _pair(without: int, given: int) -> str:
    return f"{memory([without])} → {memory([given])} ({given / without - 1:+.0%})" if without else memory([given])


if __name__ == "__main__":
    json.dump(described(measure()), sys.stdout)
