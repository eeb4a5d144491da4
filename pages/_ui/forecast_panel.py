"""What each policy would do, before a start; predicted against actual finish, afterwards."""

import streamlit as st

from pages._ui import frame
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.views import markup, wording
from unifiednn_core.views.estimates import Basis
from unifiednn_core.views.figures import forecast as figures
from unifiednn_core.views.forecast import Counterfactual, PolicyForecast, best, finish_rows
from unifiednn_core.views.runs import RunView

_MADE = "forecast-made"
SHOWN_FINISHES = 4
"""Most sub-models whose finish is in the table of policies; more have a table of their own."""
MOST_BEST = 2
"""With more policies that are best in a figure, none of them is marked: the figure decides nothing."""
BASES: dict[Basis, str] = {
    "measured": "with the seconds of earlier trainings here",
    "timed": "with the steps that the check timed",
    "relative": "not measured: percent of all work, by weights and batch; check it to get seconds",
}
FAIRNESS_HELP = "Fairness is Jain's index of the speed that each sub-model gets: 1 if all are slowed down alike."


def draw(spec: RunSpec | None, policy: str | None = None) -> None:
    """Draw what every policy would do with a spec, and the turns under `policy`, by default that of the spec.

    Draws nothing for a spec that is not complete or that nobody may forecast. Call it below the choice of the policy.
    """
    if spec is None:
        return
    report = frame.service().runs.checked(spec)
    key = (spec.to_json(), None if report is None else report.at_s)
    known, made = st.session_state.get(_MADE, (None, ()))
    if known != key:
        try:
            made = frame.service().runs.forecast(spec, report)
        except UnifiedNNError:  # the check tells
            return
        st.session_state[_MADE] = (key, made)
    chosen = next((one for one in made if one.policy == (policy or spec.policy.name)), None)
    if chosen is None:
        return
    numbers = {part.name: place for place, part in enumerate(spec.submodels)}
    st.html(markup.section("What each policy would do", BASES[chosen.basis]))
    st.html(_policies(made, chosen))
    st.html(figures.gantt(chosen, numbers))
    if len(spec.submodels) > SHOWN_FINISHES:
        with st.expander("Finish of each sub-model", key="forecast-finishes"):
            st.html(_finishes(made, numbers))


def _policies(made: tuple[PolicyForecast, ...], chosen: PolicyForecast) -> str:
    told = figures.seconds_text(chosen)
    least = {figure: names if len(names) <= MOST_BEST else frozenset() for figure, names in best(made).items()}
    turnaround, makespan, fairness, peak = ("Mean turnaround", "Makespan", "Fairness", "Peak memory")
    names = list(chosen.finish_s) if len(chosen.finish_s) <= SHOWN_FINISHES else []
    knows_peaks = any(one.peak_bytes is not None for one in made)  # only once it is checked
    columns = [f"{name} " for name in names]  # a sub-model may be named like another column
    rows = [
        {"Policy": (wording.title(one.policy), one is chosen)}
        | {column: told(one.finish_s[name]) for name, column in zip(names, columns, strict=True)}
        | {
            turnaround: (told(one.mean_turnaround_s), one.policy in least["mean_turnaround_s"]),
            makespan: (told(one.makespan_s), one.policy in least["makespan_s"]),
            fairness: (f"{one.fairness:.2f}", one.policy in least["fairness"]),
        }
        | ({peak: (memory_text(one.peak_bytes), one.policy in least["peak_bytes"])} if knows_peaks else {})
        for one in made
    ]
    looks: markup.Looks = {"Policy": _chosen, **dict.fromkeys((turnaround, makespan, fairness, peak), _marked)}
    caption = "Finish and figures under each policy"
    fairness_note = markup.small(FAIRNESS_HELP)
    table = markup.table(caption, rows, looks, right={*columns, turnaround, makespan, fairness, peak})
    return table + fairness_note


def _chosen(value: tuple[str, bool]) -> str:
    title, is_chosen = value
    return f"{markup.bold(title)} {markup.faint('chosen')}" if is_chosen else markup.text(title)


def _marked(value: tuple[str, bool]) -> str:
    words, is_best = value
    return f"{markup.faint('best')} {markup.bold(words)}" if is_best else markup.text(words)


def _finishes(made: tuple[PolicyForecast, ...], numbers: dict[str, int]) -> str:
    told, heads = figures.seconds_text(made[0]), {one.policy: wording.title(one.policy) for one in made}
    rows = [
        {"Sub-model": (numbers[name], name)} | {heads[one.policy]: told(one.finish_s[name]) for one in made}
        for name in made[0].finish_s
    ]
    looks: markup.Looks = {"Sub-model": markup.signed}
    return markup.table("Finish under each policy", rows, looks, right=set(heads.values()))


def outcome(view: RunView) -> None:
    """Draw predicted against actual finish of each sub-model and of the whole run; nothing without a forecast."""
    rows = finish_rows(view)
    if not rows or view.forecast is None:
        return
    numbers = {part.name: part.number for part in view.submodels}
    name, predicted, actual, off = ("Sub-model", "Predicted", "Actual", "Prediction was")
    table = [
        {
            name: markup.signed_name(numbers[row.name], row.name) if row.name else markup.bold("Makespan"),
            predicted: duration_text(row.predicted_s),
            actual: _actual(row.actual_s, row.expected_s),
            off: "-" if row.off is None else _off_text(row.off),
        }
        for row in rows
    ]
    made = "made again after the last change" if view.forecast.renewed else BASES[view.forecast.basis]
    caption = f"Seconds from the launch of the worker, simulated {made}"
    with st.expander("Predicted and actual finish", icon=":material/timeline:", key="forecast-outcome"):
        st.html(markup.table(caption, table, {name: str}, right={predicted, actual, off}))


def _actual(actual_s: float | None, expected_s: float | None) -> str:
    if actual_s is not None:
        return duration_text(actual_s)
    return "-" if expected_s is None else f"now about {duration_text(expected_s)}"


def _off_text(off: float) -> str:
    if abs(off) < 0.005:
        return "right"
    percent = f"{100 * abs(off):.0f} %"
    return f"{percent} too long" if off > 0 else f"{percent} too short"


def counterfactual(change: Counterfactual) -> str:
    """What a change would do to each finish, as HTML, before it is applied."""
    if not change.known:
        return markup.small("What this changes is not known before the first steps are measured.")
    words = frame.change(change)
    return markup.small(words or "No finish time changes.")
