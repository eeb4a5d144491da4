"""The settings of a draft for bad days: how often progress is kept, what follows a crash, when a step is endless."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import drafts, wording
from unifiednn_core.spec import CheckpointSpec, RunSpec

DEFAULTS: drafts.Document = {
    "checkpoint": CheckpointSpec().model_dump(exclude_none=True),
    "recovery": RunSpec.model_fields["recovery"].default,
    "step_limit_s": RunSpec.model_fields["step_limit_s"].default,
}


def settings(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the settings, folded away; returns those that the draft has already or that differ from the defaults."""
    known = DEFAULTS | dict(draft)
    every_s, every_steps = (known["checkpoint"].get(entry) for entry in ("every_s", "every_steps"))
    with st.expander("Recovery", icon=":material/history:", key="run-recovery"):
        one, two = st.columns(2)
        seconds = one.number_input(
            "Keep progress every (s)",
            0.0,
            value=None if every_s is None else float(every_s),
            step=10.0,
            format="%g",
            key="run-every-s",
            placeholder="never",
            help=wording.CHECKPOINT_HELP,
        )
        steps = two.number_input(
            "or every (steps)",
            0,
            value=every_steps,
            key="run-every-steps",
            placeholder="never",
            help=wording.STEPS_HELP,
        )
        recovery = st.segmented_control(
            "After a crash",
            list(wording.RECOVERY),
            default=known["recovery"],
            required=True,
            format_func=wording.RECOVERY.__getitem__,
            key="run-after-crash",
        )
        limit_s = st.number_input(
            "Longest step (s)",
            0.0,
            value=float(known["step_limit_s"]),
            step=60.0,
            format="%g",
            key="run-step-limit",
            help=wording.STEP_LIMIT_HELP,
        )
    checkpoint = {"every_s": seconds} | ({} if steps is None else {"every_steps": steps})
    now = {"checkpoint": checkpoint, "recovery": recovery, "step_limit_s": limit_s}
    return {entry: value for entry, value in now.items() if entry in draft or value != DEFAULTS[entry]}
