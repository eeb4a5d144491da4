"""Whatever happens to the bytes of a checkpoint is found and named."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tests.unit.engine.checkpoint_kit import bits, checkpoint
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import checkpoint_file as file
from unifiednn_core.engine.checkpoint import FORMAT_VERSION, MAX_DEPTH
from unifiednn_core.formats.tensor_files import MAX_HEADER_BYTES

ON_DISK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "step-000000007.safetensors"
    state = {
        "model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3, dtype=torch.bfloat16)},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0), "seen": torch.tensor([True, False])}}},
        "metrics": {"figures": [{"epoch": 1, "loss": 0.25, "accuracy": math.nan}]},
    }
    file.write(checkpoint(state), path)
    return path


def test_a_file_cut_short_anywhere_is_refused(whole: Path, tmp_path: Path) -> None:
    content, path = whole.read_bytes(), tmp_path / "cut.safetensors"
    for size in range(len(content)):
        path.write_bytes(content[:size])
        for look in (file.read, file.peek):
            with pytest.raises(BadCheckpoint, match=r"^cut\.safetensors is (cut short or damaged \(|not a checkpoint)"):
                look(path)


def test_bytes_after_the_end_are_refused(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "long.safetensors"
    path.write_bytes(whole.read_bytes() + b"\0")
    with pytest.raises(BadCheckpoint, match="is cut short or damaged"):
        file.read(path)


def test_each_flipped_bit_is_found(whole: Path, tmp_path: Path) -> None:
    """One bit of each byte in turn, another one from byte to byte; white space may change into other white space."""
    content, path = whole.read_bytes(), tmp_path / "flipped.safetensors"
    expected, accepted = file.read(whole), 0
    for offset in range(len(content)):
        changed = bytearray(content)
        changed[offset] ^= 1 << (offset % 8)
        path.write_bytes(changed)
        try:
            found = file.read(path)
        except BadCheckpoint:
            continue
        assert bits(found.state) == bits(expected.state) and found.recipe == expected.recipe
        accepted += 1
    assert accepted <= 8


@ON_DISK
@given(data=st.data())
def test_any_changed_byte_gives_no_other_value(whole: Path, tmp_path: Path, data: st.DataObject) -> None:
    content, path = bytearray(whole.read_bytes()), tmp_path / "changed.safetensors"
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        found = file.read(path)
    except BadCheckpoint:
        return
    assert bits(found.state) == bits(file.read(whole).state)


def rewritten(whole: Path, path: Path, edit: Any) -> Path:
    """A copy whose header (parsed) and tensor bytes `edit` may change."""
    content = whole.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header, raw = json.loads(content[8:end]), bytearray(content[end:])
    edit(header, raw)
    document = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(document).to_bytes(8, "little") + document + raw)
    return path


def signed(header: dict[str, Any], document: object) -> None:
    """Put in a document with the right hash, as an attacker would."""
    text = document if isinstance(document, str) else json.dumps(document)
    header["__metadata__"] |= {"document": text, "document_sha256": file._text_sha256(text)}


def swap(header: dict[str, Any], raw: bytearray) -> None:
    header["model.w"], header["optimizer.state.0.step"] = header["optimizer.state.0.step"], header["model.w"]


def drop(header: dict[str, Any], raw: bytearray) -> None:
    begin, end = header.pop("optimizer.state.0.seen")["data_offsets"]
    assert end == len(raw)
    del raw[begin:end]


def add(header: dict[str, Any], raw: bytearray) -> None:
    header["model.more"] = {"dtype": "U8", "shape": [1], "data_offsets": [len(raw), len(raw) + 1]}
    raw.append(0)


def retype(header: dict[str, Any], raw: bytearray) -> None:
    header["model.w"]["dtype"] = "I32"


def reshape(header: dict[str, Any], raw: bytearray) -> None:
    header["model.w"]["shape"] = [3, 2]


def newer(header: dict[str, Any], raw: bytearray) -> None:
    header["__metadata__"]["unifiednn_checkpoint"] = str(FORMAT_VERSION + 1)


def older(header: dict[str, Any], raw: bytearray) -> None:
    header["__metadata__"]["unifiednn_checkpoint"] = str(FORMAT_VERSION - 1)


def redocument(header: dict[str, Any], raw: bytearray) -> None:
    text = header["__metadata__"]["document"]
    header["__metadata__"]["document"] = text.replace('"step":7', '"step":8')


def overlap(header: dict[str, Any], raw: bytearray) -> None:
    begin, end = header["model.w"]["data_offsets"]
    header["model.w"]["data_offsets"] = [begin + 1, end + 1]


def claim(header: dict[str, Any], raw: bytearray) -> None:
    header["model.w"]["shape"] = [0, 2**62, 2**62]


def huge(header: dict[str, Any], raw: bytearray) -> None:
    header["model.w"] = {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (swap, r"has a tensor '\S+' that was changed"),
        (drop, r"lacks the tensor 'optimizer\.state\.0\.seen'"),
        (add, r"has a tensor 'model\.more' that does not belong to it"),
        (retype, r"has a tensor 'model\.w' that was changed"),
        (reshape, r"has a tensor 'model\.w' that was changed"),
        (newer, rf"is of version {FORMAT_VERSION + 1}, newer .* reads version {FORMAT_VERSION}"),
        (older, rf"is of version {FORMAT_VERSION - 1}, older .* reads version {FORMAT_VERSION}"),
        (redocument, "has a document that was changed"),
        (overlap, r"damaged \(invalid offset"),
        (claim, r"damaged \(invalid shape"),
        (huge, r"damaged \(invalid offset"),
    ],
)
def test_each_damage_is_named(edit: Any, message: str, whole: Path, tmp_path: Path) -> None:
    with pytest.raises(BadCheckpoint, match=message):
        file.read(rewritten(whole, tmp_path / "damaged.safetensors", edit))


def nested(levels: int) -> str:
    return '{"tuple":[' * levels + "]}" * levels


@pytest.mark.parametrize(
    "state",
    [
        '{"dict":[["model",{"tensor":"nobody"}]]}',
        '{"dict":[[[],1]]}',
        '{"set":[1]}',
        '{"float":"00"}',
        '{"dict":1,"tuple":2}',
        "{}",
        "[]",
        '{"dict":[["a",' + nested(MAX_DEPTH + 1) + "]]}",
        '{"dict":[["a",' + "[" * 100_000 + "]" * 100_000 + "]]}",
        '{"dict":[["a",' + "9" * 10_000 + "]]}",
    ],
)
def test_a_hostile_document_is_refused(state: str, whole: Path, tmp_path: Path) -> None:
    def edit(header: dict[str, Any], raw: bytearray) -> None:
        document = json.loads(header["__metadata__"]["document"])
        document["state"] = "STATE"
        signed(header, json.dumps(document).replace('"STATE"', state))

    with pytest.raises(BadCheckpoint, match="has an invalid document"):
        file.read(rewritten(whole, tmp_path / "hostile.safetensors", edit))


@pytest.mark.parametrize(
    ("key", "value"),
    [("step", -1), ("step", True), ("epoch", 1.5), ("submodel", 3), ("score", "high"), ("recipe", [1]), ("tensors", 1)],
)
def test_wrong_kinds_in_the_document_are_refused(key: str, value: object, whole: Path, tmp_path: Path) -> None:
    def edit(header: dict[str, Any], raw: bytearray) -> None:
        signed(header, json.loads(header["__metadata__"]["document"]) | {key: value})

    with pytest.raises(BadCheckpoint, match="has an invalid document"):
        file.read(rewritten(whole, tmp_path / "wrong.safetensors", edit))


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it ran')",))


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"w": torch.ones(2)}, path, metadata={"format": "pt"})
    others = [path.read_bytes(), pickle.dumps(Bomb()), b"PK\x03\x04" + b"\0" * 60, b"hello, this is text", b"\0" * 64]
    torch.save({"w": torch.ones(2)}, path)
    for content in [*others, path.read_bytes()]:
        path.write_bytes(content)
        with pytest.raises(BadCheckpoint, match="is not a checkpoint of UnifiedNN"):
            file.read(path)


@pytest.mark.parametrize("length", [MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1])
def test_a_huge_header_is_not_believed(length: int, tmp_path: Path) -> None:
    path = tmp_path / "huge.safetensors"
    path.write_bytes(length.to_bytes(8, "little") + b'{"a":1}')
    with pytest.raises(BadCheckpoint, match="not a checkpoint"):
        file.read(path)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    for look in (file.read, file.peek):
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "nothing.safetensors")
