"""The transforms of a sub-model: a list of names, each with its arguments, built from the table of transforms."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import arguments, listed
from unifiednn_core.spec.transforms import SHORT_NAMES, TRANSFORMS
from unifiednn_core.views import markup

HELP = (
    "What happens to each batch after scaling, in this order. Random ones work in training alone and draw from the "
    "sub-model's own random numbers, so the bits stay those of the plain loop."
)
CIFAR = (
    {"name": "random_crop", "padding": 4},
    {"name": "horizontal_flip"},
    {"name": "normalize", "mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616]},
)
"""The usual recipe for CIFAR-10, for bytes that were scaled by 1/255."""
CIFAR_HELP = "Crop with a border of 4 pixels, flip, and normalise each channel."


def transforms(
    seeds: Sequence[Mapping[str, Any]], inputs: Sequence[str], *, key: str, opened: bool = False
) -> list[dict[str, Any]]:
    """Draw the list seeded with entries of a spec; returns the entries that it now holds.

    `inputs` are those of the data.
    """
    with st.expander("Transforms", icon=":material/auto_fix_high:", expanded=opened or bool(seeds), key=f"{key}-fold"):
        st.html(markup.small(HELP))
        rows = listed.entries(seeds, key=key)
        values = [_row(seed, at, inputs, f"{key}-{number}", key) for at, (number, seed) in enumerate(rows)]
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox(
                "Add a transform",
                list(TRANSFORMS),
                None,
                _title,
                f"{key}-new",
                placeholder="choose one",
                on_change=_add,
                args=(key,),
                width=320,
            )
            st.button(
                "CIFAR: crop, flip, normalise",
                key=f"{key}-cifar",
                icon=":material/photo_library:",
                help=CIFAR_HELP,
                on_click=listed.add,
                args=(key, *CIFAR),
            )
    return values


def _row(seed: Mapping[str, Any], at: int, inputs: Sequence[str], key: str, list_key: str) -> dict[str, Any]:
    name = SHORT_NAMES.get(seed["name"], seed["name"])
    choice = TRANSFORMS.get(name)
    with st.container(border=True, key=key):
        said = "There is no such transform." if choice is None else choice.help
        listed.head(f"{at + 1}. {name}", said, at, key=list_key)
        if choice is None:  # the check says what is wrong
            return dict(seed)
        values = {"name": name, **arguments.fields(choice.arguments, seed, key)}
        known = seed.get("input")
        options = list(dict.fromkeys((*inputs, *([known] if known else []))))
        if len(options) > 1 or known:
            index = options.index(known) if known else None
            with st.columns(arguments.COLUMNS)[0]:
                picked = st.selectbox("Input of the data", options, index, key=f"{key}-input", placeholder="the first")
            values |= {"input": picked} if picked else {}
    return values


def _title(name: str) -> str:
    return arguments.title(name, TRANSFORMS[name])


def _add(key: str) -> None:
    name = st.session_state[f"{key}-new"]
    if name:
        listed.add(key, {"name": name})
        st.session_state[f"{key}-new"] = None
