"""The model formats that can be read, in the order in which they are asked."""

import re
from collections.abc import Callable
from pathlib import Path

from unifiednn_core.errors import BadInput
from unifiednn_core.intake import described, zips
from unifiednn_core.intake.base import Format
from unifiednn_core.intake.exported import Exported
from unifiednn_core.intake.huggingface import HuggingFace
from unifiednn_core.intake.layers import LayerList
from unifiednn_core.intake.module import PickledModule
from unifiednn_core.intake.remedies import PACK, pack_or_convert
from unifiednn_core.intake.state_dict import Safetensors, StateDict

FORMATS: tuple[Format, ...] = (StateDict(), Safetensors(), Exported(), PickledModule(), LayerList(), HuggingFace())
_UNWRITTEN = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # signs that no text has


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


def unknown(path: Path) -> BadInput:
    """Finding for a model file that no format knows; where its kind is refused on purpose, it says so."""
    title, message, remedy = next(
        (said for recognised, *said in _refused() if recognised(path)),
        (
            "Unknown kind of file",
            "No format knows this file; it may be damaged.",
            "Models: .pt2, .pt, .pth, .safetensors, .json. Data: .pt, .safetensors, .npz, .csv, .parquet, .zip.",
        ),
    )
    return BadInput.of(title, field=path.name, message=message, remedy=remedy)


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip()[:1] in (b"{", b"[")


def _is_text(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4096)
    return bool(head) and (head[:2] in (b"\xff\xfe", b"\xfe\xff") or not _UNWRITTEN.search(head))


def _is_torchscript(path: Path) -> bool:
    return any(name.endswith("/constants.pkl") for name in zips.names(path))


def _is_compiled(path: Path) -> bool:
    return any(name.endswith((".so", ".cubin")) for name in zips.names(path))


def _is_old_pickle(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(14) == b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # torch before 1.6


def _is_description(path: Path) -> bool:
    return described.WEIGHTS in (described.document_of(path, "") or {})


def _is_source(path: Path) -> bool:
    with path.open("rb") as file:
        return re.search(rb"^\s*(import|from) torch\b", file.read(4096), re.MULTILINE) is not None


def _refused() -> tuple[tuple[Callable[[Path], bool], str, str, str], ...]:
    """Kinds of files that are refused on purpose: how each is known, title, message, remedy."""
    return (
        (_is_torchscript, "TorchScript", "A TorchScript file is a program, which is not run here.", pack_or_convert()),
        (_is_compiled, "Compiled network", "The file holds compiled code, which is not run here.", PACK),
        (_is_old_pickle, "Old file", "The file is of a torch before 1.6.", "Load it, and save it with a newer torch."),
        (_is_description, "Description alone", "The weights of this network lie in a .safetensors file beside it.",
         "Hand in that .safetensors file: it holds the description, too."),
        (_is_source, "Python source", "A Python file is a program, which is not run here.",
         pack_or_convert("--factory make_network")),
        (zips.is_zip, "Zip", "The file is a damaged zip, or one that holds no network, no arrays and no images.",
         "Pack images in one folder for each class: cat/1.png, dog/1.png. Hand in anything else as it is."),
        (_is_json, "JSON", "The file is JSON that describes no network, or is damaged, nested too deep or no UTF-8.",
         'A list of layers has {"format": "unifiednn-layers", "layers": [...]}, a config.json "model_type".'),
        (_is_text, "Text", "The file is text that describes no network, and no table that can be read.",
         "A network comes as .pt2, .pt, .pth, .safetensors or .json. A table is a .csv in UTF-8: one line of names, "
         "then rows of as many values (2 or more), parted by comma, semicolon or tab."),
    )  # fmt: skip
