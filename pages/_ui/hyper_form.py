"""Hyper-parameters as a form or as JSON: two sights of the same values, both built from the tables of choices."""

import json
from collections.abc import Mapping
from typing import Any

import streamlit as st

from pages._ui import actions, argument_form, drafts, hyper_extras, markup
from unifiednn_core.choices import CRITERIA, LR_SCHEDULERS, OPTIMIZERS, Choice, LRSchedulerChoice
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.spec import Hyperparameters, parse_hyperparameters, parse_json

NO_SCHEDULER = "none"
SCHEDULERS = {NO_SCHEDULER: LRSchedulerChoice("none", help="The learning rate stays as it is."), **LR_SCHEDULERS}


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
    chosen: tuple[tuple[str, Mapping[str, Choice], str], ...] = (
        ("optimizer", OPTIMIZERS, optimizer),
        ("criterion", CRITERIA, criterion),
    )
    for entry, table, name in chosen:
        known = seeds.get(f"{entry}_args", {}) if seeds.get(entry, name) == name else {}
        values |= {entry: name, f"{entry}_args": argument_form.arguments(table[name], known, f"{key}-{entry}-{name}")}
    values["lr_scheduler"] = _lr_scheduler(lr_scheduler, scheduler, f"{key}-lr")
    values |= hyper_extras.extras(seeds, key=f"{key}-more")
    return {name: value for name, value in values.items() if value is not None and value != {}}


def _learning_rate(column: Any, seeds: Mapping[str, Any], key: str) -> object:
    typed = column.text_input("Learning rate", f"{seeds.get('learning_rate', 0.01):g}", key=f"{key}-rate")
    return drafts.argument(typed)  # a mistake is found by the spec's own check, which names the field


def _lr_scheduler(name: str, seed: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    if name == NO_SCHEDULER:
        return None
    choice, same = SCHEDULERS[name], seed["name"] == name
    args = argument_form.arguments(choice, seed.get("args", {}) if same else {}, f"{key}-{name}")
    per = st.segmented_control(
        "The LR scheduler steps once per",
        ["epoch", "step"] if not choice.measured else ["epoch"],
        default=seed.get("per", "epoch") if same else choice.per or "epoch",
        required=True,
        key=f"{key}-per-{name}",
    )
    return {"name": name, "args": args, "per": per}


def _choice(column: Any, label: str, table: Mapping[str, Choice], name: str, key: str) -> str:
    """Draw a list that is searched by typing, short names and those of torch's classes, and what the chosen one is."""
    names = list(table)
    index = names.index(name) if name in names else 0
    with column:
        chosen = str(st.selectbox(label, names, index=index, key=key, format_func=lambda one: title(one, table[one])))
        st.html(markup.small(table[chosen].help))
    return chosen


def title(name: str, choice: Choice) -> str:
    """Short name, and that of torch's class where it is not the same word."""
    return name if choice.torch_class.lower() == name else f"{name} ({choice.torch_class})"
