"""The verdict in sentences and as HTML cards. Gains, losses and ties get the same kind of sentence and scale."""

from dataclasses import replace
from typing import NamedTuple

from unifiednn_core.base.units import duration_text, energy_text, memory_text
from unifiednn_core.preflight.report import OracleReport
from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.views.comparison import Arm, Comparison, Spread, Verdict
from unifiednn_core.views.markup import arm_badge, bold, faint, text
from unifiednn_core.views.techniques import line

HOW: dict[Mode, str] = {
    "hybrid": "all in one process",
    "concurrent": "one plain PyTorch process per sub-model, all at once",
    "sequential": "one plain PyTorch process per sub-model, one after another",
}
LOSSY = "Weights: not compared, because a lossy technique trained them. Test loss and accuracy judge them."
TECHNIQUES = "The hybrid trains with techniques that need less memory; no baseline has them."
NO_DIFFERENCE = 0.005
"""Smaller differences count as equal: they would read 0 %."""


class Measure(NamedTuple):
    """One figure of a verdict, with the words for it."""

    ratio: str
    """Field of a `Verdict`."""
    figure: str
    """Field of an `Arm`."""
    title: str
    meaning: str
    less: str
    """Words after "54 %" if the hybrid has less."""
    more: str


QUANTITIES = (
    Measure(
        "memory_ratio",
        "memory_bytes",
        "Memory",
        "peak of all processes together",
        "less memory than",
        "more memory than",
    ),
    Measure(
        "makespan_ratio", "makespan_s", "Makespan", "launch to last model delivered", "less time than", "more time than"
    ),
    Measure(
        "mean_turnaround_ratio",
        "mean_turnaround_s",
        "Mean turnaround",
        "submission to model delivered, mean of all; a baseline counts from its launch",
        "shorter than",
        "longer than",
    ),
    Measure(
        "cpu_seconds_ratio",
        "cpu_s",
        "CPU seconds",
        "of all processes and cores",
        "less CPU time than",
        "more CPU time than",
    ),
    Measure(
        "gpu_seconds_ratio",
        "gpu_s",
        "GPU seconds",
        "in which the GPU was busy",
        "less GPU time than",
        "more GPU time than",
    ),
)
MOST_RATIO = 2.0
"""Right end of the scale; its left end is 0, so that "equal" is in the middle."""
_ORACLE = {
    "same": "The loader of torch.export gives identical bits",
    "differs": "The loader of torch.export gives different bits",
    "none": "Not compared with the loader of torch.export",
    "not applicable": "Not applicable to files other than .pt2",
}
_SCALE = ("less", "equal", "more")


def cards(comparison: Comparison) -> str:
    """All cards, side by side if the window is wide enough."""
    shown = [
        card(verdict, comparison.hybrid, comparison.baselines.get(mode))
        for mode in BASELINES
        if (verdict := comparison.verdicts.get(mode))
    ]
    return f'<div class="u-cards">{"".join(shown)}</div>{techniques(comparison)}'


def techniques(comparison: Comparison) -> str:
    """Which sub-models of the hybrid train with techniques; empty without any."""
    each = [(part.name, line(part.techniques)) for part in comparison.hybrid.submodels if part.techniques]
    told = "".join(f"<li>{bold(name)}: {text(used)}</li>" for name, used in each)
    head = text(TECHNIQUES)
    return f'<div class="u-small u-techniques"><p>{head}</p><ul>{told}</ul></div>' if told else ""


def given(comparison: Comparison) -> str:
    """Cards of the verdicts that are given; empty without any."""
    known = {mode: verdict for mode, verdict in comparison.verdicts.items() if not verdict.withheld_because}
    return cards(replace(comparison, verdicts=known)) if known else ""


def card(verdict: Verdict, hybrid: Arm, baseline: Arm | None) -> str:
    """Savings or costs of the hybrid against one baseline, or the reason for giving no verdict."""
    how, none = text(HOW[verdict.mode]), text("No verdict")
    head = f'<h2>{text("Hybrid against")} {arm_badge(verdict.mode)}</h2><p class="u-small u-faint">{how}</p>'
    if verdict.withheld_because:
        body = f'<div class="u-withheld" role="status"><b>{none}</b><p>{text(verdict.withheld_because)}</p></div>'
        body += _causes(baseline)
    else:
        body = _scale_head() + "".join(_line(quantity, verdict, hybrid, baseline) for quantity in QUANTITIES)
    notes = "".join(f"<p class='u-small'>{text(note)}</p>" for note in verdict.notes)
    weights = f'<p class="u-weights">{text(weights_text(verdict))}</p>'
    read = "".join(f"<p class='u-small'>{text(line)}</p>" for line in oracle_lines(baseline))
    return f'<section class="u-card">{head}{body}{weights}{read}{notes}</section>'


