"""Exported files that ask for more than a network needs are refused, and nothing of them runs."""

import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hostile.corpus import archives
from tests.hostile.marks import payload
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats.exported import ExportedFormat

FORMAT = ExportedFormat()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.exported(tmp_path_factory.mktemp("good"), "residual")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that a payload would create."""
    return tmp_path / "canary"


def guard(document: Any, canary: Path) -> None:
    document["guards_code"] = [archives.call(canary)]


@pytest.mark.parametrize("name", archives.MAKERS)
def test_what_no_exported_program_needs_is_refused(name: str, tmp_path: Path, canary: Path) -> None:
    with pytest.raises((HostileFile, BadInput)):
        FORMAT.read(archives.MAKERS[name](tmp_path), None)
    assert not canary.exists()


def test_the_payload_is_real_for_the_official_loader(good: Path, tmp_path: Path, canary: Path) -> None:
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: archives.evil_expression(document, canary))
    script = f"import torch; torch.export.load({str(hostile)!r})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True)
    assert canary.exists()


def test_guards_are_left_behind(good: Path, tmp_path: Path, canary: Path) -> None:
    path = kit.mutated(good, tmp_path / "m.pt2", lambda document: guard(document, canary))
    delivery = FORMAT.write(FORMAT.read(path, None), kit.network("residual").state_dict(), tmp_path, "a")
    assert all(b"mkdir" not in written.read_bytes() for written in delivery.files)
    assert not canary.exists()


def test_pickled_sample_inputs_are_never_opened_nor_passed_on(good: Path, tmp_path: Path, canary: Path) -> None:
    path = kit.mutated(good, tmp_path / "m.pt2", replace={archives.SAMPLES: pickle.dumps(payload(tmp_path))})
    definition = FORMAT.read(path, None)
    definition.build()
    delivery = FORMAT.write(definition, kit.network("residual").state_dict(), tmp_path, "a")
    for written in delivery.files:
        assert kit.entries_of(written)["a/data/sample_inputs/model.pt"] == b""
    assert not canary.exists()


def test_an_archive_that_claims_more_bytes_than_the_file_has_is_refused(good: Path, tmp_path: Path) -> None:
    content = bytearray(good.read_bytes())
    record = content.rfind(b"PK\x01\x02", 0, content.rfind(b"archive/data/weights/weight_0"))
    struct.pack_into("<II", content, record + 20, 2**31, 2**31)
    (tmp_path / "m.pt2").write_bytes(content)
    with pytest.raises(HostileFile, match="more bytes"):
        FORMAT.read(tmp_path / "m.pt2", None)


def test_two_tensors_in_the_same_bytes_are_refused(good: Path, tmp_path: Path) -> None:
    def edit(document: Any) -> None:
        entry = document["config"]["head.weight"]["tensor_meta"]
        document["config"]["conv.weight"]["path_name"] = document["config"]["head.weight"]["path_name"]
        document["config"]["conv.weight"]["tensor_meta"] = {**entry, "sizes": entry["sizes"][::-1]}
        document["config"]["conv.weight"]["tensor_meta"]["strides"] = [{"as_int": 3}, {"as_int": 1}]

    with pytest.raises(HostileFile, match="claim"):
        FORMAT.read(kit.mutated(good, tmp_path / "m.pt2", edit, entry=archives.WEIGHTS), None)


def test_a_value_that_is_used_before_it_is_computed_is_refused(good: Path, tmp_path: Path) -> None:
    hostile = kit.mutated(good, tmp_path / "m.pt2", lambda document: kit.graph_of(document)["nodes"].reverse())
    with pytest.raises(HostileFile, match="before it is computed"):
        FORMAT.read(hostile, None)


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
