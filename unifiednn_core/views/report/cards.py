"""The verdict as HTML: one card for each baseline, every ratio on the same neutral scale."""

from html import escape

from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.spec.run import ALL_BASELINES
from unifiednn_core.views.comparison import Arm, Comparison, Spread, Verdict
from unifiednn_core.views.report import words
from unifiednn_core.views.report.markup import arm_badge, faint

MOST_RATIO = 2.0
"""Right end of the scale; its left end is 0, so that "equal" is in the middle."""


_SCALE_HEAD = (
    '<div class="u-ratio-head" aria-hidden="true"><span></span><span></span>'
    "<span><i>less</i><i>equal</i><i>more</i></span></div>"
)


def cards(comparison: Comparison) -> str:
    """All cards, side by side where there is room."""
    shown = [
        card(comparison.verdicts[mode], comparison.hybrid, comparison.baselines.get(mode))
        for mode in ALL_BASELINES
        if mode in comparison.verdicts
    ]
    return f'<div class="u-cards">{"".join(shown)}</div>'


def card(verdict: Verdict, hybrid: Arm, baseline: Arm | None) -> str:
    """What the hybrid saved or cost against one baseline, or why there is no verdict."""
    head = f'<h3>Hybrid against {arm_badge(verdict.mode)}</h3><p class="u-small u-faint">{words.HOW[verdict.mode]}</p>'
    if verdict.withheld_because:
        body = f'<div class="u-withheld" role="status"><b>No verdict</b><p>{escape(verdict.withheld_because)}</p></div>'
        body += _causes(baseline)
    else:
        body = _SCALE_HEAD + "".join(_line(quantity, verdict, hybrid, baseline) for quantity in words.QUANTITIES)
    notes = "".join(f"<p class='u-small'>{escape(note)}</p>" for note in verdict.notes)
    weights = f'<p class="u-weights">{escape(words.weights(verdict))}</p>'
    return f'<section class="u-card">{head}{body}{weights}{notes}</section>'


def figure_text(value: float | None, field: str) -> str:
    """A figure of an arm with its unit."""
    if value is None:
        return memory_text(None)
    return memory_text(round(value)) if field.endswith("_bytes") else duration_text(value)


def _line(quantity: words.Measure, verdict: Verdict, hybrid: Arm, baseline: Arm | None) -> str:
    ratio: Spread | None = getattr(verdict, quantity.ratio)
    if ratio is None:
        return ""
    sentence = words.difference(ratio, quantity, verdict.mode)
    spreads: list[Spread | None] = [getattr(arm, quantity.figure) for arm in (hybrid, baseline) if arm is not None]
    medians = [None if spread is None else spread.median for spread in spreads]
    both = " against ".join(figure_text(median, quantity.figure) for median in medians)
    return (
        f'<div class="u-ratio"><div class="u-ratio-name" title="{escape(quantity.meaning)}">{quantity.title}</div>'
        f'<div class="u-ratio-sign">{words.signed(ratio)}</div>{scale(ratio, sentence)}'
        f'<div class="u-ratio-words">{escape(sentence)}</div>'
        f'<div class="u-ratio-more">{faint(f"{both} · {words.spread(ratio)}")}</div></div>'
    )


def scale(ratio: Spread, label: str) -> str:
    """A ratio on a scale from 0 to 2 with "equal" in its middle: a bar from there, and a line over the spread."""
    at, low, high = (100 * min(value, MOST_RATIO) / MOST_RATIO for value in (ratio.median, ratio.low, ratio.high))
    start, width = min(at, 50.0), abs(at - 50.0)
    spread = f'<s style="left:{low:.2f}%;width:{max(high - low, 0.0):.2f}%"></s>' if high > low else ""
    return (
        f'<div class="u-scale" role="img" aria-label="{escape(label)}"><i style="left:{start:.2f}%;width:{width:.2f}%">'
        f'</i>{spread}<b style="left:{at:.2f}%"></b></div>'
    )


def _causes(baseline: Arm | None) -> str:
    causes = [(s.name, s.cause) for s in baseline.submodels if s.cause] if baseline else []
    return "".join(f"<p class='u-small'><b>{escape(name)}</b>: {escape(cause)}</p>" for name, cause in causes)
