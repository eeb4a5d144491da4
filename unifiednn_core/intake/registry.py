"""The model formats that can be read, in the order in which they are asked."""

from pathlib import Path

from unifiednn_core.errors import BadInput
from unifiednn_core.intake.base import Format
from unifiednn_core.intake.exported import Exported
from unifiednn_core.intake.state_dict import Safetensors, StateDict

FORMATS: tuple[Format, ...] = (Exported(), StateDict(), Safetensors())


def format_named(name: str) -> Format:
    """Format of this name; raises `BadInput` that lists the known ones."""
    for known in FORMATS:
        if known.name == name:
            return known
    raise BadInput.of(
        "Unknown format",
        field="format",
        message=f"There is no model format '{name}'.",
        remedy=f"Choose one of: {', '.join(known.name for known in FORMATS)}.",
    )


def sniff(path: Path) -> Format | None:
    """Format of a model file, judged by its bytes; None where no format knows it."""
    return next((known for known in FORMATS if known.sniff(path)), None)
