"""Hyper-parameters as a form or as JSON: two views of the same values, built from the tables of choices."""

import json
from collections.abc import Mapping, Set
from typing import Any, get_args

import streamlit as st

from pages._ui import actions, arguments, drafts, frame, recipe_form, technique_form
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.spec.choice import Choice, LRSchedulerChoice
from unifiednn_core.spec.choices import CRITERIA, LR_SCHEDULES, OPTIMIZERS, SEQUENCE
from unifiednn_core.spec.run import EarlyStopping, Hyperparameters, parse_hyperparameters, parse_json

NONE = "none"
SCHEDULERS = {NONE: LRSchedulerChoice(NONE, help="The learning rate stays as it is."), **LR_SCHEDULES}
CLIPPING = {NONE: "none", "norm": "by norm", "value": "by value"}
METRICS = {m: m.replace("_", " ") for m in (NONE, *get_args(EarlyStopping.model_fields["metric"].annotation))}
SPLIT_HELP = (
    "Number of parts in which each batch passes through the network. More parts need less memory. The gradient is "
    "that of the whole batch up to rounding; batch normalisation sees the parts."
)
ACCUMULATION_HELP = (
    "Batches per optimizer step, for batches larger than memory. The gradient is that of their mean loss."
)
CLIPPING_HELP = (
    "By norm: scales gradients down to this norm over all weights. By value: clamps each entry to this limit."
)
WARM_UP_HELP = "Step i of the warm-up uses i / steps of the learning rate, on top of the LR scheduler."
STOPPING_HELP = "Ends the training if this metric has not improved for a number of epochs in a row."


def hyperparameters(
    values: Mapping[str, Any], *, key: str, wrong: Set[str] = frozenset(), checked: str = ""
) -> dict[str, Any]:
    """Draw both tabs and return the values that the form now holds; what holds a `wrong` entry is open.

    `values` seed the form; applying JSON stores new seeds under `{key}-json` and redraws the form. `checked` is what
    the last check said of its techniques.
    """
    generation = st.session_state.setdefault(f"{key}-generation", 0)
    form, as_json = st.tabs(["Form", "JSON"], key=f"{key}-tabs")
    with form:
        seeds = st.session_state.get(f"{key}-json", values)
        now = _form(seeds, key=f"{key}-{generation}", wrong=wrong)
        now.pop("techniques", None)
        asked = technique_form.techniques(
            seeds.get("techniques", ()), key=f"{key}-{generation}-less", checked=checked, opened="techniques" in wrong
        )
        now |= {"techniques": asked} if asked else {}
    with as_json:
        _json(now, key=key)
    return now


def unapplied(key: str) -> tuple[Finding, ...]:
    """A finding for JSON that was typed but not applied: it would be lost."""
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


def _form(seeds: Mapping[str, Any], *, key: str, wrong: Set[str]) -> dict[str, Any]:
    known = Hyperparameters().model_dump() | dict(seeds)
    one, two, three, four = st.columns(4)
    rate = three.text_input("Learning rate", drafts.short_number(known["learning_rate"]), key=f"{key}-rate")
    values: dict[str, Any] = {
        **seeds,  # entries without a field stay as they are
        "epochs": one.number_input("Epochs", 1, 1_000_000, known["epochs"], key=f"{key}-epochs"),
        "batch_size": two.number_input("Batch size", 1, 10_000_000, known["batch_size"], key=f"{key}-batch"),
        "learning_rate": drafts.argument(rate),  # the check of the spec finds a mistake and names the field
        "seed": four.number_input("Seed", 0, value=seeds.get("seed"), key=f"{key}-seed", placeholder="run"),
    }
    one, two, three = st.columns(3)
    optimizer = arguments.choose(one, "Optimizer", OPTIMIZERS, known["optimizer"], f"{key}-opt")
    criterion = arguments.choose(two, "Criterion", CRITERIA, known["criterion"], f"{key}-crit")
    scheduler = seeds.get("lr_scheduler") or {"name": NONE}
    lr_scheduler = arguments.choose(three, "LR scheduler", SCHEDULERS, scheduler["name"], f"{key}-lr")
    chosen: dict[str, tuple[Choice, str]] = {
        "optimizer": (OPTIMIZERS[optimizer], optimizer),
        "criterion": (CRITERIA[criterion], criterion),
    }
    for entry, (choice, name) in chosen.items():
        args = seeds.get(f"{entry}_args", {}) if seeds.get(entry, name) == name else {}
        values |= {
            entry: name,
            f"{entry}_args": arguments.folded(choice, args, f"{key}-{entry}-{name}", opened=f"{entry}_args" in wrong),
        }
    values["lr_scheduler"] = _lr_scheduler(lr_scheduler, scheduler, f"{key}-lr")
    values |= _extras(known, key=f"{key}-more", wrong=wrong)
    values["parameter_groups"] = recipe_form.groups(
        known["parameter_groups"], optimizer, key=f"{key}-groups", opened="parameter_groups" in wrong
    )
    values |= recipe_form.samples_and_precision(known, criterion, key=f"{key}-samples", wrong=wrong)
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


