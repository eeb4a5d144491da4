"""All model formats, in the order in which they look at a file.

Other packages add formats with an entry point: `[project.entry-points."unifiednn.formats"]` in `pyproject.toml`, then
`mine = "my_package:MyFormat"`. A notebook adds one to its own process with `register_format`.
"""

import logging
import re
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import described, zips
from unifiednn_core.formats.base import PACK, Format, pack_or_convert
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.huggingface import HuggingFace
from unifiednn_core.formats.layers import LayerList
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.formats.state_dict import SAFETENSORS, STATE_DICT
from unifiednn_core.formats.tensor_files import bad_file

FORMATS: tuple[Format, ...] = (STATE_DICT, SAFETENSORS, ExportedFormat(), PickledModule(), LayerList(), HuggingFace())
"""The formats of this package."""
ENTRY_POINTS = "unifiednn.formats"
_REGISTERED: dict[str, Format] = {}
_METHODS = ("sniff", "read", "write", "read_state_dict")
_UNWRITTEN = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # control characters that no text has
_OLD_PICKLE = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # torch before 1.6
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


def unknown(path: Path) -> BadInput:
    """Return the finding for a file without a format; it explains known kinds that are refused."""
    with path.open("rb") as file:
        head = file.read(4096)
    names = zips.names(path)
    suffixes = ", ".join(dict.fromkeys(suffix for known in formats() for suffix in known.suffixes))
    kinds = (
        (any(name.endswith("/constants.pkl") for name in names),
         "TorchScript", "A TorchScript file is a program. The server does not run it.", pack_or_convert()),
        (any(name.endswith((".so", ".cubin")) for name in names),
         "Compiled network", "The file holds compiled code. The server does not run it.", PACK),
        (head.startswith(_OLD_PICKLE),
         "Old file", "A torch older than 1.6 wrote the file.", "Load it, and save it with a newer torch."),
        (described.WEIGHTS in (described.document_of(path, "") or {}),
         "Description alone", "The weights of this network are in a .safetensors file beside it.",
         "Submit that .safetensors file: it holds the description, too."),
        (re.search(rb"^\s*(import|from) torch\b", head, re.MULTILINE),
         "Python source", "A Python file is a program. The server does not run it.",
         pack_or_convert("--factory make_network")),
        (zips.is_zip(path),
         "Zip", "The zip is damaged, or it holds neither a network nor arrays nor images.",
         "Pack images in one folder for each class: cat/1.png, dog/1.png. Submit any other file unpacked."),
        (head[:64].lstrip().startswith((b"{", b"[")),
         "JSON", "The JSON describes no network, or it is damaged, nested too deep or not UTF-8.",
         'A list of layers has {"format": "unifiednn-layers", "layers": [...]}, a config.json "model_type".'),
        (head and (head.startswith((b"\xff\xfe", b"\xfe\xff")) or not _UNWRITTEN.search(head)),
         "Text", "The text describes no network and is not a table.",
         "A network is a .pt2, .pt, .pth, .safetensors or .json file. A table is a .csv in UTF-8: one line of names, "
         "then rows of as many values (2 or more), separated by comma, semicolon or tab."),
        (head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"),
         "Pickle", "A pickle of Python is a program. The server does not run it.",
         "Save arrays alone: numpy.savez(path, x=x, y=y). Save a network with torch.save(network.state_dict(), path)."),
        (head[:2] == b"\x1f\x8b",
         "Gzip", "The file is packed with gzip, and holds neither a tar nor an IDX file.", "Unpack it first."),
        (True, "Unknown kind of file", "No format knows this file; it may be damaged.",
         f"Models: {suffixes}. Data: .pt, .safetensors, .npz, .csv, .parquet, .zip, .tar, .tar.gz."),
    )  # fmt: skip
    return next(bad_file(path, *said) for recognised, *said in kinds if recognised)


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
