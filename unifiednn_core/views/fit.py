"""Whether files of the library fit together, as far as their facts tell; the check has the last word. Pure."""

from collections.abc import Sequence

from unifiednn_core.views import markup
from unifiednn_core.views.runs import FileView


def why_no_data(model: FileView | None, data: FileView) -> str:
    """Why a data set does not fit a network, as a short text; empty if it may."""
    if model is None:
        return ""
    wanted, given = (_shape(file, "input_shape") for file in (model, data))
    if wanted is None or given is None or _several(model) or _several(data):
        return ""
    if len(wanted) != len(given) or any(one not in (None, other) for one, other in zip(wanted, given, strict=True)):
        return f"{markup.shape(given)} instead of {markup.shape(wanted)}"
    takes, has = (str(file.facts.get("input_dtype") or "") for file in (model, data))
    return "real numbers instead of ids" if takes.startswith("int") and has.startswith("float") else ""


def fits(model: FileView, data: FileView) -> bool:
    """Whether shapes are known and agree."""
    known = all(_shape(file, "input_shape") and not _several(file) for file in (model, data))
    return known and not why_no_data(model, data)


def alike(one: FileView, other: FileView) -> bool:
    """Whether the inputs of two data sets have the same type and shape, as those of two parts."""
    return all(one.facts.get(entry) == other.facts.get(entry) for entry in ("input_shape", "input_dtype", "inputs"))


def why_no_test(train: FileView | None, test: FileView) -> str:
    """Why a data set is no test for what is trained on another one; empty if it may be."""
    if train is None:
        return ""
    if (has := _shape(test, "input_shape")) != (wants := _shape(train, "input_shape")):
        return f"{markup.shape(has or ())} instead of {markup.shape(wants or ())}"
    if test.facts.get("target_dtype") != train.facts.get("target_dtype"):
        return "other targets"
    known, found = (file.facts.get("classes") for file in (train, test))
    if isinstance(known, int) and isinstance(found, int) and found > known:
        return f"{found} classes instead of {known}"
    return ""


def _shape(file: FileView, entry: str) -> Sequence[int | None] | None:
    sides = file.facts.get(entry)
    return sides if isinstance(sides, list | tuple) and sides else None


def _several(file: FileView) -> bool:
    return bool(file.facts.get("inputs"))
