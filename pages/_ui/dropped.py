"""How files that were dropped on a draft change it. Pure functions."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import Any

from pages._ui import drafts
from unifiednn_core.base.errors import Finding
from unifiednn_core.data.values import BYTE, FEWEST_PIXELS, SPLIT_PART, pixel_divisor
from unifiednn_core.spec.run import document_kind
from unifiednn_core.views import fit
from unifiednn_core.views.runs import FileView

TESTS = frozenset({"test", "tests", "testing", "val", "valid", "validation", "eval"})
PARTS = frozenset({"train", "training", "data", "dataset", *TESTS})
"""Words in the name of a data set that say which part it is."""
AT_ONCE_S = 10.0
"""Parts of one file enter the library within this."""
FILES = ("model", "train_data", "test_data")
Document = drafts.Document


def with_files(
    document: Mapping[str, Any], files: Sequence[FileView], library: Sequence[FileView], names: Collection[str]
) -> Document:
    """The draft with a sub-model for each model among the files, on the data that fit it: of these, else the library.

    `names` are those of known architectures. Data without a model go to the sub-models that have none. What data a
    sub-model has, and their scale, is a guess.
    """
    changed = dict(document)
    data = [file for file in files if file.kind == "data"]
    tests = [file for file in data if TESTS & _words(file.filename)]
    trains = [file for file in data if file not in tests]
    models = [file for file in files if file.kind in ("model", "weights")]
    for at, model in enumerate(models):
        own = trains[at : at + 1] if len(models) == len(trains) else []
        guesses = _data_for(model, trains, tests, own, library) or _data_of_library(model, library)
        taken = [str(one.get("name")) for one in drafts.submodels(changed)]
        architecture = {"architecture": _architecture(model.filename, names)} if model.kind == "weights" else {}
        name = drafts.free_name(model.filename, taken)
        part = {"name": name, "model": drafts.reference(model), **architecture}
        changed = drafts.put(changed, None, drafts.with_guesses(part, guesses))
    known = {drafts.reference(file): file for file in library}
    for at, part in enumerate(drafts.submodels(changed)):
        if not part.get("train_data") and (chosen := known.get(str(part.get("model")))) is not None:
            found = _data_for(chosen, trains, tests, [], library)
            guesses = {entry: value for entry, value in found.items() if part.get(entry) is None}
            changed = drafts.put(changed, at, drafts.with_guesses(part, guesses))
    return with_names(changed, library)


def with_document(document: Mapping[str, Any], filename: str, found: Mapping[str, Any]) -> Document:
    """The draft with what a JSON file says.

    A spec fills an empty draft, and adds its sub-models to any other. Hyper-parameters are those of the sub-model or
    model that is named like the file, else of the last one.
    """
    listed = drafts.submodels(document)
    if document_kind(found) == "spec":
        if not listed:
            return {**document, **found}
        for part in found["submodels"]:
            taken = [str(one.get("name")) for one in drafts.submodels(document)]
            name = str(part.get("name", "model"))
            free = drafts.free_name(name, taken) if name.lower() in {one.lower() for one in taken} else name
            document = drafts.put(document, None, {**part, "name": free})
        return dict(document)
    stem = filename.rsplit(".", 1)[0].lower()
    named = [at for at, one in enumerate(listed) if str(one.get("name", "")).lower() == stem]
    at = next(iter(named), len(listed) - 1)
    return drafts.put(document, at, {**listed[at], "hyperparameters": dict(found)}) if listed else dict(document)


def with_names(document: Mapping[str, Any], library: Sequence[FileView]) -> Document:
    """The draft with files by content where it names them as the library does; of equal names the newest file."""
    newest = {file.filename: drafts.reference(file) for file in sorted(library, key=lambda one: one.created_at_s)}

    def found(name: object) -> object:
        return newest.get(name.rsplit("/", 1)[-1], name) if isinstance(name, str) else name

    def resolved(part: Document) -> Document:
        start = part.get("start_from")
        more = {"start_from": {**start, "file": found(start.get("file"))}} if isinstance(start, Mapping) else {}
        return {**part, **{entry: found(part[entry]) for entry in FILES if entry in part}, **more}

    return {**document, "submodels": [resolved(part) for part in drafts.submodels(document)]}


def missing(document: Mapping[str, Any], library: Sequence[FileView]) -> tuple[Finding, ...]:
    """A warning for each file that a draft names and the library does not have."""
    known = {drafts.reference(file) for file in library}
    return tuple(
        Finding(
            severity="warning",
            title="File not found",
            field=f"submodels.{part.get('name')}.{entry}",
            message=f"The library has no '{drafts.short_reference(str(part[entry]))}'.",
            remedy="Drop it here, or choose another file in the form.",
        )
        for part in drafts.submodels(document)
        for entry in FILES
        if part.get(entry) and part[entry] not in known
    )


def _data_for(
    model: FileView,
    trains: Sequence[FileView],
    tests: Sequence[FileView],
    own: Sequence[FileView],
    library: Sequence[FileView],
) -> Document:
    """Training and test data of a model: named like it, else those at its place (`own`), else the first that fit.

    With the scale of their inputs; nothing if none fit.
    """
    fitting = [file for file in trains if not fit.why_no_data(model, file)]
    train = _first(fitting, lambda file: bool(_base(file) & _words(model.filename)), lambda file: file in own)
    if train is None:
        return {}
    ours = [file for file in tests if not fit.why_no_test(train, file)]
    test = _first(ours, lambda file: _base(file) == _base(train))
    if test is None:  # a part of the same file
        test = next((file for file in library if _is_test_of(file, train)), None)
    tested = {} if test is None else {"test_data": drafts.reference(test)}
    scale = scale_for(model, train)
    scaled = {} if scale is None else {"scale": scale}
    return {"train_data": drafts.reference(train), **tested, **scaled}


def _data_of_library(model: FileView, library: Sequence[FileView]) -> Document:
    """Data of the library that surely fit a model: named like it, else the only ones; nothing if there is doubt."""
    whole = (file for file in library if file.kind == "data" and not SPLIT_PART.search(file.filename))
    fitting = [file for file in whole if fit.fits(model, file) and not TESTS & _words(file.filename)]
    named = [file for file in fitting if _base(file) & _words(model.filename)]
    [only, *more] = named or fitting or [model]
    return {} if more or only is model else _data_for(model, [only], [], [], library)


def scale_for(model: FileView | None, data: FileView) -> float | None:
    """Scale that makes 8-bit images 0 to 1; None for other data, and for a network that takes ids."""
    takes, shape = str((model and model.facts.get("input_dtype")) or ""), data.facts.get("input_shape")
    several = bool(data.facts.get("inputs"))
    if data.facts.get("input_dtype") != "uint8" or several or "int" in takes or not isinstance(shape, list):
        return None
    flattened = takes.startswith("float") and prod(shape) >= FEWEST_PIXELS
    seen = data.preview
    return 1 / pixel_divisor(seen.inputs.maximum if seen else BYTE) if len(shape) > 1 or flattened else None


def _first(files: Sequence[FileView], *wanted: Callable[[FileView], bool]) -> FileView | None:
    """The first file that is wanted, the earlier wishes first; else the first one."""
    ordered = sorted(files, key=lambda file: [not wish(file) for wish in wanted])
    return next(iter(ordered), None)


def _is_test_of(file: FileView, train: FileView) -> bool:
    named = bool(TESTS & _words(file.filename)) and _base(file) == _base(train)
    at_once = abs(file.created_at_s - train.created_at_s) < AT_ONCE_S
    return file.kind == "data" and named and at_once and not fit.why_no_test(train, file)


def _words(filename: str) -> frozenset[str]:
    return frozenset(re.split(r"[^a-z0-9]+", filename.partition(".")[0].lower())) - {""}


def _base(file: FileView) -> frozenset[str]:
    return _words(file.filename) - PARTS


def _architecture(filename: str, names: Collection[str]) -> Document:
    fitting = [name for name in names if name in filename.lower()]
    return {"name": max(fitting, key=len, default=next(iter(names), ""))}
