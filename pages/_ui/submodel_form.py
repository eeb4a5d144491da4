"""The sub-models of a draft: their rows, and the editor of one, with each finding at its field."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import (
    actions,
    drafts,
    dropped,
    file_pick,
    frame,
    hyper_form,
    meaning_form,
    placement_form,
    run_form,
    split_form,
    sweep_form,
    transform_form,
    uploads,
)
from unifiednn_core.base.errors import Finding
from unifiednn_core.views import fit, markup, wording
from unifiednn_core.views.runs import FileView

SCALING_HELP = "Inputs become (inputs * scale - mean) / std. 8-bit images usually need the scale 1/255."
ARGUMENTS_HELP = "The arguments that the weights were trained with; others keep their defaults:"
PRIORITY_HELP = "Lower goes first, under the policy Priority."
DEADLINE_HELP = "Minutes from submission to end; 0 is none. Under the policy Deadline, what is due first goes first."
BY_SHAPE, OF_WEIGHTS = "by_shape", ("names", "entry")
BY_SHAPE_HELP = "For weights with other names: matches them in order, provided that all shapes agree."
ENTRY_HELP = "Entry of the file that holds the weights, such as ema, if several could."
GRAPH = "pt2"
"""The format whose networks can be placed."""
KEPT = ("owner", "sweep_of", drafts.GUESSED)
"""Entries without a field, which stay as they are."""
START_KINDS = ("checkpoint", "weights")
TAKE = {
    "everything": (
        "Everything",
        "Continues exactly there, with optimizer, LR scheduler, random numbers and data order. Trained epochs count.",
    ),
    "weights": ("Only the weights", "Starts a new training with these weights."),
}
ICONS = {
    "up": ("arrow_upward", "Move up {name}"),
    "down": ("arrow_downward", "Move down {name}"),
    "top": ("vertical_align_top", "Move {name} to the top"),
    "edit": ("edit", "Edit {name}"),
    "copy": ("content_copy", "Duplicate {name}"),
    "remove": ("delete", "Remove {name}"),
}


def submodel_form(
    submodel: Mapping[str, Any], taken: Sequence[str], *, key: str, ranked: bool = True
) -> dict[str, Any]:
    """Draw the editor seeded with `submodel`; returns its entries. `taken` are the names of the others.

    Without `ranked` there is no priority to be set.
    """
    told = st.session_state.get(f"{key}-found", ())
    found = drafts.findings_by_entry(told)
    wrong = drafts.entries_at_fault(told)

    def said(*entries: str) -> None:
        here = [finding for entry in entries for finding in found.pop(entry, [])]
        if here:
            st.html(markup.findings(here))

    files = frame.service().library.files()
    models = [file for file in files if file.kind in ("model", "weights")]
    data = [file for file in files if file.kind == "data"]
    left, middle, right = st.columns(3)
    with left:
        trained_on = _file(data, file_pick.current(f"{key}-train", submodel.get("train_data")))
        model = file_pick.pick(
            "Model",
            models,
            submodel.get("model"),
            uploads.MODEL_SUFFIXES,
            key=f"{key}-model",
            why_not=lambda file: "" if trained_on is None else fit.why_no_data(file, trained_on),
        )
        chosen = _file(models, model)
        said("model")
    with middle:
        known = submodel.get("train_data")
        train = file_pick.pick(
            "Training data",
            data,
            known,
            uploads.DATA_SUFFIXES,
            key=f"{key}-train",
            why_not=lambda file: fit.why_no_data(chosen, file),
        )
        whole = _file(data, train)
        said("train_data")
    with right:
        known = submodel.get("test_data")
        test = file_pick.pick(
            "Test data",
            data,
            known,
            uploads.DATA_SUFFIXES,
            key=f"{key}-test",
            nothing="none",
            why_not=lambda file: fit.why_no_test(whole, file),
        )
        said("test_data")
        if whole is not None and not test:
            _offer_split(whole, key)
    without_field = KEPT if ranked else (*KEPT, "priority")
    is_read = split_form.is_read(submodel, taken)
    without_field = (*without_field, *split_form.ENTRIES) if is_read else without_field
    undrawn = {entry: value for entry, value in submodel.items() if entry in without_field}
    values: dict[str, Any] = {**undrawn, "model": model, "train_data": train, "test_data": test or None}
    values |= _name_and_order(submodel, chosen, _own_name(submodel, models, taken), taken, key=key, ranked=ranked)
    said("name", "priority", "deadline_s")
    if chosen is not None and chosen.kind == "weights":
        values["architecture"] = _network_of(chosen, submodel, f"{key}-of-{model}", key, wrong="architecture" in wrong)
        said("architecture")
    elif chosen is None and model == submodel.get("model"):  # a file that is not in the library
        values["architecture"] = submodel.get("architecture")
    start = submodel.get("start_from") or {}
    values["start_from"] = _start_from(start, files, key=f"{key}-start", opened="start_from" in wrong)
    said("start_from")
    before = _file(data, submodel.get("train_data"))
    opened = bool(wrong & {"scale", "mean", "std"})
    if whole is None or (before is not None and fit.alike(before, whole)):
        values |= _scaling(submodel, key, opened=opened)
    else:
        values = _scaling_of_other_data(values, chosen, whole, key, opened=opened)
    said("scale", "mean", "std")
    inputs = meaning_form.input_names(whole)
    values["transforms"] = transform_form.transforms(
        submodel.get("transforms", ()), inputs, key=f"{key}-transforms", opened="transforms" in wrong
    )
    said("transforms")
    opened = bool(wrong & {"inputs", "output", "auxiliary"})
    values |= meaning_form.bindings(submodel, chosen, whole, key=f"{key}-bindings", opened=opened)
    said("inputs", "output", "auxiliary")
    opened = bool(wrong & {"targets", "classes", "loading"})
    values |= meaning_form.targets_and_loading(submodel, key=f"{key}-meaning", opened=opened)
    said("targets", "classes", "loading")
    seed = submodel.get("hyperparameters", {})
    values["hyperparameters"] = hyper_form.hyperparameters(
        seed, key=f"{key}-hyper", wrong=wrong, checked=st.session_state.get(f"{key}-saving", "")
    )
    said("hyperparameters")
    values["sweep"] = sweep_form.sweep(submodel.get("sweep", {}), values["hyperparameters"], key=f"{key}-sweep")
    if not is_read:
        values["split"] = split_form.split(submodel.get("split", {}), key=f"{key}-split-up")
    known = submodel.get("placement", {})
    if known or (chosen is not None and chosen.format == GRAPH):
        values["placement"] = placement_form.placement(known, key=f"{key}-devices")
    said("placement")
    values = {entry: value for entry, value in values.items() if value not in (None, [])}
    expands = "sweep" in values or ("split" in values and not is_read)
    if expands and (names := sweep_form.expansion(values)):
        st.html(markup.small(names))
    said("split", "sweep", *list(found))  # and findings that belong to no field
    return values


def _offer_split(whole: FileView, key: str) -> None:
    """Let the training data be split into those of training and of test."""
    parts = file_pick.draw_split(whole, key=f"{key}-split", label="Split training data")
    for field, part in zip(("train", "test"), parts or (), strict=False):
        file_pick.choose(part, key=f"{key}-{field}")
    if parts is not None:
        st.rerun()


def _network_of(
    chosen: FileView, submodel: Mapping[str, Any], own_key: str, key: str, *, wrong: bool
) -> dict[str, Any]:
    """Ask which network a file of weights is for, and how its names are to be read."""
    seed = submodel.get("architecture") or {}
    kept = seed if drafts.reference(chosen) == submodel.get("model") else {}
    asked = _architecture(seed, chosen.filename, key)
    opened = wrong or any(kept.get(entry) for entry in OF_WEIGHTS)
    with st.expander("Names in the file of weights", icon=":material/label:", expanded=opened):
        return asked | _of_weights(kept, own_key)


def _scaling_of_other_data(
    values: dict[str, Any], chosen: FileView | None, whole: FileView, key: str, *, opened: bool
) -> dict[str, Any]:
    """The values with a guess: what was said of the scale belonged to other data."""
    guess = {} if (scale := dropped.scale_for(chosen, whole)) is None else {"scale": scale}
    kind = f"{whole.facts.get('input_dtype')}-{whole.facts.get('input_shape')}"
    return drafts.with_guesses(values, guess) | _scaling(guess, f"{key}-{kind}", opened=opened)


def restart(key: str) -> None:
    """Let the form of this key begin anew; a file that is read in the background still arrives in it."""
    for entry in [name for name in st.session_state if str(name).startswith(f"{key}-")]:
        if not str(entry).endswith(uploads.READING):
            del st.session_state[entry]


def tell(found: Sequence[Finding], *, key: str, saving: str | None = None) -> None:
    """Let the form of this key show findings from now on, each at its field, and what its techniques save."""
    st.session_state[f"{key}-found"] = tuple(found)
    if saving is not None:
        st.session_state[f"{key}-saving"] = saving


def findings_of(submodel: Mapping[str, Any], taken: Sequence[str], *, key: str) -> tuple[Finding, ...]:
    """Findings about one sub-model: JSON that was not applied, invalid entries, a name that is taken."""
    others = [{"name": name, "model": "-", "train_data": "-"} for name in taken]
    unapplied = hyper_form.unapplied(f"{key}-hyper")
    if split_form.is_read(submodel, taken) and not submodel.get("part"):  # each part has its own line
        submodel = {entry: value for entry, value in submodel.items() if entry != "split"}
    return unapplied or drafts.spec_or_findings({"submodels": [*others, dict(submodel)]})[1]


def _file(files: Sequence[FileView], ref: str | None) -> FileView | None:
    return next((file for file in files if drafts.reference(file) == ref), None)


def _own_name(submodel: Mapping[str, Any], models: Sequence[FileView], taken: Sequence[str]) -> str:
    """The name of a sub-model; "" if it has none, or the one that its file gives it."""
    name, model = str(submodel.get("name") or ""), submodel.get("model")
    file = next((one for one in models if drafts.reference(one) == model), None)
    return "" if file is not None and name == drafts.free_name(file.filename, taken) else name


def _name_and_order(
    submodel: Mapping[str, Any], model: FileView | None, own_name: str, taken: Sequence[str], *, key: str, ranked: bool
) -> dict[str, Any]:
    one, two, three = st.columns([2, 1, 1])
    name = drafts.free_name(model.filename, taken) if model is not None and not own_name else own_name
    # The key follows the model until the sub-model has its own name.
    name_key = f"{key}-name-{'' if own_name or model is None else drafts.reference(model)}"
    values: dict[str, Any] = {"name": one.text_input("Name", name, key=name_key, max_chars=64)}
    if ranked:
        priority = int(submodel.get("priority", 0))
        values["priority"] = two.number_input(
            "Priority (low first)", value=priority, key=f"{key}-priority", help=PRIORITY_HELP
        )
    due_s, column = submodel.get("deadline_s"), three if ranked else two
    due_min = column.number_input(
        "Deadline (min)",
        0.0,
        None,
        due_s and due_s / 60,
        10.0,
        "%g",
        f"{key}-deadline",
        DEADLINE_HELP,
        placeholder="none",
    )
    return values | {"deadline_s": due_min * 60 if due_min else None}


def _architecture(seed: Mapping[str, Any], filename: str, key: str) -> dict[str, Any]:
    library = frame.service().library
    names = list(library.architectures())
    one, two = st.columns(2)
    guess = max((name for name in names if name in filename.lower()), key=len, default=names[0])
    index = names.index(seed["name"] if seed.get("name") in names else guess)
    name = one.selectbox("Architecture of these weights", names, index=index, key=f"{key}-architecture")
    defaults = json.dumps(library.architecture_defaults(name))
    tip = f"{ARGUMENTS_HELP} `{defaults}`"
    known = json.dumps(seed.get("args", {}))
    args = two.text_input("Its arguments as JSON", known, key=f"{key}-architecture-args", help=tip)
    return {"name": name, "args": drafts.argument(args) if args.strip() else {}}


def _scaling(submodel: Mapping[str, Any], key: str, *, opened: bool) -> dict[str, Any]:
    opened = opened or submodel.get("scale") is not None
    with st.expander("Input scaling", icon=":material/tune:", expanded=opened):
        st.html(markup.small(SCALING_HELP))
        values = {}
        for column, entry in zip(st.columns(3), ("scale", "mean", "std"), strict=True):
            known = submodel.get(entry)
            text = "" if known is None else drafts.number_text(known)
            typed = column.text_input(entry.capitalize(), text, key=f"{key}-{entry}")
            values[entry] = drafts.number(typed) if typed.strip() else None
    return values


def _start_from(
    seed: Mapping[str, Any], files: Sequence[FileView], *, key: str, opened: bool
) -> drafts.Document | None:
    """Draw the choice seeded with a `start_from` entry; returns the one that it now says, None for the model file."""
    offered = [file for file in files if file.kind in START_KINDS]
    shown = opened or bool(seed) or f"{key}-uploaded" in st.session_state
    label, known, nowhere = "Checkpoint or weights", seed.get("file"), "the model file itself"
    with st.expander("Start from a checkpoint", icon=":material/history:", expanded=shown):
        one, two = st.columns(2)
        with one:
            ref = file_pick.pick(label, offered, known, uploads.START_SUFFIXES, key=key, nothing=nowhere)
            file_pick.of_runs(key=key)
        if not ref:
            return None
        chosen = next((file for file in offered if drafts.reference(file) == ref), None)
        ways = ["weights"] if chosen is not None and chosen.kind == "weights" else list(TAKE)
        index, captions = (ways.index(seed["take"]) if seed.get("take") in ways else 0, [TAKE[way][1] for way in ways])
        title = {way: TAKE[way][0] for way in ways}.__getitem__
        take = two.radio("Load", ways, index, title, key=f"{key}-take-{ref}", captions=captions)
        kept = seed if ref == seed.get("file") else {}
        weights = chosen is not None and chosen.kind == "weights"
        own = _of_weights(kept, f"{key}-of-{ref}") if weights else {e: kept[e] for e in OF_WEIGHTS if kept.get(e)}
    return {"file": ref, "take": take, **own}


def _of_weights(seed: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Draw how names in a file of weights meet those of the network; returns the entries that say more than nothing."""
    one, two = st.columns(2, vertical_alignment="bottom")
    entry = one.text_input(
        "Entry with the weights",
        seed.get("entry") or "",
        key=f"{key}-entry",
        placeholder="found by itself",
        help=ENTRY_HELP,
    )
    known = seed.get("names") == BY_SHAPE
    by_shape = two.checkbox("Match weights by order and shape", known, key=f"{key}-names", help=BY_SHAPE_HELP)
    return ({"names": BY_SHAPE} if by_shape else {}) | ({"entry": entry.strip()} if entry.strip() else {})


