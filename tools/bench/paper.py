"""The paper's own figures, from a copy of its printed numbers. Pure functions, but for reading the file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).with_name("paper_figures.csv")
EXPERIMENTS: Mapping[str, tuple[str, ...]] = {
    "paper-vision": ("E1_",),
    "paper-mixed": ("E2_",),
    "paper-schedulers": ("E3_",),
}
"""Rows that belong to a bench, by the beginning of their experiment."""
_BASELINE, _OURS = "PyTorch_concurrent", "UnifiedNN"
_SHOWN = ("train_time", "total_time", "peak_gpu_mem")


@dataclass(frozen=True, slots=True)
class Figure:
    """One printed number."""

    experiment: str
    model: str
    system: str
    metric: str
    value: float
    unit: str

    @property
    def text(self) -> str:
        """Number and unit, with what the paper says of its exactness."""
        unit, _, exactness = self.unit.partition("_")
        word = {"approx": "about ", "upper_bound": "less than "}.get(exactness, "")
        return f"{word}{self.value:,g} {unit}"


def read() -> tuple[Figure, ...]:
    """All printed numbers."""
    with FIGURES.open(encoding="utf-8", newline="") as file:
        return tuple(
            Figure(row["experiment"], row["model"], row["system"], row["metric"], float(row["value"]), row["unit"])
            for row in csv.DictReader(file)
        )


HEADS = ("experiment in the paper", "network", "figure", "PyTorch, concurrent", "UnifiedNN", "ratio")


def rows(figures: Sequence[Figure], bench: str) -> list[tuple[str, ...]]:
    """Times and memory of the experiment that a bench repeats, the baseline beside the hybrid."""
    own = [figure for figure in figures if figure.experiment.startswith(EXPERIMENTS.get(bench, ()))]
    shown = [figure for figure in own if figure.metric in _SHOWN]
    baselines = {(figure.model, figure.metric): figure for figure in shown if figure.system == _BASELINE}
    return [
        (
            figure.experiment,
            figure.model,
            figure.metric.replace("_", " "),
            "" if (baseline := baselines.get((figure.model, figure.metric))) is None else baseline.text,
            figure.text,
            _ratio(figure, baseline),
        )
        for figure in shown
        if figure.system == _OURS
    ]


def _ratio(ours: Figure, baseline: Figure | None) -> str:
    if baseline is None:
        return ""
    seconds = {"min": 60.0, "s": 1.0}
    ours_s, baseline_s = (seconds.get(figure.unit.partition("_")[0], 1.0) * figure.value for figure in (ours, baseline))
    return f"{ours_s / baseline_s:.2f}"
