"""The certificate of a separated model, as people read it. Pure."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal

from pydantic import ValidationError

from unifiednn_core.preflight.report import Certificate
from unifiednn_core.views.wording import Colour

Standing = Literal["equal", "weights", "differs"]
"""How a certificate stands: all is equal, the weights are but outputs were not compared, or something differs."""

TITLES: Final = {
    "files": "Files",
    "weights": "Weights",
    "keys": "Names and shapes",
    "outputs": "Outputs",
    "answers": "load.py",
}
"""What was compared."""
OUTCOMES: Final = {"equal": "equal, bit for bit", "differs": "differs", "not compared": "not compared"}
LOOKS: Final[Mapping[Standing, tuple[str, str, Colour]]] = {
    "equal": ("Certificate holds", "verified", "green"),
    "weights": ("Weights equal, outputs not compared", "rule", "blue"),
    "differs": ("Certificate does not hold", "gpp_bad", "red"),
}
"""Words, symbol and colour."""


def standing_of(holds: bool, outcomes: Mapping[str, str]) -> Standing:
    """How a certificate stands; `outcomes` are by what was compared."""
    return "differs" if not holds else "equal" if outcomes.get("outputs") == "equal" else "weights"


def standing(certificate: Certificate) -> Standing:
    """How a certificate stands."""
    return standing_of(certificate.holds, {one.what: one.outcome for one in certificate.compared})


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
    """One sentence."""
    stands = standing(certificate)
    if stands == "differs":
        return f"The file of {certificate.submodel} is not what the hybrid trained."
    if stands == "equal":
        return f"The file of {certificate.submodel} computes exactly what the hybrid computed."
    return f"The file of {certificate.submodel} holds exactly the weights that the hybrid trained."
