"""The paper's own figures, from a copy of its printed numbers."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

FIGURES = Path(__file__).with_name("paper_figures.csv")
EXPERIMENTS: Mapping[str, str] = {
    "paper-vision": "E1_",
    "paper-mixed": "E2_",
    "paper-schedulers": "E3_",
    "figure-14": "E4_",
}
"""Beginning of the experiment that a bench repeats."""
_SHOWN = ("train_time", "total_time", "peak_gpu_mem")
_EXACTNESS = {"approx": "about ", "upper_bound": "less than "}


def printed(bench: str) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: times and memory of the experiment that a bench repeats, by system; no rows without one."""
    by_figure: dict[tuple[str, str, str], dict[str, str]] = {}
    systems = dict[str, None]()
    with FIGURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["experiment"].startswith(EXPERIMENTS.get(bench, "none")) and row["metric"] in _SHOWN:
                figure = (row["experiment"], row["model"], row["metric"].replace("_", " "))
                by_figure.setdefault(figure, {})[row["system"]] = _text(float(row["value"]), row["unit"])
                systems[row["system"]] = None
    heads = ("experiment in the paper", "network", "figure", *systems)
    return heads, [(*figure, *(said.get(system, "") for system in systems)) for figure, said in by_figure.items()]


def _text(value: float, unit: str) -> str:
    """Number and unit, with what the paper says of its exactness."""
    unit, _, exactness = unit.partition("_")
    return f"{_EXACTNESS.get(exactness, '')}{value:,g} {unit}"
