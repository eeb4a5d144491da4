"""The certificate of a separated model, as people read it. Pure."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from pydantic import ValidationError

from unifiednn_core.base.texts import tr
from unifiednn_core.preflight.report import Certificate

TITLES: Final = {
    "files": "Files",
    "weights": "Weights",
    "keys": "Names and shapes",
    "outputs": "Outputs",
}
"""What was compared; keys of `tr`."""
OUTCOMES: Final = {"equal": "equal, bit for bit", "differs": "differs", "not compared": "not compared"}
"""Keys of `tr`."""


def certificate_of(document: Mapping[str, Any] | None) -> Certificate | None:
    """A stored certificate; None without one, or if another version wrote it."""
    return None if document is None else _parsed(json.dumps(document))


@lru_cache(maxsize=256)
def _parsed(text: str) -> Certificate | None:
    """Parsed once: a page reads it every second."""
    try:
        return Certificate.model_validate_json(text)
    except ValidationError:
        return None


def headline(certificate: Certificate) -> str:
    """One sentence in the viewer's language."""
    if not certificate.holds:
        return tr("The file of {name} is not what the hybrid trained.", name=certificate.submodel)
    outputs = [one.outcome for one in certificate.compared if one.what == "outputs"]
    if outputs == ["equal"]:
        return tr("The file of {name} computes exactly what the hybrid computed.", name=certificate.submodel)
    return tr("The file of {name} holds exactly the weights that the hybrid trained.", name=certificate.submodel)
