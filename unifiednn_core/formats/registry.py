"""All model formats, in the order in which they look at a file.

Other packages add formats with an entry point: `[project.entry-points."unifiednn.formats"]` in `pyproject.toml`, then
`mine = "my_package:MyFormat"`. A notebook adds one to its own process with `register_format`.
"""

import logging
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import kinds
from unifiednn_core.formats.base import Format
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.huggingface import HuggingFace
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.formats.state_dict import SAFETENSORS, STATE_DICT
from unifiednn_core.formats.tensor_files import bad_file

FORMATS: tuple[Format, ...] = (STATE_DICT, SAFETENSORS, ExportedFormat(), PickledModule(), HuggingFace())
"""The formats of this package."""
ENTRY_POINTS = "unifiednn.formats"
_REGISTERED: dict[str, Format] = {}
_METHODS = ("sniff", "read", "write", "read_state_dict")
_log = logging.getLogger(__name__)
_AnyFormat = TypeVar("_AnyFormat", bound=type[Format])


def formats() -> tuple[Format, ...]:
    """List every format: ours, those of installed packages, and those registered in this process."""
    return (*FORMATS, *_installed(), *_REGISTERED.values())


def register_format(model_format: _AnyFormat) -> _AnyFormat:
    """Add a format in this process; usable as a class decorator. A later one of the same name replaces it.

    Raises `ValueError` if this or an installed package has a format of the same name, and `TypeError` for a class
    without `name`, `suffixes` or a method of `formats.base.Format`. `unifiednn_core.testing.formats.check_format`
    checks the rest of the contract.
    """
    made = _made(model_format, (*FORMATS, *_installed()))
    _REGISTERED[made.name] = made
    return model_format


def format_named(name: str) -> Format:
    """Return the format of this name; raises `BadInput` with the valid names."""
    found = next((known for known in formats() if known.name == name), None)
    if found is not None:
        return found
    remedy = f"Choose one of: {', '.join(known.name for known in formats())}."
    raise BadInput.of("Unknown format", field="format", message=f"There is no model format '{name}'.", remedy=remedy)


def sniff(path: Path) -> Format | None:
    """Return the format of a model file, judged by its bytes, or None. Formats of this package come first."""
    for known in formats():
        try:
            if known.sniff(path):
                return known
        except Exception as error:
            if known in FORMATS or isinstance(error, HostileFile):
                raise
            _log.exception("The model format '%s' failed on %s.", known.name, path.name)
    return None


def format_of(path: Path) -> Format:
    """Return the format of a model file; raises `BadInput` if it has none."""
    if (known := sniff(path)) is None:
        raise unknown(path)
    return known


def unknown(path: Path) -> BadInput:
    """Return the finding for a file without a format; it says what the file is, if that can be told."""
    suffixes = ", ".join(dict.fromkeys(suffix for known in formats() for suffix in known.suffixes))
    remedy = f"Models: {suffixes}. Data: .pt, .safetensors, .npz, .csv, .parquet, .zip, .tar, .tar.gz."
    said = kinds.recognised(path) or ("Unknown kind of file", "No format knows this file; it may be damaged.", remedy)
    return bad_file(path, *said)


@cache
def _installed() -> tuple[Format, ...]:
    """Load the formats of other packages; leave out and log those that cannot be used."""
    found: list[Format] = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found.append(_made(point.load(), (*FORMATS, *found)))
        except Exception:  # the code of another package can raise anything
            _log.exception("The model format '%s' (%s) cannot be used.", point.name, point.value)
    return tuple(found)


def _made(model_format: type[Format], taken: tuple[Format, ...]) -> Format:
    made = model_format()
    named = isinstance(getattr(made, "name", None), str) and isinstance(getattr(made, "suffixes", None), tuple)
    if not named or not all(callable(getattr(made, method, None)) for method in _METHODS):
        raise TypeError(f"{model_format!r} is not a format: it needs 'name', 'suffixes' and {', '.join(_METHODS)}")
    if made.name in [known.name for known in taken]:
        raise ValueError(f"the format name '{made.name}' is taken; choose another one")
    return made
