"""Techniques that need less memory: a box to tick for each of the table, its parameters, and what it does to bits."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import drafts
from unifiednn_core.spec.choice import shown
from unifiednn_core.spec.techniques import TECHNIQUES, Technique, name_of
from unifiednn_core.views import markup
from unifiednn_core.views.techniques import TechniqueParameter, is_exact, parameters_of

HELP = (
    "Each trains this sub-model in less memory and costs time. An exact one leaves every bit; the weights of a lossy "
    "one are judged by test loss and accuracy. Check the spec to see what they save here."
)
COLUMNS = 3


def techniques(seeds: Sequence[Any], *, key: str, checked: str = "", opened: bool = False) -> list[dict[str, Any]]:
    """Draw the boxes, seeded with entries of a spec; returns the entries that they now hold.

    `checked` is what the last check said of them.
    """
    known = {one if isinstance(one, str) else one.get("name"): {} if isinstance(one, str) else one for one in seeds}
    with st.expander("Less memory: techniques", icon=":material/compress:", expanded=opened or bool(known)):
        st.html(markup.small(HELP))
        if checked:
            st.html(markup.quiet("fact_check", f"The last check: {checked}."))
        chosen = [_box(one, known.get(name_of(one)), f"{key}-{name_of(one)}") for one in TECHNIQUES]
    return [one for one in chosen if one is not None]


def _box(technique: type[Technique], seed: Mapping[str, Any] | None, key: str) -> dict[str, Any] | None:
    """Draw one technique; returns its entry, None if it is not ticked."""
    with st.container(key=f"technique-{key}"):
        ticked = st.checkbox(technique.title, seed is not None, key=key)
        told = st.empty()  # its parameters decide whether it is exact
        entry: dict[str, Any] = {"name": name_of(technique)}
        parameters = parameters_of(technique) if ticked else ()
        for start in range(0, len(parameters), COLUMNS):
            columns = st.columns(COLUMNS, vertical_alignment="bottom")
            for column, one in zip(columns, parameters[start : start + COLUMNS], strict=False):
                with column:
                    value = _field(one, seed or {}, f"{key}-{one.name}")
                entry |= {} if value is None else {one.name: value}
        about = f"{markup.text(technique.summary)} {markup.faint(technique.paper)}"
        told.html(f'<div class="u-small">{_bits(is_exact(technique, entry))} {about}</div>')
    return entry if ticked else None


def _bits(exact: bool | None) -> str:
    """Whether the trained weights are the same, as a badge; nothing while that is not known."""
    if exact is None:
        return ""
    words = "exact: the same bits" if exact else "lossy: other weights"
    return markup.badge(words, "verified" if exact else "blur_on", "green" if exact else "orange", "")


def _field(parameter: TechniqueParameter, seed: Mapping[str, Any], key: str) -> Any:
    """Draw one parameter; returns its value, None for the default."""
    label, given = parameter.name.replace("_", " "), seed.get(parameter.name, parameter.default)
    if isinstance(parameter.default, bool):
        ticked = st.checkbox(label, bool(given), key=key, help=parameter.help or None)
        return None if ticked == parameter.default else ticked
    if parameter.options and given in parameter.options:
        index = parameter.options.index(given)
        return st.selectbox(label, parameter.options, index, key=key, help=parameter.help or None)
    text = drafts.argument_text(seed[parameter.name]) if seed.get(parameter.name) is not None else ""
    default = "needed" if parameter.required else f"default {shown(parameter.default)}"
    typed = st.text_input(label, text, key=key, placeholder=default, help=parameter.help or None)
    return drafts.argument(typed) if typed.strip() else None
