"""A draft from a run that exists: the same sub-models with the same files, to be trained again or changed. Pure."""

from typing import Any

from unifiednn_core.store.schema import RunRow

LEFT_OUT = ("owner", "loading")
"""Entries of a sub-model that its submission decided."""


def cloned(run: RunRow, submodel: str | None = None) -> dict[str, Any]:
    """Document of a draft that asks for what a run asked for, or for one of its sub-models alone."""
    parts = [
        {entry: value for entry, value in part.items() if entry not in LEFT_OUT}
        for part in run.spec.get("submodels", ())
        if submodel in (None, part["name"])
    ]
    if submodel is not None:  # alone, it is no member of a sweep
        parts = [{entry: value for entry, value in part.items() if entry != "sweep_of"} for part in parts]
    given = run.environment.get("files", {})
    names = {file: name for part in parts for file, name in given.get(part["name"], {}).items()}
    name = run.name if submodel is None else submodel
    return {**run.spec, "name": name, "submodels": parts, "filenames": names}
