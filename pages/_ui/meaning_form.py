"""What a step means: which data each input of the network gets, which outputs count, and what the targets are."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from pages._ui import drafts, frame
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.views import markup
from unifiednn_core.views.runs import FileView

THE_INPUTS, THE_TARGETS = "inputs", "targets"
TARGETS = {"stored": "Stored in the data", "inputs": "The inputs", "next": "The next token"}
TARGETS_HELP = (
    "The inputs: an autoencoder learns to return its scaled inputs. The next token: a language model learns each id "
    "from those before it."
)
CLASSES = {"second": "Second", "last": "Last"}
CLASSES_HELP = (
    "Dimension of the outputs that holds the scores of classes, if there are more than two. Language models return "
    "them last; networks for segmentation second."
)
LOADING = {"auto": "Automatic", "resident": "On the device", "streamed": "Streamed"}
LOADING_HELP = (
    "Streamed: batches are read from the files ahead of their steps, in the same order and with the same bits. "
    "Automatic streams data that take more than half of the memory."
)
INPUTS_HELP = "Data of the same name go to an input by themselves. 'targets' gives it the targets, for a loss inside."
OUTPUT_HELP = "The output that the criterion compares with the targets."
AUXILIARY_HELP = (
    "Weight of the loss of this output in training, with the same criterion and targets. Empty: it has none."
)
CHOICES = {"targets": TARGETS, "classes": CLASSES, "loading": LOADING}


def input_names(file: FileView | None) -> list[str]:
    """Inputs of a data set or a network; empty if they are not known."""
    several = {} if file is None else file.facts.get("inputs", {})
    return list(several) if isinstance(several, Mapping) else []


def bindings(
    submodel: Mapping[str, Any], model: FileView | None, data: FileView | None, *, key: str, opened: bool = False
) -> dict[str, Any]:
    """Draw which data and outputs are meant, if there are several; returns the entries that are not the default."""
    seed = {entry: submodel.get(entry) for entry in ("inputs", "output", "auxiliary")}
    wanted, held = input_names(model), input_names(data)
    given = [] if model is None else model.facts.get("outputs")
    outputs = [str(name) for name in given] if isinstance(given, list | tuple) else []
    opened = opened or any(seed.values())
    if not opened and max(map(len, (wanted, held, outputs))) < 2:
        return {}
    with st.expander("Inputs and outputs", icon=":material/cable:", expanded=opened, key=f"{key}-fold"):
        mapping = _inputs(seed["inputs"] or {}, wanted, held or [THE_INPUTS], key=f"{key}-in")
        entries = {"inputs": mapping, **_outputs(seed, outputs, key=f"{key}-out")}
    return {entry: value for entry, value in entries.items() if value}


def _inputs(seed: Mapping[str, str], wanted: Sequence[str], held: Sequence[str], *, key: str) -> Any:
    st.html(markup.small(INPUTS_HELP))
    if not (wanted or seed):  # a network whose inputs only its check knows
        typed = st.text_input(
            "Inputs as JSON", "", key=f"{key}-json", placeholder='{"input of the network": "input of the data"}'
        )
        return drafts.argument(typed) if typed.strip() else {}
    values = {}
    for column, name in _in_columns([*dict.fromkeys((*wanted, *seed))]):
        options = list(dict.fromkeys((*held, THE_TARGETS, *([seed[name]] if name in seed else []))))
        index = options.index(seed[name]) if name in seed else None
        picked = column.selectbox(f"Input {name}", options, index, key=f"{key}-{name}", placeholder="by its name")
        if picked:
            values[name] = picked
    return values


def _outputs(seed: Mapping[str, Any], outputs: Sequence[str], *, key: str) -> dict[str, Any]:
    known, weights = seed["output"], seed["auxiliary"] or {}
    options = list(dict.fromkeys((*outputs, *([known] if known else []), *weights)))
    if len(options) < 2 and not known and not weights:
        return {}
    first = f"the first: {outputs[0]}" if outputs else "the first"
    index = options.index(known) if known else None
    with st.columns(3)[0]:
        output = st.selectbox("Output for the criterion", options, index, key=key, placeholder=first, help=OUTPUT_HELP)
    auxiliary = {}
    counted = output or (outputs[0] if outputs else None)
    for column, name in _in_columns([name for name in options if name != counted]):
        text = drafts.argument_text(weights[name]) if name in weights else ""
        label = f"Weight of {name}"
        typed = column.text_input(label, text, key=f"{key}-{name}", placeholder="none", help=AUXILIARY_HELP)
        if typed.strip():
            auxiliary[name] = drafts.argument(typed)
    return {"output": output, "auxiliary": auxiliary}


def _in_columns(names: Sequence[str], count: int = 3) -> list[tuple[Any, str]]:
    places = [column for _ in range(0, len(names), count) for column in st.columns(count)]
    return list(zip(places, names, strict=False))


def targets_and_loading(submodel: Mapping[str, Any], *, key: str, opened: bool = False) -> dict[str, Any]:
    """Draw targets, dimension of classes, and loading; returns the entries that differ from the default."""
    base = {entry: SubModelSpec.model_fields[entry].default for entry in CHOICES}
    known = base | {entry: value for entry, value in submodel.items() if value in CHOICES.get(entry, ())}
    labels = {
        "targets": ("Targets", TARGETS_HELP),
        "classes": ("Scores of classes in dimension", CLASSES_HELP),
        "loading": ("Loading", LOADING_HELP),
    }
    with st.expander(
        "Targets and loading", icon=":material/target:", expanded=opened or known != base, key=f"{key}-fold"
    ):
        values = {
            entry: frame.segments(
                label, list(CHOICES[entry]), known[entry], f"{key}-{entry}", partial(_word, entry), help=tip
            )
            for entry, (label, tip) in labels.items()
        }
    return {entry: value for entry, value in values.items() if value != base[entry]}


def _word(entry: str, choice: str) -> str:
    return CHOICES[entry][choice]
