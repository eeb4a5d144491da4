"""Sentences of a verdict. Gains, losses and ties get the same kind of sentence."""

from dataclasses import dataclass

from unifiednn_core.spec.run import Mode
from unifiednn_core.views.comparison import Spread, Verdict

HOW: dict[Mode, str] = {
    "hybrid": "all in one process",
    "concurrent": "one plain PyTorch process per sub-model, all at once",
    "sequential": "one plain PyTorch process per sub-model, one after another",
    "concurrent-resident": "like concurrent, with data on the device instead of a DataLoader",
    "sequential-resident": "like sequential, with data on the device instead of a DataLoader",
}
NO_DIFFERENCE = 0.005
"""Smaller shares count as equal: they would read 0 %."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a verdict, with the words for it."""

    ratio: str
    """Field of a `Verdict`."""
    figure: str
    """Field of an `Arm`."""
    title: str
    meaning: str
    less: str
    """Words after "54 %" where the hybrid has less of it."""
    more: str


QUANTITIES = (
    Measure("memory_ratio", "memory_bytes", "Memory", "peak of all processes together",
            "less memory than", "more memory than"),
    Measure("makespan_ratio", "makespan_s", "Makespan", "launch to last model delivered",
            "less time than", "more time than"),
    Measure("mean_turnaround_ratio", "mean_turnaround_s", "Mean turnaround",
            "submission to model delivered, mean of all; a baseline counts from its launch",
            "shorter than", "longer than"),
    Measure("cpu_seconds_ratio", "cpu_s", "CPU seconds", "of all processes and cores",
            "less CPU time than", "more CPU time than"),
    Measure("gpu_seconds_ratio", "gpu_s", "GPU seconds", "in which the GPU was busy",
            "less GPU time than", "more GPU time than"),
)  # fmt: skip


def difference(ratio: Spread, quantity: Measure, mode: Mode) -> str:
    """Sentence about a ratio hybrid / baseline: "54 % less memory than concurrent"."""
    change = ratio.median - 1
    if ratio.low < 1 < ratio.high:  # some repeats are above 1 and others below
        return f"no clear difference from {mode}"
    if abs(change) < NO_DIFFERENCE:
        return f"no difference from {mode}"
    words = quantity.less if change < 0 else quantity.more
    return f"{100 * abs(change):.0f} % {words} {mode}"


def signed(ratio: Spread) -> str:
    """Difference with its sign: "-54 %", "+12 %", and "±0 %" for none."""
    change = ratio.median - 1
    if abs(change) < NO_DIFFERENCE:
        return "\N{PLUS-MINUS SIGN}0 %"
    return f"{'+' if change > 0 else chr(0x2212)}{100 * abs(change):.0f} %"


def spread(ratio: Spread) -> str:
    """Ratio with its spread: "ratio 0.46, 0.45 to 0.47 in 5 repeats"."""
    if len(ratio.values) == 1:
        return f"ratio {ratio.median:.2f}, measured once"
    return f"ratio {ratio.median:.2f}, {ratio.low:.2f} to {ratio.high:.2f} in {len(ratio.values)} repeats"


def weights(verdict: Verdict) -> str:
    """Whether all arms trained the same weights."""
    if verdict.identical_weights is None:
        return "Weights: not compared yet."
    if verdict.identical_weights:
        return "Weights: identical, every bit of every sub-model."
    return "Weights: different. The arms did not train the same models."
