"""The hostile pickles of the corpus, one by one and quickly: nothing runs, and each is refused with a reason."""

import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.hostile.corpus import modules, pickles
from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats.module import PickledModule
from unifiednn_core.preflight.inspection import inspect_file

MAKERS = modules.MAKERS | pickles.MAKERS


@pytest.mark.parametrize("name", MAKERS)
def test_what_no_network_needs_is_refused_and_nothing_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = MAKERS[name](tmp_path)
    before = set(tmp_path.rglob("*"))
    findings = inspect_file(path, path.name).findings
    assert [finding for finding in findings if finding.severity == "error"]
    assert set(tmp_path.rglob("*")) == before


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 3), tmp_path / "m.pt")
    with zipfile.ZipFile(tmp_path / "m.pt", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("m/data.pkl", b"\x80\x02ctorch.nn.modules.linear\nLinear\n.")
    with pytest.raises(HostileFile, match="two entries"):
        PickledModule().read(tmp_path / "m.pt", None)


@pytest.mark.parametrize("part", range(12))
def test_a_file_that_is_cut_short_or_garbled_is_a_finding(part: int, tmp_path: Path) -> None:
    torch.save(nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 2)), tmp_path / "m.pt")
    content = bytearray((tmp_path / "m.pt").read_bytes())
    at = len(content) * part // 12
    (tmp_path / "cut.pt").write_bytes(content[:at])
    assert inspect_file(tmp_path / "cut.pt", "cut.pt").findings
    for place in range(at, min(at + 40, len(content))):
        content[place] ^= 0x15
    (tmp_path / "garbled.pt").write_bytes(content)
    inspect_file(tmp_path / "garbled.pt", "garbled.pt")  # what it finds depends on the bytes; it does not raise
