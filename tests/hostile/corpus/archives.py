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

Maker = Callable[[Path], Path]
WEIGHTS = "archive/data/weights/model_weights_config.json"
CONSTANTS = "archive/data/constants/model_constants_config.json"
SAMPLES = "archive/data/sample_inputs/model.pt"
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
    "pickled constants": "archive/data/constants/model.pt",
    "pickled weights": "archive/data/weights/model.pt",
    "notes": "archive/extra/notes",
    "another root": "other/models/model.json",
}


def call(canary: Path) -> str:
    return f"__import__('os').mkdir({str(canary)!r})"


def first_size(document: Any) -> Any:
    return kit.graph_of(document)["tensor_values"]["images"]["sizes"][0]["as_expr"]


def evil_expression(document: Any, canary: Path) -> None:
    first_size(document)["expr_str"] = call(canary)


def hidden_expression(document: Any, canary: Path) -> None:
    first_size(document)["expr_str"] = f"Add(Symbol('s77', integer=True), {call(canary)})"


def evil_symbol(document: Any, canary: Path) -> None:
    first_size(document)["expr_str"] = f"Symbol({call(canary)!r})"


def evil_range(document: Any, canary: Path) -> None:
    document["range_constraints"][call(canary)] = {"min_val": 2, "max_val": 4}


def evil_target(document: Any, canary: Path) -> None:
    node = kit.graph_of(document)["nodes"][0]
    node["target"] = "torch.os.mkdir"
    node["inputs"] = [{"name": "path", "arg": {"as_string": str(canary)}, "kind": 1}]


def opens_a_file(document: Any, canary: Path) -> None:
    node = kit.graph_of(document)["nodes"][0]
    node["target"] = "torch.ops.aten.from_file.default"
    node["inputs"] = [
        {"name": "filename", "arg": {"as_string": str(canary)}, "kind": 1},
        {"name": "shared", "arg": {"as_bool": True}, "kind": 1},
        {"name": "size", "arg": {"as_int": 4}, "kind": 1},
    ]


def foreign_operator(document: Any, canary: Path) -> None:
    kit.graph_of(document)["nodes"][0]["target"] = "torch.ops.profiler._record_function_enter_new.default"


def evil_name(document: Any, canary: Path) -> None:
    signature = document["graph_module"]["signature"]["input_specs"][0]
    signature["parameter"]["parameter_name"] = f"a').x; {call(canary)}; ('"


def evil_value_name(document: Any, canary: Path) -> None:
    kit.graph_of(document)["nodes"][0]["name"] = f"a = {call(canary)}"


def evil_pytree(document: Any, canary: Path) -> None:
    call_signature = document["graph_module"]["module_call_graph"][0]["signature"]
    call_signature["in_spec"] = call_signature["in_spec"].replace("builtins.tuple", "os.system")


def script_object(document: Any, canary: Path) -> None:
    kit.graph_of(document)["custom_obj_values"] = {"x": {"name": "x", "class_fqn": "a.b"}}


def name_of_a_method(document: Any, canary: Path) -> None:
    for spec in document["graph_module"]["signature"]["input_specs"]:
        if "buffer" in spec and spec["buffer"]["buffer_name"] == "gain":
            spec["buffer"]["buffer_name"] = "forward"


EDITS = [
    evil_expression,
    hidden_expression,
    evil_symbol,
    evil_range,
    evil_target,
    opens_a_file,
    foreign_operator,
    evil_name,
    evil_value_name,
    evil_pytree,
    script_object,
    name_of_a_method,
]


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


def _pickled(config: str, record: str) -> Maker:
    def edit(document: Any) -> None:
        for entry in document["config"].values():
            entry["use_pickle"] = True

    def make(folder: Path) -> Path:
        replace = {f"archive/data/{record}": pickle.dumps(payload(folder))}
        return kit.mutated(good(), folder / "net.pt2", edit, entry=config, replace=replace)

    return make


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
    "pickled weights": _pickled(WEIGHTS, "weights/weight_0"),
    "pickled constants": _pickled(CONSTANTS, "constants/tensor_0"),
    "compressed": _compressed,
}
HARMLESS: dict[str, Maker] = {
    "pickled sample inputs": _with_entry(SAMPLES, lambda folder: pickle.dumps(payload(folder)))
}
"""Read as the networks that they are; what would run in them is never opened."""
