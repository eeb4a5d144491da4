"""Measurements as a document. All functions but `environment` are pure."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import psutil

from sample_models.paper_networks import NETWORKS
from tools.bench.prepare import Prepared
from tools.bench.runner import BenchRepeats
from tools.bench.scenarios import Case, Scenario, Threshold
from tools.machine import commit
from unifiednn_core.compare.fingerprint import machine
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.comparison import ARM_FIGURES, Arm, Comparison, Spread, Verdict

COMMIT = "UNIFIEDNN_COMMIT"
"""Environment variable with the commit, for machines without git."""
RATIOS = ("memory", "makespan", "mean_turnaround", "cpu_seconds", "gpu_seconds")
_PART_FIGURES = ("wait_s", "service_s", "turnaround_s", "cpu_s")
BUSY = 0.15
PIPEDREAM = "pipedream"
Document = dict[str, Any]


def environment(command: str, slot: str) -> Document:
    """Command, commit, date, machine, and its load over one second."""
    facts = {name: fact for name, fact in machine(slot).items() if name != "host"}
    return {
        "command": command,
        "commit": commit() or os.environ.get(COMMIT),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": {**facts, "os": platform.platform(terse=True)},
        "busy_before": psutil.cpu_percent(interval=1.0) / 100,
    }


def document(scenario: Scenario, measured: BenchRepeats, asked: Mapping[str, Any], repeats_asked: int) -> Document:
    """The result of a workload; `asked` is the `environment` at its start."""
    cases = [_case(prepared, found, measured) for prepared, found in measured.cases]
    notes = [*scenario.notes, *measured.notes, *dict.fromkeys(note for p, _ in measured.cases for note in p.notes)]
    if asked["busy_before"] > BUSY:
        notes.append(f"The machine was busy before: {asked['busy_before']:.0%} of its cores.")
    thresholds = [
        _held(prepared.case, threshold, found[threshold.hybrid].verdicts[threshold.against])
        for prepared, found in measured.cases
        for threshold in prepared.case.thresholds
    ]
    return {
        "bench": scenario.name,
        "scale": scenario.scale,
        "about": scenario.about,
        **asked,
        "threads": scenario.threads,
        "repeats_asked": repeats_asked,
        "repeats": measured.repeats,
        "complete": measured.repeats == repeats_asked,
        "passed": all(threshold["holds"] is not False for threshold in thresholds) and _all_identical(cases),
        "thresholds": thresholds,
        "notes": notes,
        "cases": cases,
    }


def _all_identical(cases: Sequence[Document]) -> bool:
    verdicts = [v for case in cases for by_mode in case["verdicts"].values() for v in by_mode.values()]
    return all(verdict["identical_weights"] is not False for verdict in verdicts)


def _case(prepared: Prepared, found: Sequence[Comparison], measured: BenchRepeats) -> Document:
    ways = [hybrid.name for hybrid in prepared.case.hybrids]
    return {
        "name": prepared.case.name,
        "arm": prepared.case.arm,
        "device": prepared.spec.device,
        "submodels": {
            task.name: {
                **asdict(task),
                "network": NETWORKS[task.network].title,
                "architecture": NETWORKS[task.network].architecture,
                "parameters": measured.parameters[prepared.case.name][task.name],
            }
            for task in prepared.case.tasks
        },
        "hybrids": {way: _arm(comparison.hybrid) for way, comparison in zip(ways, found, strict=True)},
        "baselines": {mode: _arm(arm) for mode, arm in found[0].baselines.items()},
        "verdicts": {
            way: {mode: _verdict(comparison.verdicts[mode]) for mode in prepared.case.baselines}
            for way, comparison in zip(ways, found, strict=True)
            if prepared.case.arm != PIPEDREAM  # which trains with weights of earlier steps
        },
    }


def _arm(arm: Arm) -> Document:
    """Every figure of every repeat in order; None if one is missing."""
    return {
        "repeats": len(arm.run_ids),
        "problem": arm.problem,
        "memory_source": arm.memory_source,
        "allocator": arm.allocator,
        "lanes": arm.lanes,
        "threads": list(arm.threads),
        "starts": list(arm.starts),
        "start_s": _values(arm.start_s),
        **{name: _values(getattr(arm, name)) for name in ARM_FIGURES},
        "submodels": {
            part.name: {
                **{name: _values(getattr(part, name)) for name in _PART_FIGURES},
                "test_accuracy": part.test_accuracy,
                "train_loss": part.train_loss,
                "state_sha256": list(part.state_sha256),
                "cause": part.cause,
            }
            for part in arm.submodels
        },
    }


def _verdict(verdict: Verdict) -> Document:
    return {
        **{name: _values(getattr(verdict, f"{name}_ratio")) for name in RATIOS},
        "identical_weights": verdict.identical_weights,
        "withheld_because": verdict.withheld_because,
        "notes": list(verdict.notes),
    }


def _held(case: Case, threshold: Threshold, verdict: Verdict) -> Document:
    ratio: Spread | None = getattr(verdict, f"{threshold.figure}_ratio")
    against: Mode = threshold.against
    return {
        "case": case.name,
        "hybrid": case.hybrids[threshold.hybrid].name,
        "against": against,
        "figure": threshold.figure,
        "at_most": threshold.at_most,
        "median": None if ratio is None else round(ratio.median, 4),
        "holds": None if ratio is None else ratio.median <= threshold.at_most,
    }


def _values(spread: Spread | None) -> list[float] | None:
    return None if spread is None else [round(value, 4) for value in spread.values]
