"""The editor of one sub-model: files, input scaling, hyper-parameters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from pages._ui import drafts, frame, hyper_form, markup, uploads
from unifiednn_core.errors import Finding
from unifiednn_core.views import FileView

NO_TEST_DATA = ""
SCALING_HELP = (
    "Inputs become (inputs * scale - mean) / std. Leave empty what is not needed; "
    f"8-bit images usually need the scale 1/255 = {1 / 255:.6f}."
)


def submodel_form(submodel: Mapping[str, Any], taken: Sequence[str], *, key: str) -> dict[str, Any]:
    """Draw the editor seeded with `submodel` and return what it now says; `taken` are the other names."""
    files = frame.service().files()
    models = [file for file in files if file.kind in ("model", "weights")]
    data = [file for file in files if file.kind == "data"]
    left, middle, right = st.columns(3)
    with left:
        model = _pick("Model", models, submodel.get("model"), uploads.MODEL_SUFFIXES, key=f"{key}-model")
    with middle:
        train = _pick("Training data", data, submodel.get("train_data"), uploads.DATA_SUFFIXES, key=f"{key}-train")
    with right:
        test = _pick(
            "Test data", data, submodel.get("test_data"), uploads.DATA_SUFFIXES, key=f"{key}-test", optional=True
        )
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
    if chosen is not None and chosen.kind == "weights":
        values["architecture"] = _architecture(submodel.get("architecture") or {}, chosen.filename, key)
    values |= _scaling(submodel, key)
    values["hyperparameters"] = hyper_form.hyperparameters(submodel.get("hyperparameters", {}), key=f"{key}-hyper")
    return {entry: value for entry, value in values.items() if value is not None}


def findings_of(submodel: Mapping[str, Any], taken: Sequence[str]) -> tuple[Finding, ...]:
    """What is wrong with a sub-model on its own, and whether its name is taken."""
    others = [{"name": name, "model": "-", "train_data": "-"} for name in taken]
    return drafts.spec_or_findings({"submodels": [*others, dict(submodel)]})[1]


def _pick(
    label: str,
    files: Sequence[FileView],
    chosen: str | None,
    suffixes: tuple[str, ...],
    *,
    key: str,
    optional: bool = False,
) -> str:
    wanted = st.session_state.get(f"{key}-uploaded", chosen)
    names = {drafts.reference(file): file.filename for file in files}
    options = ([NO_TEST_DATA] if optional else []) + list(names)
    if chosen and chosen not in options:  # a path of a spec that was loaded, or a file that is gone
        options.append(chosen)
    index = options.index(wanted) if wanted in options else (0 if optional else None)
    picked = st.selectbox(
        label,
        options,
        index=index,
        format_func=lambda ref: names.get(ref, ref or "none"),
        key=f"{key}-pick-{wanted}",
        placeholder="choose from the library",
    )
    with st.popover("Upload", icon=":material/upload:", type="tertiary", key=f"{key}-popover"):
        file = uploads.upload(f"{label}: {', '.join(f'.{s}' for s in suffixes)}", suffixes, key=f"{key}-upload")
    if file is not None:
        st.session_state[f"{key}-uploaded"] = drafts.reference(file)
        st.rerun()
    return picked or ""


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
        st.html(f'<div class="u-small u-faint">{markup.text(SCALING_HELP)}</div>')
        columns = st.columns(3)
        values = {}
        for column, entry in zip(columns, ("scale", "mean", "std"), strict=True):
            known = submodel.get(entry)
            typed = column.text_input(entry.capitalize(), "" if known is None else repr(known), key=f"{key}-{entry}")
            values[entry] = drafts.argument(typed) if typed.strip() else None
    return values
