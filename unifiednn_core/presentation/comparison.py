"""Comparisons as the document of `unifiednn compare --json`."""

from collections.abc import Mapping

from unifiednn_core.views.comparison import Comparison, Spread, Verdict

_RATIOS = ("memory_ratio", "makespan_ratio", "mean_turnaround_ratio", "cpu_seconds_ratio", "gpu_seconds_ratio")
_FIGURES = ("memory_bytes", "makespan_s", "mean_turnaround_s", "cpu_s", "gpu_s")


def comparison_document(comparison: Comparison, documents: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """Document of a comparison; `documents` are those of its runs, as of `train --json`, by id.

    `hybrid` and `baselines` are the last repeats; `arms` holds the figures of every repeat.
    """
    arms = {"hybrid": comparison.hybrid, **comparison.baselines}
    return {
        "name": comparison.name,
        "fingerprint": comparison.fingerprint,
        "environment": comparison.environment,
        "hybrid": documents[comparison.hybrid.run_ids[-1]],
        "baselines": {mode: documents[arm.run_ids[-1]] for mode, arm in comparison.baselines.items()},
        "arms": {
            mode: {
                "run_ids": list(arm.run_ids),
                "problem": arm.problem,
                "memory_source": arm.memory_source,
                **{name: _values(getattr(arm, name)) for name in _FIGURES},
                "state_sha256": {part.name: list(part.state_sha256) for part in arm.submodels},
            }
            for mode, arm in arms.items()
        },
        "verdict": {mode: _verdict(verdict) for mode, verdict in comparison.verdicts.items()},
    }


def _verdict(verdict: Verdict) -> dict[str, object]:
    """Each ratio is the median over repeats; `spread` has all of them."""
    spreads: dict[str, Spread | None] = {name: getattr(verdict, name) for name in _RATIOS}
    return {
        **{name: None if spread is None else spread.median for name, spread in spreads.items()},
        "identical_weights": verdict.identical_weights,
        "withheld_because": verdict.withheld_because,
        "notes": list(verdict.notes),
        "spread": {name: _values(spread) for name, spread in spreads.items()},
    }


def _values(spread: Spread | None) -> list[float] | None:
    return None if spread is None else list(spread.values)
