"""Turns pydantic's validation errors into findings with field and remedy."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from unifiednn_core.base.errors import Finding

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
    elif detail["type"] in _SAID:
        message, remedy = _SAID[detail["type"]]
    elif detail["type"] == "string_pattern_mismatch" and field.endswith("name"):
        message = f"'{detail['input']}' is not a valid name."
        remedy = "Use 1 to 64 letters, digits, '-' and '_', beginning with a letter or digit."
    else:
        text = json.dumps(detail["input"], default=str)
        message = f"This cannot be {text if len(text) <= 60 else f'{text[:57]}...'}."
        remedy = _remedy(detail)
    title = field.rpartition(".")[2].replace("_", " ").capitalize()
    return Finding(title=title, field=field, message=message, remedy=remedy)


def _remedy(detail: ErrorDetails) -> str:
    if detail["type"] == "string_pattern_mismatch" and detail["loc"][-1] == "device":
        return 'Give "auto", "cpu", "cuda", one device such as "cuda:0", or a model such as "H200".'
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
        try:
            here = here[key]
        except (KeyError, IndexError, TypeError):
            here = None
        name = here.get("name") if isinstance(key, int) and isinstance(here, Mapping) else None
        parts.append(name if isinstance(name, str) and name else str(key))
    return ".".join(parts)
