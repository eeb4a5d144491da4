"""Turns pydantic's validation errors into findings with field and remedy."""

import difflib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from unifiednn_core.base.errors import Finding, Fix

# Message and remedy by pydantic's error type.
_SAID = {
    "string_too_short": ("This entry is empty.", "Choose or name one."),
    "missing": ("This entry is missing.", "Add it."),
    "extra_forbidden": ("Unknown entry.", "Remove it, or correct its spelling."),
}
# Valid values by the beginning of pydantic's error type; the first that fits counts.
_GIVE = {
    "greater_than_equal": "a number of at least {ge}",
    "greater_than": "a number above {gt}",
    "less_than_equal": "a number of at most {le}",
    "less_than": "a number below {lt}",
    "literal_error": "{expected}",
    "int": "a whole number",
    "float": "a number",
    "finite_number": "a number that is finite",
    "bool": "true or false",
    "string_type": "a text in quotes",
    "list": "a list in brackets, [...]",
    "tuple": "a list in brackets, [...]",
    "dict": "an object of names and values, {{...}}",
    "model": "an object of names and values, {{...}}",
}


def finding_of(detail: ErrorDetails, data: object, entries: Collection[str] = ()) -> Finding:
    """Turn one validation error into a finding; `data` is the validated document, `entries` what it can hold."""
    context = detail.get("ctx", {})
    field = str(context.get("field") or _field_path(detail["loc"], data) or "spec")
    if "argument" in context:
        field = f"{field}.{context['argument']}"
    message, remedy, fix = detail["msg"], "Correct this entry.", None
    if detail["type"] in ("unknown_name", "duplicate_name"):  # our own messages end with the remedy
        message, _, remedy = message.rpartition(". ") if message.count(". ") else (message, "", remedy)
        message += "."
        if detail["type"] == "duplicate_name" and "name" in context:
            name = unlike(context["name"], _names(data))
            fix = Fix(label=f"Rename to {name}", value=name)
    elif detail["type"] in _SAID:
        message, remedy = _SAID[detail["type"]]
        wrong = str(detail["loc"][-1])
        close = difflib.get_close_matches(wrong, entries, 1) if detail["type"] == "extra_forbidden" else []
        if close and close[0] != wrong:
            remedy = f"Did you mean '{close[0]}'?"
            fix = Fix(label=f"Rename it to {close[0]}", value=close[0], verb="rename")
    elif detail["type"] == "string_pattern_mismatch" and field.endswith("name"):
        message = f"'{detail['input']}' is not a valid name."
        remedy = "Use 1 to 64 letters, digits, '-' and '_', beginning with a letter or digit."
    else:
        text = json.dumps(detail["input"], default=str)
        message = f"This cannot be {text if len(text) <= 60 else f'{text[:57]}...'}."
        remedy = _remedy(detail)
    words = [part for part in field.split(".") if not part.isdigit()]
    title = words[-1].replace("_", " ").capitalize() if words else field
    return Finding(title=title, field=field, message=message, remedy=remedy, fix=fix)


def unlike(name: str, taken: Iterable[str]) -> str:
    """The name with the first number that no other has: `MLP-2`. Upper and lower case count as the same."""
    lower = {other.lower() for other in taken}
    numbered = (f"{name[:60]}-{number}" for number in range(2, len(lower) + 3))
    return next(one for one in numbered if one.lower() not in lower)


def _names(data: object) -> list[str]:
    parts = data.get("submodels", ()) if isinstance(data, Mapping) else ()
    return [str(part.get("name")) for part in parts if isinstance(part, Mapping)]


def _remedy(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch" and detail["loc"][-1] == "device":
        return (
            'Give "auto", "cpu", "cuda", a device such as "cuda:0", a model such as "H200", or a host such as "gpu-1".'
        )
    bounds = {
        name: f"{value:g}" if isinstance(value, float) else value for name, value in detail.get("ctx", {}).items()
    }
    found = next((what for start, what in _GIVE.items() if detail["type"].startswith(start)), None)
    return f"{detail['msg']}." if found is None else f"Give {found.format(**bounds)}."


def _field_path(location: Sequence[str | int], data: object) -> str:
    """Path with named sub-models: `submodels.lenet.priority`."""
    parts: list[str] = []
    here: Any = data
    for key in location:
        if parts and key == parts[-1] and isinstance(here, Mapping) and here.get("name") == key:
            continue  # pydantic names the class of an entry that it chose by its name
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            here = None
        name = here.get("name") if isinstance(key, int) and isinstance(here, Mapping) else None
        parts.append(name if isinstance(name, str) and name else str(key))
    return ".".join(parts)
