"""What a JSON document is that comes with models and data. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import parse_json

TELLING = frozenset({"epochs", "batch_size", "optimizer", "learning_rate", "criterion"})
"""Entries that a file of hyper-parameters has, and that no description of a network has."""


def document_kind(document: object) -> Literal["spec", "hyperparameters", ""]:
    """Whether a document is a spec or hyper-parameters, perhaps with mistakes; "" for anything else."""
    if not isinstance(document, Mapping):
        return ""
    if isinstance(document.get("submodels"), list):
        return "spec"
    return "hyperparameters" if TELLING & document.keys() & set(Hyperparameters.model_fields) else ""


def document_of(text: bytes, filename: str) -> dict[str, Any] | None:
    """The spec or the hyper-parameters in a file; None if it holds anything else, such as a network in JSON."""
    try:
        document = parse_json(text.decode("utf-8"), field=filename)
    except (BadInput, ValueError):  # whoever reads models tells what is wrong
        return None
    return document if isinstance(document, dict) and document_kind(document) else None
