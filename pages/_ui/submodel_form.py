"""The editor of one sub-model: files, start, input scaling, hyper-parameters, with each finding at its field."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import drafts, frame, hyper_form, markup, split_form, start_form, uploads
from pages._ui.file_pick import pick
from unifiednn_core.errors import Finding
from unifiednn_core.views.runs import FileView

SCALING_HELP = (
    "Inputs become (inputs * scale - mean) / std. Leave empty what is not needed; "
    f"8-bit images usually need the scale 1/255 = {1 / 255:.6f}."
)


def submodel_form(submodel: Mapping[str, Any], taken: Sequence[str], *, key: str) -> dict[str, Any]:
    """Draw the editor seeded with `submodel` and return what it now says; `taken` are the other names."""
    found = drafts.findings_by_entry(st.session_state.get(f"{key}-found", ()))

    def said(*entries: str) -> None:
        here = [finding for entry in entries for finding in found.pop(entry, [])]
        if here:
            st.html(markup.findings(here))

    files = frame.service().files()
    models = [file for file in files if file.kind in ("model", "weights")]
    data = [file for file in files if file.kind == "data"]
    left, middle, right = st.columns(3)
    with left:
        model = pick("Model", models, submodel.get("model"), uploads.MODEL_SUFFIXES, key=f"{key}-model")
        said("model")
    with middle:
        train = pick("Training data", data, submodel.get("train_data"), uploads.DATA_SUFFIXES, key=f"{key}-train")
        said("train_data")
    with right:
        known = submodel.get("test_data")
        test = pick("Test data", data, known, uploads.DATA_SUFFIXES, key=f"{key}-test", nothing="none")
        said("test_data")
        whole = next((file for file in data if drafts.reference(file) == train), None)
        if whole is not None and not test:
            _offer_split(whole, key)
    values: dict[str, Any] = {"model": model, "train_data": train, "test_data": test or None}
    chosen = next((file for file in models if drafts.reference(file) == model), None)
    name = submodel.get("name") or (drafts.free_name(chosen.filename, taken) if chosen else "")
    one, two = st.columns([2, 1])
    # The key follows the model until the sub-model has a name of its own.
    name_key = f"{key}-name-{'' if submodel.get('name') else model}"
    values["name"] = one.text_input("Name", name, key=name_key, max_chars=64)
    values["priority"] = int(
        two.number_input(
            "Priority",
            value=int(submodel.get("priority", 0)),
            key=f"{key}-priority",
            help="Lower goes first, under the policy Priority.",
        )
    )
    said("name", "priority")
    if chosen is not None and chosen.kind == "weights":
        values["architecture"] = _architecture(submodel.get("architecture") or {}, chosen.filename, key)
        said("architecture")
    values["start_from"] = start_form.start_from(submodel.get("start_from") or {}, files, key=f"{key}-start")
    said("start_from")
    values |= _scaling(submodel, key)
    said("scale", "mean", "std")
    values["hyperparameters"] = hyper_form.hyperparameters(submodel.get("hyperparameters", {}), key=f"{key}-hyper")
    said("hyperparameters", *list(found))  # and what belongs to no field
    return {entry: value for entry, value in values.items() if value is not None}


def _offer_split(whole: FileView, key: str) -> None:
    """Offer to make test data of the training data; the two parts are chosen then."""
    parts = split_form.draw(whole, key=f"{key}-split", label="Split training data")
    if parts is not None:
        for field, part in zip(("train", "test"), parts, strict=True):
            st.session_state[f"{key}-{field}-uploaded"] = drafts.reference(part)
        st.rerun()


def tell(found: Sequence[Finding], *, key: str) -> None:
    """Let the form of this key show findings from now on, each at its field."""
    st.session_state[f"{key}-found"] = tuple(found)


def findings_of(submodel: Mapping[str, Any], taken: Sequence[str], *, key: str) -> tuple[Finding, ...]:
    """What is wrong with a sub-model on its own: JSON that was not applied, its entries, a name that is taken."""
    others = [{"name": name, "model": "-", "train_data": "-"} for name in taken]
    unapplied = hyper_form.unapplied(f"{key}-hyper")
    return unapplied or drafts.spec_or_findings({"submodels": [*others, dict(submodel)]})[1]


def _architecture(seed: Mapping[str, Any], filename: str, key: str) -> dict[str, Any]:
    names = list(frame.service().architectures())
    one, two = st.columns(2)
    guess = next((name for name in names if name in filename.lower()), names[0])
    index = names.index(seed["name"] if seed.get("name") in names else guess)
    name = one.selectbox("Architecture of these weights", names, index=index, key=f"{key}-architecture")
    args = two.text_input(
        "Its arguments as JSON",
        json.dumps(seed.get("args", {})),
        key=f"{key}-architecture-args",
        help=f"Those that the weights were trained with; others keep their defaults: "
        f"`{json.dumps(frame.service().architecture_defaults(name or names[0]))}`",
    )
    parsed = drafts.argument(args) if args.strip() else {}
    return {"name": name or "", "args": parsed}


def _scaling(submodel: Mapping[str, Any], key: str) -> dict[str, Any]:
    with st.expander("Input scaling", icon=":material/tune:", expanded=submodel.get("scale") is not None):
        st.html(markup.small(SCALING_HELP))
        columns = st.columns(3)
        values = {}
        for column, entry in zip(columns, ("scale", "mean", "std"), strict=True):
            known = submodel.get(entry)
            typed = column.text_input(entry.capitalize(), "" if known is None else repr(known), key=f"{key}-{entry}")
            values[entry] = drafts.argument(typed) if typed.strip() else None
    return values
