"""Hyper-parameters as a form or as JSON: two sights of the same values, both built from `choices.py`."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import actions, drafts, wording
from unifiednn_core.choices import CRITERIA, LR_SCHEDULERS, OPTIMIZERS, Choice
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.spec import Hyperparameters, parse_hyperparameters, parse_json

NO_SCHEDULER = "none"
ARGUMENT_COLUMNS = 4
SCHEDULERS = {NO_SCHEDULER: Choice("", help="The learning rate stays as it is."), **LR_SCHEDULERS}


def hyperparameters(values: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    """Draw both tabs and return the values that the form now holds.

    `values` seed the form; applying JSON stores new seeds under `{key}-json` and draws the form anew.
    """
    generation = st.session_state.setdefault(f"{key}-generation", 0)
    seeds = st.session_state.get(f"{key}-json", values)
    form, as_json = st.tabs(["Form", "JSON"], key=f"{key}-tabs")
    with form:
        now = _form(seeds, key=f"{key}-{generation}")
    with as_json:
        _json(now, key=key)
    return now


def unapplied(key: str) -> tuple[Finding, ...]:
    """A finding where JSON was typed and not applied: it would be lost."""
    if not st.session_state.get(f"{key}-unapplied"):
        return ()
    message, remedy = "The JSON was changed but not applied.", "Press Apply JSON, or undo the change there."
    return (Finding(title="JSON not applied", field="hyperparameters", message=message, remedy=remedy),)


def _json(now: dict[str, Any], *, key: str) -> None:
    text = json.dumps(now, indent=2)
    # A key of the text itself: the area shows the form's values as soon as they change.
    typed = st.text_area("Hyper-parameters as JSON", text, height=260, key=f"{key}-text-{hash(text)}")
    st.session_state[f"{key}-unapplied"] = typed != text
    if st.button("Apply JSON", key=f"{key}-apply", icon=":material/check:"):
        try:
            parsed = parse_hyperparameters(parse_json(typed, field="hyperparameters"))
        except BadInput as error:
            actions.show_error(error)
            return
        st.session_state[f"{key}-json"] = parsed.model_dump(mode="json", exclude_none=True)
        st.session_state[f"{key}-generation"] += 1
        st.rerun()


def _form(seeds: Mapping[str, Any], *, key: str) -> dict[str, Any]:
    base = Hyperparameters()
    one, two, three, four = st.columns(4)
    values: dict[str, Any] = {
        **seeds,  # what the form has no field for stays as it was
        "epochs": int(one.number_input("Epochs", 1, 1_000_000, seeds.get("epochs", base.epochs), key=f"{key}-epochs")),
        "batch_size": int(
            two.number_input("Batch size", 1, 10_000_000, seeds.get("batch_size", base.batch_size), key=f"{key}-batch")
        ),
        "learning_rate": _learning_rate(three, seeds, key),
    }
    seed = four.number_input("Seed", 0, value=seeds.get("seed"), key=f"{key}-seed", placeholder="run")
    values["seed"] = None if seed is None else int(seed)
    one, two, three = st.columns(3)
    optimizer = _choice(one, "Optimizer", OPTIMIZERS, seeds.get("optimizer", base.optimizer), f"{key}-opt")
    criterion = _choice(two, "Criterion", CRITERIA, seeds.get("criterion", base.criterion), f"{key}-crit")
    scheduler = seeds.get("lr_scheduler") or {"name": NO_SCHEDULER}
    lr_scheduler = _choice(three, "LR scheduler", SCHEDULERS, scheduler["name"], f"{key}-lr")
    for entry, table, chosen in (("optimizer", OPTIMIZERS, optimizer), ("criterion", CRITERIA, criterion)):
        known = seeds.get(f"{entry}_args", {}) if seeds.get(entry, chosen) == chosen else {}
        values |= {entry: chosen, f"{entry}_args": _arguments(table[chosen], known, f"{key}-{entry}-{chosen}")}
    values["lr_scheduler"] = _lr_scheduler(lr_scheduler, scheduler, f"{key}-lr")
    one, two = st.columns([1, 3], vertical_alignment="bottom")
    values["batch_split"] = int(
        one.number_input(
            "Batch split",
            1,
            65_536,
            seeds.get("batch_split", base.batch_split),
            key=f"{key}-split",
            help=wording.BATCH_SPLIT_HELP,
        )
    )
    values["drop_last"] = two.checkbox(
        "Leave out the last, smaller batch of each epoch", bool(seeds.get("drop_last", False)), key=f"{key}-drop"
    )
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _learning_rate(column: Any, seeds: Mapping[str, Any], key: str) -> object:
    typed = column.text_input("Learning rate", f"{seeds.get('learning_rate', 0.01):g}", key=f"{key}-rate")
    return drafts.argument(typed)  # a mistake is found by the spec's own check, which names the field


def _lr_scheduler(name: str, seed: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    if name == NO_SCHEDULER:
        return None
    known = seed.get("args", {}) if seed["name"] == name else {}
    args = _arguments(SCHEDULERS[name], known, f"{key}-{name}")
    per = st.segmented_control(
        "The LR scheduler steps once per",
        ["epoch", "step"],
        default=seed.get("per", "epoch"),
        required=True,
        key=f"{key}-per",
    )
    return {"name": name, "args": args, "per": per}


def _choice(column: Any, label: str, table: Mapping[str, Choice], name: str, key: str) -> str:
    names = list(table)
    index = names.index(name) if name in names else 0
    return str(column.selectbox(label, names, index=index, key=key, help=_help(table), filter_mode=None))


def _arguments(choice: Choice, known: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw one field for each argument in torch's own words; an empty one means torch's default."""
    if not choice.arguments:
        return {}
    typed = {}
    with st.expander(f"Arguments of {choice.torch_class}", expanded=bool(known or choice.required)):
        columns = st.columns(ARGUMENT_COLUMNS)
        for at, argument in enumerate(choice.arguments):
            needed = argument in choice.required
            typed[argument] = columns[at % ARGUMENT_COLUMNS].text_input(
                f"{argument} (needed)" if needed else argument,
                drafts.argument_text(known[argument]) if argument in known else "",
                key=f"{key}-{argument}",
                placeholder="" if needed else "default",
            )
    return {argument: drafts.argument(text) for argument, text in typed.items() if text.strip()}


def _help(table: Mapping[str, Choice]) -> str:
    return "  \n".join(f"**{name}**: {choice.help}" for name, choice in table.items())
