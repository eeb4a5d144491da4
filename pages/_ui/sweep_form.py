"""The sweep of a sub-model: which hyper-parameters vary, and their values as a list or a range."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import drafts, frame
from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.choices import OPTIMIZERS
from unifiednn_core.spec.run import parse_run
from unifiednn_core.spec.sweep import spaced
from unifiednn_core.views import markup, wording

HELP = (
    "Trains this network once with each value, and with each combination if several hyper-parameters vary. "
    "The values here replace the one above."
)
OFFERED = ("learning_rate", "batch_size", "seed", "epochs")
WHOLE = ("batch_size", "seed", "epochs", "batch_split", "accumulation_steps")
WAYS = {"list": "List of values", "range": "Range"}
MOST_NAMES = 4


def sweep(seed: Mapping[str, Any], hyperparameters: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    """Draw the form seeded with a sweep; returns the one that it now says, None for none."""
    with st.expander("Sweep: train it with several values", icon=":material/tune:", expanded=bool(seed)):
        st.html(markup.small(HELP))
        arguments = OPTIMIZERS[hyperparameters["optimizer"]].arguments
        offered = [*OFFERED, *(f"optimizer_args.{one.name}" for one in arguments if one.kind in ("number", "integer"))]
        offered += [entry for entry in seed if entry not in offered]
        chosen = st.multiselect(
            "Vary", offered, list(seed), key=f"{key}-entries", format_func=_title, placeholder="nothing: no sweep"
        )
        return {entry: _values(entry, seed.get(entry, ()), f"{key}-{entry}") for entry in chosen} or None


def expansion(submodel: Mapping[str, Any]) -> str:
    """What a sub-model with a sweep expands into; empty if it is not ready for that."""
    try:
        members = parse_run({"submodels": [{"model": "-", "train_data": "-", **submodel}]}).submodels
    except BadInput:
        return ""
    names = [part.name for part in members]
    shown = [*names[: MOST_NAMES - 1], "…", names[-1]] if len(names) > MOST_NAMES else names
    return f"{wording.count_text(len(names), 'sub-model')}: {', '.join(shown)}"


def _values(entry: str, seed: Any, key: str) -> list[Any]:
    one, two, three, four, five = st.columns([2, 1, 1, 1, 1], vertical_alignment="bottom")
    with one:
        way = frame.segments(_title(entry), list(WAYS), "list", f"{key}-way", lambda one: WAYS[one])
    if way == "list":
        text = ", ".join(map(drafts.argument_text, seed)) if isinstance(seed, list | tuple) else ""
        typed = st.text_input("Values, separated by commas", text, key=f"{key}-list", placeholder="0.001, 0.01, 0.1")
        whole = drafts.argument(f"[{typed}]")
        return whole if isinstance(whole, list) else [drafts.argument(part) for part in typed.split(",")]
    first = two.number_input("From", value=1.0 if entry in WHOLE else 0.001, format="%g", key=f"{key}-from")
    last = three.number_input("To", value=4.0 if entry in WHOLE else 0.1, format="%g", key=f"{key}-to")
    count = four.number_input("How many", 1, 256, 4, key=f"{key}-count")
    log = five.checkbox("Log scale", entry not in WHOLE and first > 0 < last, key=f"{key}-log")
    values = spaced(first, last, count, log=log and first > 0 < last)
    rounded: list[Any] = [round(value) for value in values] if entry in WHOLE else list(values)
    st.html(markup.small(", ".join(map(drafts.argument_text, rounded))))
    return rounded


def _title(entry: str) -> str:
    return entry.removeprefix("optimizer_args.").replace("_", " ")
