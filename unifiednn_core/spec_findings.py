"""Mistakes in a spec as findings: what pydantic found wrong, said with the field and the remedy."""

import json
from collections.abc import Mapping, Sequence

from pydantic_core import ErrorDetails

from unifiednn_core.errors import Finding


def finding_of(detail: ErrorDetails, data: object) -> Finding:
    """One mistake; `data` is the document that it was found in."""
    context = detail.get("ctx", {})
    field = str(context.get("field") or _field_path(detail["loc"], data) or "spec")
    if "argument" in context:
        field = f"{field}.{context['argument']}"
    message, remedy = detail["msg"], "Correct this entry."
    if detail["type"] in ("unknown_name", "duplicate_name"):  # our own messages end with the remedy
        message, _, remedy = message.rpartition(". ") if message.count(". ") else (message, "", remedy)
        message += "."
    elif detail["type"] == "string_too_short":
        message, remedy = "Nothing is given here.", "Choose or name one."
    elif detail["type"] == "missing":
        message, remedy = "This entry is missing.", "Add it."
    elif detail["type"] == "extra_forbidden":
        message, remedy = "There is no entry of this name.", "Remove it, or correct its spelling."
    elif detail["type"] == "string_pattern_mismatch" and field.endswith("name"):
        message = f"'{detail['input']}' cannot be a name."
        remedy = "Use 1 to 64 letters, digits, '-' and '_', beginning with a letter or digit."
    else:
        message = f"{message}; it is {_short(detail['input'])}."
    return Finding(title=field.rpartition(".")[2].replace("_", " ").capitalize(), field=field, message=message,
                   remedy=remedy)  # fmt: skip


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field_path(location: Sequence[str | int], data: object) -> str:
    """Path with sub-models by name where they have one: `submodels.lenet.priority`."""
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
