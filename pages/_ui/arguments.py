"""Fields for what a table of choices offers: a name, and its arguments. An empty field means the default."""

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import drafts
from unifiednn_core.spec.choice import Argument, Choice, shown
from unifiednn_core.views import markup

COLUMNS = 4


def choose(column: Any, label: str, table: Mapping[str, Choice], name: str, key: str) -> str:
    """Draw a searchable list of short names and torch class names, with a description of the chosen one."""
    names = list(table)
    index = names.index(name) if name in names else 0
    with column:
        chosen = str(st.selectbox(label, names, index=index, key=key, format_func=lambda one: title(one, table[one])))
        st.html(markup.small(table[chosen].help))
    return chosen


def title(name: str, choice: Choice) -> str:
    """Short name, and the name of torch's class if it is another word."""
    return name if choice.torch_class.lower() in ("", name) else f"{name} ({choice.torch_class})"


def folded(choice: Choice, known: Mapping[str, Any], key: str, *, opened: bool = False) -> dict[str, Any]:
    """Draw the fields of a choice in an expander, which is open if one is filled or needed; returns the filled ones."""
    if not choice.arguments:
        return {}
    with st.expander(f"Arguments of {choice.torch_class}", expanded=opened or bool(known or choice.required)):
        return fields(choice.arguments, known, key)


def fields(arguments: Sequence[Argument], known: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw the fields, seeded with what is `known`; returns the filled ones."""
    given = {}
    for start in range(0, len(arguments), COLUMNS):
        row = arguments[start : start + COLUMNS]
        for column, argument in zip(st.columns(COLUMNS), row, strict=False):
            with column:
                given[argument.name] = _field(argument, known, f"{key}-{argument.name}")
    return {name: value for name, value in given.items() if value is not None}


def _field(argument: Argument, known: Mapping[str, Any], key: str) -> Any:
    label = f"{argument.name} (needed)" if argument.required else argument.name
    default = "" if argument.required else f"default {shown(argument.default).replace('null', 'none')}"
    takes = f"{argument.takes[0].upper()}{argument.takes[1:]}."
    value = known.get(argument.name)
    choices: tuple[object, ...] = (True, False) if argument.kind == "flag" else argument.options
    if choices and (value is None or value in choices):
        index = None if value is None else choices.index(value)
        return st.selectbox(label, choices, index=index, key=key, placeholder=default, help=takes, format_func=shown)
    text = "" if argument.name not in known else drafts.argument_text(value)
    typed = st.text_input(label, text, key=key, placeholder=default, help=takes)
    if not typed.strip():
        return None
    return drafts.listed(typed) if argument.kind in ("numbers", "integers") else drafts.argument(typed)
