"""Exported files that ask for more than a network needs are refused, and nothing of them runs."""

import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats.exported import ExportedFormat

FORMAT = ExportedFormat()
WEIGHTS = "archive/data/weights/model_weights_config.json"
CONSTANTS = "archive/data/constants/model_constants_config.json"
SAMPLES = "archive/data/sample_inputs/model.pt"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.exported(tmp_path_factory.mktemp("good"), "residual")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that a payload would create."""
    return tmp_path / "canary"


class Payload:
    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.canary),)


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


def guard(document: Any, canary: Path) -> None:
    document["guards_code"] = [call(canary)]


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


@pytest.mark.parametrize("edit", EDITS)
def test_a_graph_that_would_run_code_is_refused(
    edit: Callable[[Any, Path], None], good: Path, tmp_path: Path, canary: Path
) -> None:
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: edit(document, canary))
    with pytest.raises((HostileFile, BadInput)):
        FORMAT.read(hostile, None)
    assert not canary.exists()


def test_the_payload_is_real_for_the_official_loader(good: Path, tmp_path: Path, canary: Path) -> None:
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: evil_expression(document, canary))
    script = f"import torch; torch.export.load({str(hostile)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True)
    assert canary.exists()


def test_guards_are_left_behind(good: Path, tmp_path: Path, canary: Path) -> None:
    path = kit.mutated(good, tmp_path / "m.pt2", lambda document: guard(document, canary))
    delivery = FORMAT.write(FORMAT.read(path, None), kit.network("residual").state_dict(), tmp_path, "a")
    assert all(b"mkdir" not in written.read_bytes() for written in delivery.files)
    assert not canary.exists()


@pytest.mark.parametrize(("config", "record"), [(WEIGHTS, "weights/weight_0"), (CONSTANTS, "constants/tensor_0")])
def test_pickled_tensors_are_refused(config: str, record: str, good: Path, tmp_path: Path, canary: Path) -> None:
    def edit(document: Any) -> None:
        for payload in document["config"].values():
            payload["use_pickle"] = True

    replace = {f"archive/data/{record}": pickle.dumps(Payload(canary))}
    with pytest.raises(HostileFile, match="pickle"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=config, replace=replace), None)
    assert not canary.exists()


def test_pickled_sample_inputs_are_never_opened_nor_passed_on(good: Path, tmp_path: Path, canary: Path) -> None:
    path = kit.mutated(good, tmp_path / "m.pt2", replace={SAMPLES: pickle.dumps(Payload(canary))})
    definition = FORMAT.read(path, None)
    definition.build()
    delivery = FORMAT.write(definition, kit.network("residual").state_dict(), tmp_path, "a")
    for written in delivery.files:
        assert kit.entries_of(written)["a/data/sample_inputs/model.pt"] == b""
    assert not canary.exists()


@pytest.mark.parametrize(
    "name",
    [
        "archive/data/constants/model.pt",
        "archive/data/weights/model.pt",
        "archive/data/constants/custom_obj_0",
        "archive/data/aotinductor/model/lib.so",
        "archive/extra/notes",
        "archive/../../../tmp/escaped",
        "/etc/escaped",
        "other/models/model.json",
        "archive/models/second.json",
    ],
)
def test_entries_that_no_exported_program_has_are_refused(name: str, good: Path, tmp_path: Path) -> None:
    with pytest.raises(HostileFile, match="entry"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", replace={name: b"x"}), None)


def test_compressed_entries_are_refused(good: Path, tmp_path: Path) -> None:
    with pytest.raises(HostileFile, match="compressed"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", compression=zipfile.ZIP_DEFLATED), None)


def test_an_archive_that_claims_more_bytes_than_the_file_has_is_refused(good: Path, tmp_path: Path) -> None:
    content = bytearray(good.read_bytes())
    record = content.rfind(b"PK\x01\x02", 0, content.rfind(b"archive/data/weights/weight_0"))
    struct.pack_into("<II", content, record + 20, 2**31, 2**31)
    (tmp_path / "m.pt2").write_bytes(content)
    with pytest.raises(HostileFile, match="more bytes"):
        FORMAT.read(tmp_path / "m.pt2", None)


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [{"as_int": 10**6}, {"as_int": 10**6}], "strides": [{"as_int": 0}, {"as_int": 0}]},
        {"sizes": [{"as_int": 10**6}], "strides": [{"as_int": 1}]},
        {"storage_offset": {"as_int": 10**9}},
        {"storage_offset": {"as_int": -1}},
        {"strides": [{"as_int": -1}, {"as_int": 1}]},
    ],
)
def test_a_tensor_that_reaches_beyond_its_bytes_is_refused(change: dict[str, Any], good: Path, tmp_path: Path) -> None:
    def edit(document: Any) -> None:
        document["config"]["head.weight"]["tensor_meta"].update(change)

    with pytest.raises(HostileFile, match=r"head\.weight"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=WEIGHTS), None)


def test_two_tensors_in_the_same_bytes_are_refused(good: Path, tmp_path: Path) -> None:
    def edit(document: Any) -> None:
        entry = document["config"]["head.weight"]["tensor_meta"]
        document["config"]["conv.weight"]["path_name"] = document["config"]["head.weight"]["path_name"]
        document["config"]["conv.weight"]["tensor_meta"] = {**entry, "sizes": entry["sizes"][::-1]}
        document["config"]["conv.weight"]["tensor_meta"]["strides"] = [{"as_int": 3}, {"as_int": 1}]

    with pytest.raises(HostileFile, match="claim"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=WEIGHTS), None)


def test_a_value_that_is_used_before_it_is_computed_is_refused(good: Path, tmp_path: Path) -> None:
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: kit.graph_of(document)["nodes"].reverse())
    with pytest.raises(HostileFile, match="before it is computed"):
        FORMAT.read(hostile, None)


def test_a_graph_without_end_is_refused(good: Path, tmp_path: Path) -> None:
    def edit(document: Any) -> None:
        nodes = kit.graph_of(document)["nodes"]
        nodes.extend(nodes[1:2] * 20_000)

    with pytest.raises(BadInput, match="20000"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit), None)


@given(st.data())
def test_a_file_that_is_cut_short_or_garbled_is_refused_or_reads_as_a_network(
    good: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(good.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        for place in data.draw(st.lists(st.integers(0, len(content) - 1), min_size=1, max_size=8)):
            content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("cut") / "m.pt2"
    path.write_bytes(content)
    if not FORMAT.sniff(path):
        return
    try:
        module = FORMAT.read(path, None).build()
    except (BadInput, HostileFile):
        return
    assert module.state_dict().keys() == kit.network("residual").state_dict().keys()
