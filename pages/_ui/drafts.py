"""A draft: the JSON of an unfinished run. Pure functions; each change returns a new document."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.values import SPLIT_PART
from unifiednn_core.spec.run import RunSpec, SubModelSpec, parse_run
from unifiednn_core.spec.sweep import SWEEP
from unifiednn_core.views.runs import FileView
from unifiednn_core.views.wording import count_text

Document = dict[str, Any]
ENTRIES = frozenset({*SubModelSpec.model_fields, SWEEP})
EDITING = "editing"
PLANS = ("baselines", "baselines_first", "filenames", EDITING)
"""Entries of a draft that no spec has: the baselines, names of files when they were chosen, and the open form: the
place `at` of its sub-model, None for a new one, and what is `entered`.
"""
GUESSED = "guessed"
"""Entry of a sub-model of a draft: what nobody chose, with its value. An entry that has another value is no guess."""


def new() -> Document:
    """Empty draft. Turns of 1 s are equal for all; those of an epoch, as published, favour long epochs."""
    policy = {"name": "round_robin", "unit": "seconds"}
    return {"name": "hybrid", "seed": 0, "device": "auto", "policy": policy, "submodels": []}


def submodels(document: Mapping[str, Any]) -> list[Document]:
    """Sub-models of a draft, in order of arrival."""
    return list(document.get("submodels", ()))


def put(document: Mapping[str, Any], at: int | None, submodel: Document) -> Document:
    """Replace the sub-model at a place, or append it if the place is None."""
    listed = submodels(document)
    if at is None or at >= len(listed):
        listed.append(submodel)
    else:
        listed[at] = submodel
    return {**document, "submodels": listed}


def edited(document: Mapping[str, Any], at: int | None, entered: Document) -> Document:
    """The draft with what an open form holds; `at` is the place of its sub-model, None for a new one."""
    return {**document, EDITING: {"at": at, "entered": entered}}


def closed(document: Mapping[str, Any]) -> Document:
    """The draft without an open form."""
    return {entry: value for entry, value in document.items() if entry != EDITING}


def with_guesses(submodel: Mapping[str, Any], entries: Mapping[str, Any]) -> Document:
    """The sub-model with entries that nobody chose."""
    return {**submodel, **entries, **({GUESSED: {**submodel.get(GUESSED, {}), **entries}} if entries else {})}


def is_guess(submodel: Mapping[str, Any], entry: str) -> bool:
    """Whether nobody chose this entry."""
    return entry in submodel.get(GUESSED, {}) and submodel[GUESSED][entry] == submodel.get(entry)


def duplicate(document: Mapping[str, Any], at: int) -> Document:
    """Add a copy of the sub-model at a place, under a free name, right after it."""
    listed = submodels(document)
    name = str(listed[at].get("name", "model"))
    copy = {**listed[at], "name": free_name(re.sub(r"-\d+$", "", name), [str(one.get("name")) for one in listed])}
    return {**document, "submodels": [*listed[: at + 1], copy, *listed[at + 1 :]]}


def move(document: Mapping[str, Any], at: int, to: int) -> Document:
    """Move the sub-model at one place to another; places beyond an end mean that end."""
    listed = submodels(document)
    if 0 <= at < len(listed):
        listed.insert(max(0, min(to, len(listed) - 1)), listed.pop(at))
    return {**document, "submodels": listed}


def remove(document: Mapping[str, Any], at: int) -> Document:
    """Leave out the sub-model at a place."""
    return {**document, "submodels": [s for place, s in enumerate(submodels(document)) if place != at]}


def spec_or_findings(document: Mapping[str, Any]) -> tuple[RunSpec | None, tuple[Finding, ...]]:
    """Spec of the draft, or findings about what is missing or invalid."""
    try:
        spec = {entry: value for entry, value in document.items() if entry not in PLANS}
        listed = [{entry: value for entry, value in one.items() if entry != GUESSED} for one in submodels(document)]
        return parse_run({**spec, "submodels": listed}), ()
    except BadInput as error:
        return None, error.findings


def findings_by_entry(found: Iterable[Finding]) -> dict[str, list[Finding]]:
    """Findings about one sub-model, by its entry that they name; "" if they name none."""
    by_entry: dict[str, list[Finding]] = {}
    for finding in found:
        path = finding.field.split(".")
        entry = path[2] if path[0] == "submodels" and len(path) > 2 else path[0] if path[0] in ENTRIES else ""
        by_entry.setdefault(entry, []).append(finding)
    return by_entry


def entry_at(document: Mapping[str, Any], field: str) -> tuple[Document, str] | None:
    """The object of a draft that holds the entry of a path such as `submodels.lenet.scale`, and the entry's name.

    None if there is no such object. Of several sub-models of one name it is the last.
    """
    top, *path = field.split(".")
    if top != "submodels":
        return (dict(document), field) if not path else None
    here: Any = next((one for one in reversed(submodels(document)) if path and one.get("name") == path[0]), None)
    for entry in path[1:-1]:
        here = here.get(entry, {}) if isinstance(here, Mapping) else None
    return (dict(here), path[-1]) if isinstance(here, Mapping) and len(path) > 1 else None


def fixed(document: Mapping[str, Any], finding: Finding) -> Document:
    """The draft with the fix of a finding, which changes the entry that it names."""
    found = entry_at(document, finding.field)
    if found is None or finding.fix is None:
        return dict(document)
    (holder, entry), fix = found, finding.fix
    if fix.verb == "rename":
        holder = {str(fix.value) if name == entry else name: value for name, value in holder.items()}
    elif fix.verb == "remove":
        holder[entry] = [one for one in holder.get(entry, ()) if _name_of(one) != fix.value]
    else:
        holder[entry] = fix.value
    top, *path = finding.field.split(".")
    return _with(document, path, holder) if top == "submodels" else holder


def _name_of(entry: Any) -> Any:
    """Name of an entry of a list, which may be its name alone."""
    return entry.get("name") if isinstance(entry, Mapping) else entry


def with_data(document: Mapping[str, Any], field: str, data: Mapping[str, str]) -> Document:
    """The draft with other data of the sub-model that a path names."""
    found = entry_at(document, field)
    return dict(document) if found is None else _with(document, field.split(".")[1:], {**found[0], **data})


def _with(document: Mapping[str, Any], path: Sequence[str], holder: Document) -> Document:
    """The draft with another object at the path below `submodels`, whose last part is an entry of it."""
    name, *inner = path[:-1]
    listed = submodels(document)
    at = max(place for place, one in enumerate(listed) if one.get("name") == name)

    def put_in(here: Any, rest: Sequence[str]) -> Document:
        return holder if not rest else {**here, rest[0]: put_in(here.get(rest[0], {}), rest[1:])}

    return put(document, at, put_in(listed[at], inner))


def entries_at_fault(found: Iterable[Finding]) -> frozenset[str]:
    """Names on the paths of findings about one sub-model, below it: `hyperparameters`, `warm_up`, `steps`."""
    paths = (finding.field.split(".") for finding in found)
    return frozenset(name for path in paths for name in (path[2:] if path[0] == "submodels" else path))


def free_name(filename: str, taken: Sequence[str]) -> str:
    """Name for a sub-model after its file: allowed characters only, `-2` and so on if it is taken."""
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", filename.rsplit(".", 1)[0]).strip("-_")[:56] or "model"
    lower = {name.lower() for name in taken}
    numbered = (stem if number == 1 else f"{stem}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in numbered if name.lower() not in lower)


def reference(file: FileView) -> str:
    """Reference to a file of the library in a spec."""
    return f"sha256:{file.sha256}"


def revision(document: Mapping[str, Any]) -> str:
    """Content of a draft, equal for equal drafts; without file names, which saving adds."""
    return json.dumps({entry: value for entry, value in document.items() if entry != "filenames"}, sort_keys=True)


def summary(submodel: Mapping[str, Any], filenames: Mapping[str, str], data: FileView | None = None) -> str:
    """One line about a sub-model: files, start, main settings, and what becomes of its training `data`.

    `filenames` maps references to names.
    """
    hyper = submodel.get("hyperparameters", {})
    model, train, test = (_short(submodel.get(key) or "", filenames) for key in ("model", "train_data", "test_data"))
    if (whole := SPLIT_PART.sub("", test)) != test and whole == SPLIT_PART.sub("", train):
        train = whole  # the split is told below
    start = submodel.get("start_from") or {}
    begins = f" · from {_short(start['file'], filenames)}" if start.get("file") else ""
    swept = submodel.get(SWEEP) or {}
    changes = submodel.get("transforms") or ()
    changed = f" · {count_text(len(changes), 'transform')}" if changes else ""
    members = ""
    if swept:
        count = prod(map(len, swept.values()))
        members = f" · sweep of {count} over {', '.join(swept)}"
    rate = short_number(hyper.get("learning_rate", 0.01))
    files = f"{model or 'no model yet'} on {train}" if train else f"{model or 'no model yet'}, no data yet"
    files += " (guessed)" if is_guess(submodel, "train_data") else ""
    optimizer = f"{hyper.get('optimizer', 'sgd')} at {rate}"
    epochs = count_text(hyper.get("epochs", 1), "epoch")
    length = f"{epochs} of batches of {hyper.get('batch_size', 32)}"
    treated = _treatment(submodel, test, data)
    return f"{files}{begins} · {optimizer} · {length}{changed}{members}{treated}"


def _treatment(submodel: Mapping[str, Any], test: str, data: FileView | None) -> str:
    """How the inputs are scaled, what tests the network, how many classes there are; what is guessed comes last."""
    said: list[tuple[str, bool]] = []
    if submodel.get("scale") is not None:
        said.append((_scaling(submodel["scale"], data), is_guess(submodel, "scale")))
    said += [(f"{entry} {short_number(submodel[entry])}", False) for entry in ("mean", "std") if submodel.get(entry)]
    if test:
        part = SPLIT_PART.search(test)
        words = f"{100 - float(part[1]):g}/{part[1]} split" if part else f"tested on {test}"
        said.append((words, is_guess(submodel, "test_data")))
    classes = None if data is None else data.facts.get("classes")
    if isinstance(classes, int):
        said.append((count_text(classes, "class"), is_guess(submodel, "train_data")))
    chosen, guesses = (", ".join(words for words, guess in said if guess is wanted) for wanted in (False, True))
    return (f" · {chosen}" if chosen else "") + (f" · {guesses} (guessed)" if guesses else "")


def _scaling(scale: object, data: FileView | None) -> str:
    """A scale as people say it: `pixels / 255`."""
    shape = data and data.facts.get("input_shape")
    what = "pixels" if isinstance(shape, list) and len(shape) in (2, 3) else "inputs"
    divisor = 1 / scale if isinstance(scale, int | float) and scale > 0 else 0.5
    whole = abs(divisor - round(divisor)) < 1e-6
    return f"{what} / {divisor:.0f}" if whole else f"{what} * {short_number(scale)}"


def argument(text: str) -> object:
    """Value of an argument typed into a form: JSON if it is valid, otherwise the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text.strip()