def draw_rows(draft: drafts.Document, *, locked: bool) -> tuple[drafts.Document, int | None]:
    """Draw the rows; returns the draft as changed by them, and the place of a sub-model to be edited.

    `locked` keeps the rows as they are, while the editor of one is open.
    """
    files = frame.service().library.files()
    names = file_pick.short_names(files, draft.get("filenames", {}))
    known = {drafts.reference(one): one for one in files}
    changed, edit = dict(draft), None
    listed = drafts.submodels(draft)
    ranked = run_form.by_priority(draft.get("policy") or {})
    if ranked and listed:
        st.html(f'<div class="u-small u-faint u-right">{markup.text("Priority (low first)")}</div>')
    with st.container(key="rows-build"):
        for at, submodel in enumerate(listed):
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-build-{at}"):
                line = markup.faint(drafts.summary(submodel, names, known.get(submodel.get("train_data", ""))))
                st.html(f'{markup.signed_name(at, submodel["name"])}<div class="u-small u-entry">{line}</div>')
                priority = _priority(at, submodel, locked) if ranked else submodel.get("priority", 0)
                if priority != submodel.get("priority", 0):
                    changed = drafts.put(changed, at, {**submodel, "priority": priority})
                pressed = _buttons(at, submodel["name"], len(listed), locked)
            if pressed == "edit":
                edit = at
            elif pressed == "remove":
                changed = drafts.remove(changed, at)
            elif pressed == "copy":
                changed = drafts.duplicate(changed, at)
            elif pressed:
                changed = drafts.move(changed, at, {"up": at - 1, "down": at + 1, "top": 0}[pressed])
    return changed, edit


def _priority(at: int, submodel: drafts.Document, locked: bool) -> int:
    known, label = int(submodel.get("priority", 0)), f"Priority of {wording.plain(submodel['name'])}"
    # The key holds the value that is saved, so that a row that moved shows its own priority.
    more: dict[str, Any] = {"key": f"priority-{submodel['name']}-{at}-{known}", "disabled": locked, "width": 104}
    return int(st.number_input(label, value=known, label_visibility="collapsed", **more))


def _buttons(at: int, name: str, count: int, locked: bool) -> str:
    pressed, off = "", {"up": at == 0, "top": at == 0, "down": at == count - 1}
    with st.container(horizontal=True, key=f"icons-build-{at}", width="content", wrap=False):
        for action, (icon, verb) in ICONS.items():
            label = verb.format(name=wording.plain(name))
            if actions.icon_button(label, icon, f"{action}-{at}", disabled=locked or off.get(action, False)):
                pressed = action
    return pressed
