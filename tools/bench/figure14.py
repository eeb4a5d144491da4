"""The paper's figure 14: PipeDream, DropIT, UnifiedNN, and UnifiedNN with DropIT.

PipeDream and DropIT train each network in its own process, all at once, as the paper trained them. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tools.bench import report
from tools.bench.paper import Figure
from unifiednn_core.spec.run import PIPEDREAM, PIPEDREAM_STAGES, TECHNIQUES_ALONE

if TYPE_CHECKING:
    from tools.bench.scenarios import Case, Task

NAME = "figure-14"
KEEP = 0.1
PLAIN, DROPPED, PUBLISHED = "without DropIT", "with DropIT", "with DropIT as published"
ABOUT = (
    "The paper's figure 14: LeNet, ResNet18 and the ResNet that it calls ResNet50 under PipeDream, under DropIT, as a"
    " hybrid, and as a hybrid with DropIT."
)
NOTES = (
    f"PipeDream cuts each network into {PIPEDREAM_STAGES} stages by measured times and trains them on one device, where"
    " nothing runs at once: it shows what its versions of weights and its batches under way cost there. The paper does"
    " not say how it ran PipeDream, which is made for several devices, on its one GPU.",
    f"DropIT keeps {KEEP:.0%} of the elements, in two forms: as published, each layer by itself, which saves nothing"
    " where ReLU keeps the same tensor; and packed once for all operators that save a tensor. The paper does not say"
    " what share it kept.",
    "PipeDream trains with weights of earlier steps and DropIT with approximate gradients of weights: they are judged"
    " by their accuracy, not by their bits.",
)
CPU_NOTE = (
    "Learning rates are not those of table 2, with which few steps on a part of the data learn nothing; so accuracies"
    " differ enough from chance to be compared."
)
_SYSTEMS: Mapping[str, tuple[str, str | None]] = {
    "PyTorch, concurrent": (PLAIN, "concurrent"),
    "PipeDream": (PLAIN, PIPEDREAM),
    "DropIT, as published": (PUBLISHED, TECHNIQUES_ALONE),
    "DropIT": (DROPPED, TECHNIQUES_ALONE),
    "UnifiedNN": (PLAIN, None),
    "UnifiedNN + DropIT, as published": (PUBLISHED, None),
    "UnifiedNN + DropIT": (DROPPED, None),
}
"""Arms in the order of the table: their case and, of a baseline, their mode."""
_PRINTED = ("PipeDream", "DropIT", "UnifiedNN", "UnifiedNN+DropIT")


def cases(like: Case, tasks: Sequence[Task]) -> tuple[Case, ...]:
    """The arms as three cases, one for each spec."""
    plain = replace(
        like,
        name=PLAIN,
        tasks=tuple(tasks),
        hybrids=like.hybrids[:1],
        thresholds=(),
        baselines=("concurrent", PIPEDREAM),
    )
    forms = {DROPPED: "deduplicated", PUBLISHED: "published"}
    dropped = (
        replace(
            plain,
            name=name,
            baselines=(TECHNIQUES_ALONE,),
            tasks=tuple(replace(task, techniques=({"name": "dropit", "keep": KEEP, "form": form},)) for task in tasks),
        )
        for name, form in forms.items()
    )
    return plain, *dropped


def tables(cases: Sequence[Mapping[str, Any]], figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """All arms in one table, and what the paper prints, from the cases of a result."""
    arms = {system: arm for system, (case, mode) in _SYSTEMS.items() if (arm := _arm(cases, case, mode)) is not None}
    names = list(next(iter(arms.values()))["submodels"]) if arms else []
    heads = [
        "arm",
        "peak memory",
        "makespan",
        "CPU seconds",
        *(f"time of {name}" for name in names),
        *(f"accuracy of {name}" for name in names),
        "weights of plain PyTorch",
    ]
    plain = arms.get("PyTorch, concurrent")
    return [
        {
            "title": "Medians (least to greatest):",
            "heads": heads,
            "rows": [_row(system, arm, plain) for system, arm in arms.items()],
        },
        {"title": "What the paper prints:", "heads": ("figure", *_PRINTED), "rows": list(_printed(figures))},
    ]


def _arm(cases: Sequence[Mapping[str, Any]], case: str, mode: str | None) -> Mapping[str, Any] | None:
    arms = [
        one["hybrids"].values() if mode is None else [one["baselines"].get(mode)]
        for one in cases
        if one["name"] == case
    ]
    return next((arm for found in arms for arm in found), None)


def _row(system: str, arm: Mapping[str, Any], plain: Mapping[str, Any] | None) -> tuple[str, ...]:
    parts = arm["submodels"]
    equal = plain is not None and all(
        {*part["state_sha256"]} == {*plain["submodels"][name]["state_sha256"]} for name, part in parts.items()
    )
    return (
        system,
        report.memory(arm["memory_bytes"]),
        report.seconds(arm["makespan_s"]),
        report.seconds(arm["cpu_s"]),
        *(report.seconds(part["service_s"]) for part in parts.values()),
        *(report.percent(part["test_accuracy"]) for part in parts.values()),
        "yes" if equal else "no",
    )


def _printed(figures: Sequence[Figure]) -> Iterator[tuple[str, ...]]:
    own = [one for one in figures if one.experiment.startswith("E4_") and one.system in _PRINTED]
    for model, metric in dict.fromkeys((one.model, one.metric) for one in own):
        by_system = {one.system: one.text for one in own if (one.model, one.metric) == (model, metric)}
        if metric in ("peak_gpu_mem", "train_time"):
            yield f"{model}, {metric.replace('_', ' ')}", *(by_system.get(system, "") for system in _PRINTED)
