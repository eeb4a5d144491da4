"""The sentences of a verdict. Gains, losses and ties are said in the same way."""

from dataclasses import dataclass

from unifiednn_core.views.comparison import Mode, Spread, Verdict

ARMS: dict[Mode, str] = {"hybrid": "Hybrid", "concurrent": "Concurrent", "sequential": "Sequential"}
HOW: dict[Mode, str] = {
    "hybrid": "all in one process",
    "concurrent": "one plain PyTorch process for each sub-model, all at once",
    "sequential": "one plain PyTorch process for each sub-model, one after the other",
}
NO_DIFFERENCE = 0.005
"""A smaller difference than this share is none: it would be shown as 0 %."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One figure of a verdict."""

    ratio: str
    """Its field in `Verdict`."""
    figure: str
    """The field of an `Arm` that is compared."""
    title: str
    meaning: str
    less: str
    """What follows "54 %" where the hybrid has less of it."""
    more: str


QUANTITIES = (
    Quantity(
        "memory_ratio",
        "memory_bytes",
        "Memory",
        "peak of all processes together",
        "less memory than",
        "more memory than",
    ),
    Quantity(
        "makespan_ratio", "makespan_s", "Makespan", "launch to last model handed back", "less time than", "slower than"
    ),
    Quantity(
        "mean_turnaround_ratio",
        "mean_turnaround_s",
        "Mean turnaround",
        "launch to a model handed back, mean of all",
        "shorter than",
        "longer than",
    ),
    Quantity(
        "cpu_seconds_ratio",
        "cpu_s",
        "CPU seconds",
        "of all processes and cores",
        "less CPU time than",
        "more CPU time than",
    ),
    Quantity(
        "gpu_seconds_ratio",
        "gpu_s",
        "GPU seconds",
        "in which the GPU was busy",
        "less GPU time than",
        "more GPU time than",
    ),
)


def difference(ratio: Spread, quantity: Quantity, mode: Mode) -> str:
    """Sentence about a ratio hybrid / baseline: "54 % less memory than concurrent"."""
    change = ratio.median - 1
    if straddles(ratio):
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


def straddles(ratio: Spread) -> bool:
    """Whether some repeats say more and others less."""
    return ratio.low < 1 < ratio.high


def spread(ratio: Spread) -> str:
    """Ratio with its spread: "ratio 0.46, 0.45 to 0.47 in 5 repeats"."""
    if len(ratio.values) == 1:
        return f"ratio {ratio.median:.2f}, measured once"
    return f"ratio {ratio.median:.2f}, {ratio.low:.2f} to {ratio.high:.2f} in {len(ratio.values)} repeats"


def weights(verdict: Verdict) -> str:
    """Whether merging changed a model."""
    if verdict.identical_weights is None:
        return "Weights: not compared yet."
    if verdict.identical_weights:
        return "Weights: identical, every bit of every sub-model."
    return "Weights: they differ. What was trained is not the same."
