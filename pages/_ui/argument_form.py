"""Arguments of a choice as fields, one for each, in torch's own words and with torch's own defaults."""

from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import drafts
from unifiednn_core.choices import Argument, Choice, shown

COLUMNS = 4


def arguments(choice: Choice, known: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw the fields, and return what was filled in; an empty one means torch's default."""
    if not choice.arguments:
        return {}
    given = {}
    with st.expander(f"Arguments of {choice.torch_class}", expanded=bool(known or choice.required)):
        for start in range(0, len(choice.arguments), COLUMNS):  # a phone stacks the columns of each row, in order
            row = choice.arguments[start : start + COLUMNS]
            for column, argument in zip(st.columns(COLUMNS), row, strict=False):
                with column:
                    given[argument.name] = _field(argument, known, f"{key}-{argument.name}")
    return {name: value for name, value in given.items() if value is not None}


def _field(argument: Argument, known: Mapping[str, Any], key: str) -> Any:
    label = f"{argument.name} (needed)" if argument.required else argument.name
    default = "" if argument.required else f"default {shown(argument.default)}".replace("null", "none")
    takes = f"{argument.takes[0].upper()}{argument.takes[1:]}."
    value = known.get(argument.name)
    choices: tuple[object, ...] = (True, False) if argument.kind == "flag" else argument.options
    if choices and (value is None or value in choices):
        index = None if value is None else choices.index(value)
        return st.selectbox(label, choices, index=index, key=key, placeholder=default, help=takes, format_func=shown)
    text = "" if argument.name not in known else drafts.argument_text(value)
    typed = st.text_input(label, text, key=key, placeholder=default, help=takes)
    return drafts.argument(typed) if typed.strip() else None