def argument_text(value: object) -> str:
    """Argument as it is typed into a form; `argument` reads it back."""
    return value if isinstance(value, str) and argument(value) == value else json.dumps(value)


def listed(text: str) -> object:
    """Value of a list typed into a form, with or without its brackets."""
    value, inner = argument(text), argument(f"[{text}]")
    return inner if isinstance(inner, list) and not isinstance(value, list) else value


def names(text: str) -> list[str]:
    """Names typed into a form, separated by commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def number(text: str) -> object:
    """Value of a number typed into a form; `1/255` is the quotient."""
    parts = re.fullmatch(r"\s*(\d+)\s*/\s*([1-9]\d*)\s*", text)
    return int(parts[1]) / int(parts[2]) if parts else argument(text)


def number_text(value: object) -> str:
    """Number as it is typed into a form: `1/255` for that quotient; `number` reads it back."""
    return "1/255" if value == 1 / 255 else argument_text(value)


def short_number(value: object) -> str:
    """Number as a person writes it: `0.01`; anything else as it was typed."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else argument_text(value)


def short_reference(ref: str) -> str:
    """A reference to a file as people read it: the start of its hash, or its name without folders."""
    return f"{ref[:17]}…" if ref.startswith("sha256:") else ref.rsplit("/", 1)[-1]


def _short(ref: str, filenames: Mapping[str, str]) -> str:
    return filenames.get(ref) or short_reference(ref)
