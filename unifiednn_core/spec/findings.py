"""Turns pydantic's validation errors into findings with field and remedy."""

import json
from collections.abc import Mapping, Sequence

from pydantic_core import ErrorDetails

from unifiednn_core.base.errors import Finding

# Valid values by the beginning of pydantic's error type.
_GIVE = {
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a number that is finite",
    "bool": "true or false",
    "string_type": "a text in quotes",
    "list": "a list in brackets, [...]",
    "tuple": "a list in brackets, [...]",
    "dict": "an object of names and values, {...}",
    "model": "an object of names and values, {...}",
}


def finding_of(detail: ErrorDetails, data: object) -> Finding:
    """Turn one validation error into a finding; `data` is the validated document."""
    context = detail.get("ctx", {})
    field = str(context.get("field") or _field_path(detail["loc"], data) or "spec")
    if "argument" in context:
        field = f"{field}.{context['argument']}"
    message, remedy = detail["msg"], "Correct this entry."
    if detail["type"] in ("unknown_name", "duplicate_name"):  # our own messages end with the remedy
        message, _, remedy = message.rpartition(". ") if message.count(". ") else (message, "", remedy)
        message += "."
    elif detail["type"] == "string_too_short":
        message, remedy = "This entry is empty.", "Choose or name one."
    elif detail["type"] == "missing":
        message, remedy = "This entry is missing.", "Add it."
    elif detail["type"] == "extra_forbidden":
        message, remedy = "Unknown entry.", "Remove it, or correct its spelling."
    elif detail["type"] == "string_pattern_mismatch" and field.endswith("name"):
        message = f"'{detail['input']}' is not a valid name."
        remedy = "Use 1 to 64 letters, digits, '-' and '_', beginning with a letter or digit."
    else:
        message, remedy = f"This cannot be {_short(detail['input'])}.", _remedy(detail, message)
    return Finding(title=field.rpartition(".")[2].replace("_", " ").capitalize(), field=field, message=message,
                   remedy=remedy)  # fmt: skip


def _remedy(detail: ErrorDetails, message: str) -> str:
    """Say which values are valid, by pydantic's error type."""
    context, kind = detail.get("ctx", {}), detail["type"]
    bounds = {"greater_than": "above {gt}", "greater_than_equal": "of at least {ge}", "less_than": "below {lt}",
              "less_than_equal": "of at most {le}"}  # fmt: skip
    if kind in bounds:
        said = {name: f"{value:g}" if isinstance(value, float) else value for name, value in context.items()}
        return f"Give a number {bounds[kind].format(**said)}."
    if kind == "literal_error":
        return f"Give {context['expected']}."
    if kind == "string_pattern_mismatch" and detail["loc"][-1] == "device":
        return 'Give "auto", "cpu", "cuda", or one GPU such as "cuda:0".'
    return next((f"Give {what}." for start, what in _GIVE.items() if kind.startswith(start)), f"{message}.")


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field_path(location: Sequence[str | int], data: object) -> str:
    """Path with named sub-models: `submodels.lenet.priority`."""
    parts: list[str] = []
    here = data
    for key in location:
        try:
            here = here[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            here = None
        name = here.get("name") if isinstance(key, int) and isinstance(here, Mapping) else None
        parts.append(name if isinstance(name, str) and name else str(key))
    return ".".join(parts)
