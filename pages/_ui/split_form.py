"""The split of a sub-model: behind which layers it is cut, and what the parts learn from."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import frame
from unifiednn_core.spec.split import SplitSpec
from unifiednn_core.views import markup

HELP = (
    "Cuts a classifier into parts that train by themselves, each with less memory: on fixed random codes of the "
    "classes instead of what the other parts would give. They are joined when all have ended. The result is another "
    "one than that of the whole; a baseline trains the whole, and the verdict compares test accuracy."
)
AT_HELP = (
    "Names of layers as in the state dict, or of operators of a .pt2 file. Best behind an activation such as ReLU."
)
RATE_HELP = (
    "Learning rate of parts that learn codes, as a multiple. SGD needs about 8 for 512 outputs at a cut, 16 for 1024; "
    "Adam needs none."
)
LABELS = {"codes": "Codes of the classes", "outputs": "Outputs of the part before"}
ENTRIES = ("split", "part", "part_of")


def is_read(submodel: Mapping[str, Any], taken: Sequence[str]) -> bool:
    """Whether a sub-model is a part of a split network, or one whose parts are sub-models of the draft already."""
    return bool(submodel.get("part")) or (bool(submodel.get("split")) and f"{submodel.get('name')}-1" in taken)


def split(seed: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    """Draw the form seeded with a split; returns the one that it now says, None for none."""
    usual = SplitSpec(at=["-"])
    with st.expander("Split: train it in parts", icon=":material/call_split:", expanded=bool(seed)):
        st.html(markup.small(HELP))
        typed = st.text_input(
            "Cut behind these layers, separated by commas",
            ", ".join(seed.get("at", ())),
            key=f"{key}-at",
            help=AT_HELP,
            placeholder="nothing: in one piece",
        )
        one, two, three = st.columns([2, 1, 1], vertical_alignment="bottom")
        with one:
            known = seed.get("labels", usual.labels)
            chosen = frame.segments(
                "Parts behind a cut learn from", list(LABELS), known, f"{key}-labels", lambda one: LABELS[one]
            )
        rate = two.number_input(
            "Rate for codes",
            0.001,
            10_000.0,
            float(seed.get("code_rate", usual.code_rate)),
            format="%g",
            key=f"{key}-rate",
            help=RATE_HELP,
        )
        recovery = three.number_input(
            "Recovery epochs",
            0,
            1_000_000,
            seed.get("recovery_epochs", usual.recovery_epochs),
            key=f"{key}-recovery",
            help="Of the joined network, with a tenth of the learning rate.",
        )
    at = [name.strip() for name in typed.split(",") if name.strip()]
    drawn = {"labels": chosen, "code_rate": rate, "recovery_epochs": recovery}
    said = {entry: value for entry, value in drawn.items() if entry in seed or value != getattr(usual, entry)}
    return {**seed, "at": at, **said} if at else None