def oracle_lines(baseline: Arm | None) -> list[str]:
    """Say what torch itself reads from the files of the networks, one line for each answer."""
    names: dict[OracleReport, list[str]] = {}
    for part in () if baseline is None else baseline.submodels:
        if part.oracle is not None:
            names.setdefault(part.oracle, []).append(part.name)
    return [f"{_ORACLE[report.answer]} ({', '.join(who)}): {report.text}." for report, who in names.items()]


def figure_text(value: float | None, field: str) -> str:
    """A figure of an arm with its unit."""
    if value is None:
        return memory_text(None)
    if field.endswith("_j"):
        return energy_text(value)
    return memory_text(round(value)) if field.endswith("_bytes") else duration_text(value)


def _line(quantity: Measure, verdict: Verdict, hybrid: Arm, baseline: Arm | None) -> str:
    ratio: Spread | None = getattr(verdict, quantity.ratio)
    if ratio is None:
        return ""
    sentence = difference(ratio, quantity, verdict.mode)
    spreads: list[Spread | None] = [getattr(arm, quantity.figure) for arm in (hybrid, baseline) if arm is not None]
    medians = [None if spread is None else spread.median for spread in spreads]
    both = " against ".join(figure_text(median, quantity.figure) for median in medians)
    title, meaning = text(quantity.title), text(quantity.meaning)
    return (
        f'<div class="u-ratio"><div class="u-ratio-name" title="{meaning}">{title}</div>'
        f'<div class="u-ratio-sign">{signed_text(ratio)}</div>{scale(ratio, sentence)}'
        f'<div class="u-ratio-words">{text(sentence)}</div>'
        f'<div class="u-ratio-more">{faint(f"{both} · {spread_text(ratio)}")}</div></div>'
    )


def _scale_head() -> str:
    words = "".join(f"<i>{text(word)}</i>" for word in _SCALE)
    return f'<div class="u-ratio-head" aria-hidden="true"><span></span><span></span><span>{words}</span></div>'


def scale(ratio: Spread, label: str) -> str:
    """A ratio on a scale from 0 to 2 with "equal" in its middle: a bar from there, and a line over the spread."""
    at, low, high = (100 * min(value, MOST_RATIO) / MOST_RATIO for value in (ratio.median, ratio.low, ratio.high))
    start, width = min(at, 50.0), abs(at - 50.0)
    spread = f'<s style="left:{low:.2f}%;width:{max(high - low, 0.0):.2f}%"></s>' if high > low else ""
    return (
        f'<div class="u-scale" role="img" aria-label="{text(label)}"><i style="left:{start:.2f}%;width:{width:.2f}%">'
        f'</i>{spread}<b style="left:{at:.2f}%"></b></div>'
    )


def _causes(baseline: Arm | None) -> str:
    causes = [(s.name, s.cause) for s in baseline.submodels if s.cause] if baseline else []
    return "".join(f"<p class='u-small'><b>{text(name)}</b>: {text(cause)}</p>" for name, cause in causes)


def difference(ratio: Spread, quantity: Measure, mode: Mode) -> str:
    """Sentence about a ratio hybrid / baseline: "54 % less memory than concurrent"."""
    change = ratio.median - 1
    if ratio.low < 1 < ratio.high:  # some repeats are above 1 and others below
        return f"no clear difference from {mode}"
    if abs(change) < NO_DIFFERENCE:
        return f"no difference from {mode}"
    words = quantity.less if change < 0 else quantity.more
    return f"{100 * abs(change):.0f} % {words} {mode}"


def signed_text(ratio: Spread) -> str:
    """Difference with its sign: "-54 %", "+12 %", and "±0 %" for none."""
    change = ratio.median - 1
    if abs(change) < NO_DIFFERENCE:
        return "\N{PLUS-MINUS SIGN}0 %"
    return f"{'+' if change > 0 else chr(0x2212)}{100 * abs(change):.0f} %"


def spread_text(ratio: Spread) -> str:
    """Ratio with its spread: "ratio 0.46, 0.45 to 0.47 in 5 repeats"."""
    if len(ratio.values) == 1:
        return f"ratio {ratio.median:.2f}, measured once"
    return f"ratio {ratio.median:.2f}, {ratio.low:.2f} to {ratio.high:.2f} in {len(ratio.values)} repeats"


def weights_text(verdict: Verdict) -> str:
    """Whether all arms trained the same weights."""
    if verdict.identical_weights is None:
        return LOSSY if verdict.lossy else "Weights: not compared yet."
    if verdict.identical_weights and verdict.lossy:
        return "Weights: identical, every bit of every sub-model without lossy techniques."
    if verdict.identical_weights:
        return "Weights: identical, every bit of every sub-model."
    return "Weights: different. The arms did not train the same models."
