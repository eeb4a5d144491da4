"""Where a sub-model's training begins: at its model file, or at a checkpoint or weights that were trained before."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import drafts, file_pick, uploads, wording
from unifiednn_core.views.runs import FileView

KINDS = ("checkpoint", "weights")
TAKE = {"everything": "Everything", "weights": "Only the weights"}
SENTENCES = {"everything": wording.START_EVERYTHING, "weights": wording.START_WEIGHTS}


def start_from(seed: Mapping[str, Any], files: Sequence[FileView], *, key: str) -> drafts.Document | None:
    """Draw the choice seeded with a `start_from` entry; returns the one that it now says, None for the model file."""
    offered = [file for file in files if file.kind in KINDS]
    uploaded = f"{key}-uploaded" in st.session_state
    with st.expander("Start from a checkpoint", icon=":material/history:", expanded=bool(seed) or uploaded):
        one, two = st.columns(2)
        with one:
            ref = file_pick.pick(
                "Checkpoint or weights",
                offered,
                seed.get("file"),
                uploads.START_SUFFIXES,
                key=key,
                nothing=wording.START_NOWHERE,
            )
        if not ref:
            return None
        chosen = next((file for file in offered if drafts.reference(file) == ref), None)
        ways = ["weights"] if chosen is not None and chosen.kind == "weights" else list(TAKE)
        known = seed.get("take", ways[0])
        take = two.radio(
            "What is taken",
            ways,
            index=ways.index(known) if known in ways else 0,
            format_func=TAKE.__getitem__,
            captions=[SENTENCES[way] for way in ways],
            key=f"{key}-take-{ref}",
        )
    return {"file": ref, "take": str(take)}
