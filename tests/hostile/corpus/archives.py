"""Exported programs, edited: code in expressions and names, pickles, shapes beyond their bytes, foreign entries."""

import functools
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile.marks import CANARY, payload
from tests.unit.formats import kit
from tests.unit.formats.test_hostile_archives import EDITS, SAMPLES, WEIGHTS

Maker = Callable[[Path], Path]
SHAPES: dict[str, dict[str, Any]] = {
    "expanded": {"sizes": [{"as_int": 10**6}, {"as_int": 10**6}], "strides": [{"as_int": 0}, {"as_int": 0}]},
    "giant": {"sizes": [{"as_int": 2**40}], "strides": [{"as_int": 1}]},
    "offset beyond": {"storage_offset": {"as_int": 10**9}},
    "negative offset": {"storage_offset": {"as_int": -1}},
    "negative stride": {"strides": [{"as_int": -1}, {"as_int": 1}]},
}
ENTRIES = {
    "traversal": "archive/../../../tmp/escaped",
    "absolute": "/etc/escaped",
    "library": "archive/data/aotinductor/model/lib.so",
    "second model": "archive/models/second.json",
    "script object": "archive/data/constants/custom_obj_0",
}


@functools.cache
def good() -> Path:
    return kit.exported(Path(tempfile.mkdtemp(prefix="hostile-")), "residual")


def _edited(edit: Callable[[Any, Path], None]) -> Maker:
    def make(folder: Path) -> Path:
        return kit.mutated(good(), folder / "net.pt2", lambda document: edit(document, folder / CANARY))

    return make


def _reshaped(change: dict[str, Any]) -> Maker:
    def edit(document: Any) -> None:
        document["config"]["head.weight"]["tensor_meta"].update(change)

    return lambda folder: kit.mutated(good(), folder / "net.pt2", edit, entry=WEIGHTS)


def _with_entry(name: str, content: Callable[[Path], bytes]) -> Maker:
    return lambda folder: kit.mutated(good(), folder / "net.pt2", replace={name: content(folder)})


def _pickled_weights(folder: Path) -> Path:
    def edit(document: Any) -> None:
        for entry in document["config"].values():
            entry["use_pickle"] = True

    replace = {"archive/data/weights/weight_0": pickle.dumps(payload(folder))}
    return kit.mutated(good(), folder / "net.pt2", edit, entry=WEIGHTS, replace=replace)


def _compressed(folder: Path) -> Path:
    return kit.mutated(good(), folder / "net.pt2", compression=zipfile.ZIP_DEFLATED)


def _deep(document: Any, canary: Path) -> None:
    nested: Any = {"as_int": 1}
    for _ in range(150):
        nested = {"as_ints": [nested]}
    kit.graph_of(document)["nodes"][0]["inputs"] = [{"name": "self", "arg": nested, "kind": 1}]


def _endless(document: Any, canary: Path) -> None:
    nodes = kit.graph_of(document)["nodes"]
    nodes.extend(nodes[1:2] * 20_000)


MAKERS: dict[str, Maker] = {
    **{edit.__name__.replace("_", " "): _edited(edit) for edit in (*EDITS, _deep, _endless)},
    **{f"weight {name}": _reshaped(change) for name, change in SHAPES.items()},
    **{f"entry {name}": _with_entry(entry, lambda folder: b"x") for name, entry in ENTRIES.items()},
    "pickled weights": _pickled_weights,
    "compressed": _compressed,
}
HARMLESS: dict[str, Maker] = {
    "pickled sample inputs": _with_entry(SAMPLES, lambda folder: pickle.dumps(payload(folder))),
}
"""Read as the networks that they are; what would run in them is never opened."""
