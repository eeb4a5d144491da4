"""How a step is made and when a training ends: splits, accumulation, clipping, warm-up, early stopping."""

from collections.abc import Mapping
from typing import Any, get_args

import streamlit as st

from pages._ui import wording
from unifiednn_core.spec import EarlyStopping, Hyperparameters

NONE = "none"
CLIPPING = {NONE: "none", "norm": "by norm", "value": "by value"}
METRICS = (NONE, *get_args(EarlyStopping.model_fields["metric"].annotation))
ACCUMULATION_HELP = (
    "Batches that make one optimizer step: a larger batch than memory holds. The gradient is that of their mean loss. "
    "Batch split is the other way round: it parts a batch of the size that is wanted."
)
CLIPPING_HELP = (
    "By norm: gradients whose norm over all weights is larger are scaled down to the limit. "
    "By value: each entry is held between minus and plus the limit."
)
WARM_UP_HELP = (
    "Step i of the first so many steps is taken with i / steps of the learning rate, on top of the LR scheduler."
)
STOPPING_HELP = "Ends the training where this has not become better for so many epochs in a row."


def extras(seeds: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw the fields seeded with the values; returns the entries that they now hold, None for what is not wanted."""
    base = Hyperparameters()
    asked = [
        entry for entry in ("accumulation_steps", "gradient_clipping", "warm_up", "early_stopping") if seeds.get(entry)
    ]
    wanted = any(seeds.get(entry) != getattr(base, entry) for entry in asked)
    one, two = st.columns([1, 3], vertical_alignment="bottom")
    split = one.number_input(
        "Batch split",
        1,
        65_536,
        seeds.get("batch_split", base.batch_split),
        key=f"{key}-split",
        help=wording.BATCH_SPLIT_HELP,
    )
    drop_last = two.checkbox(
        "Leave out the last, smaller batch of each epoch", bool(seeds.get("drop_last", False)), key=f"{key}-drop"
    )
    with st.expander("Accumulation, clipping, warm-up, early stopping", expanded=wanted):
        one, two, three, four = st.columns(4)
        with one:
            batches = st.number_input(
                "Batches in a step",
                1,
                65_536,
                seeds.get("accumulation_steps", base.accumulation_steps),
                key=f"{key}-accumulation",
                help=ACCUMULATION_HELP,
            )
        with two:
            warm_up = st.number_input(
                "Warm-up steps",
                1,
                value=(seeds.get("warm_up") or {}).get("steps"),
                key=f"{key}-warm-up",
                placeholder="none",
                help=WARM_UP_HELP,
            )
        clipping = _clipping(three, four, seeds.get("gradient_clipping") or {}, key=f"{key}-clip")
        stopping = _stopping(seeds.get("early_stopping") or {}, key=f"{key}-stop")
    return {
        "batch_split": int(split),
        "drop_last": drop_last,
        "accumulation_steps": int(batches),
        "warm_up": None if warm_up is None else {"steps": int(warm_up)},
        "gradient_clipping": clipping,
        "early_stopping": stopping,
    }


def _clipping(left: Any, right: Any, seed: Mapping[str, Any], *, key: str) -> dict[str, float] | None:
    given = {name: value for name, value in seed.items() if value is not None}
    way = next(iter(given), NONE)
    ways = list(CLIPPING)
    chosen = left.selectbox(
        "Clip gradients", ways, index=ways.index(way), key=key, help=CLIPPING_HELP, format_func=CLIPPING.__getitem__
    )
    if chosen == NONE:
        return None
    limit = right.number_input("Limit", value=float(given.get(chosen, 1.0)), format="%g", key=f"{key}-{chosen}")
    return {str(chosen): float(limit)}


def _stopping(seed: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    base = EarlyStopping()
    one, two, three, _ = st.columns(4)
    metric = one.selectbox(
        "Stop early by",
        METRICS,
        index=METRICS.index(seed.get("metric", base.metric)) if seed else 0,
        key=key,
        help=STOPPING_HELP,
        format_func=lambda name: str(name).replace("_", " "),
    )
    if metric == NONE:
        return None
    patience = two.number_input(
        "Patience (epochs)", 1, value=seed.get("patience", base.patience), key=f"{key}-patience"
    )
    least = three.number_input(
        "Least improvement",
        0.0,
        value=float(seed.get("min_delta", base.min_delta)),
        format="%g",
        key=f"{key}-delta",
    )
    return {"metric": metric, "patience": int(patience), "min_delta": float(least)}
