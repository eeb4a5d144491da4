"""The choice of a draft whether plain PyTorch trains the same, too, to compare with."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import arm_words, drafts
from unifiednn_core.views.comparison import BASELINES, Mode

BEFORE, AFTER = "before", "after"


def choice(draft: Mapping[str, Any]) -> drafts.Document:
    """Draw the choice; returns the entries that it needs, those of the draft or what differs from none."""
    known, first = plan(draft)
    name = st.segmented_control(
        "Run the baseline too",
        list(arm_words.CHOICES),
        default=arm_words.choice_of(known),
        required=True,
        key="run-baselines",
        help=arm_words.CHOICE_HELP,
    )
    modes = arm_words.CHOICES[name]
    if modes:
        when = st.segmented_control(
            "Before or after the hybrid",
            [BEFORE, AFTER],
            default=BEFORE if first else AFTER,
            required=True,
            format_func=str.capitalize,
            key="run-baselines-when",
        )
        first = when == BEFORE
    now = {"baselines": list(modes), "baselines_first": bool(first and modes)}
    return {entry: value for entry, value in now.items() if entry in draft or value}


def plan(draft: Mapping[str, Any]) -> tuple[tuple[Mode, ...], bool]:
    """Baselines that a draft asks for, and whether they run first."""
    asked = draft.get("baselines", ())
    return tuple(mode for mode in BASELINES if mode in asked), bool(draft.get("baselines_first"))