def _lr_scheduler(name: str, seed: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    if name == NONE:
        return None
    choice, same = SCHEDULERS[name], seed["name"] == name
    if name == SEQUENCE:
        parts = recipe_form.sequence(seed if same else {}, key=f"{key}-parts")
    else:
        parts = {"name": name, "args": arguments.folded(choice, seed.get("args", {}) if same else {}, f"{key}-{name}")}
    options, known = ["epoch"] if choice.measured else ["epoch", "step"], choice.per or "epoch"
    known = seed.get("per", "epoch") if same else known
    per = frame.segments("The LR scheduler steps once per", options, known, f"{key}-per-{name}")
    return {**parts, "per": per}


def _extras(known: Mapping[str, Any], *, key: str, wrong: Set[str]) -> dict[str, Any]:
    """Draw the fields seeded with the values; returns the entries that they now hold, None for an unused one."""
    base = Hyperparameters()
    folded = ("accumulation_steps", "gradient_clipping", "warm_up", "early_stopping")
    wanted = bool(wrong & set(folded)) or any(known[entry] and known[entry] != getattr(base, entry) for entry in folded)
    one, two = st.columns([1, 3], vertical_alignment="bottom")
    split = one.number_input("Batch split", 1, 65_536, known["batch_split"], key=f"{key}-split", help=SPLIT_HELP)
    drop_last = two.checkbox("Drop the last, smaller batch of each epoch", bool(known["drop_last"]), key=f"{key}-drop")
    with st.expander("Accumulation, clipping, warm-up, early stopping", expanded=wanted):
        one, two, three, four = st.columns(4)
        batches, steps = known["accumulation_steps"], (known["warm_up"] or {}).get("steps")
        batches = one.number_input(
            "Batches in a step", 1, 65_536, batches, key=f"{key}-accumulation", help=ACCUMULATION_HELP
        )
        steps = two.number_input(
            "Warm-up steps", 1, value=steps, key=f"{key}-warm-up", placeholder="none", help=WARM_UP_HELP
        )
        clipping = _clipping(three, four, known["gradient_clipping"] or {}, key=f"{key}-clip")
        stopping = _stopping(known["early_stopping"] or {}, key=f"{key}-stop")
    warm_up = None if steps is None else {"steps": steps}
    values = {"batch_split": split, "drop_last": drop_last, "accumulation_steps": batches, "warm_up": warm_up}
    return values | {"gradient_clipping": clipping, "early_stopping": stopping}


def _clipping(left: Any, right: Any, seed: Mapping[str, Any], *, key: str) -> dict[str, float] | None:
    given = {name: value for name, value in seed.items() if value is not None}
    index, title = list(CLIPPING).index(next(iter(given), NONE)), lambda one: CLIPPING[one]
    way = left.selectbox("Clip gradients", CLIPPING, index=index, key=key, help=CLIPPING_HELP, format_func=title)
    if way == NONE:
        return None
    return {way: right.number_input("Limit", value=float(given.get(way, 1.0)), format="%g", key=f"{key}-{way}")}


def _stopping(seed: Mapping[str, Any], *, key: str) -> dict[str, Any] | None:
    known = EarlyStopping().model_dump() | dict(seed)
    one, two, three, _ = st.columns(4)
    index, title = list(METRICS).index(known["metric"]) if seed else 0, lambda one: METRICS[one]
    metric = one.selectbox("Stop early by", METRICS, index=index, key=key, help=STOPPING_HELP, format_func=title)
    if metric == NONE:
        return None
    patience = two.number_input("Patience (epochs)", 1, value=known["patience"], key=f"{key}-patience")
    delta = float(known["min_delta"])
    least = three.number_input("Least improvement", 0.0, value=delta, format="%g", key=f"{key}-delta")
    return {"metric": metric, "patience": patience, "min_delta": least}
