import zipfile
from pathlib import Path

import pytest
import torch

from tests.unit.formats import kit
from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats.tensor_files import MAX_TUPLES, check_storages, mapped


def with_record(source: Path, target: Path, length: int | None) -> Path:
    """A copy whose first record has another length, or is not there."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if not info.filename.endswith("data/0"):
                new.writestr(info.filename, content)
            elif length is not None:
                new.writestr(info.filename, content[:length].ljust(length, b"\1"))
    return target


@pytest.mark.parametrize("name", kit.NETWORKS)
def test_what_torch_writes_is_as_long_as_it_says(name: str, tmp_path: Path) -> None:
    network = kit.network(name)
    torch.save(network.state_dict(), tmp_path / "net.pt")
    check_storages(tmp_path / "net.pt")
    with_views = {
        "whole": (whole := torch.arange(12.0)),
        "part": whole[3:5],
        "ints": torch.arange(3, dtype=torch.uint8),
    }
    torch.save(with_views, tmp_path / "views.pt")
    check_storages(tmp_path / "views.pt")


@pytest.mark.parametrize("length", [None, 0, 4, 12, 20, 4096])
def test_a_record_of_another_length_is_refused(length: int | None, tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(4)}, tmp_path / "whole.pt")
    check_storages(tmp_path / "whole.pt")
    with pytest.raises(HostileFile, match="another size"):
        check_storages(with_record(tmp_path / "whole.pt", tmp_path / "net.pt", length))


@pytest.mark.parametrize(("tuples", "names"), [(MAX_TUPLES + 1, 0), (MAX_TUPLES, MAX_TUPLES)])
def test_keys_of_very_deep_tuples_are_refused_before_they_are_hashed(tuples: int, names: int, tmp_path: Path) -> None:
    """Of the letters in names none counts."""
    content = b"\x80\x02}" + b"(X\x02\x00\x00\x00ttNu" * names + b")" + b"\x85" * tuples + b"Ns."
    with zipfile.ZipFile(tmp_path / "deep.pt", "w") as archive:
        for name, data in {"data.pkl": content, "version": b"3\n", "byteorder": b"little"}.items():
            archive.writestr(f"archive/{name}", data)
    if tuples > MAX_TUPLES:
        with pytest.raises(HostileFile, match="tuples"):
            mapped(tmp_path / "deep.pt")
    else:
        assert len(mapped(tmp_path / "deep.pt")) == 2  # type: ignore[arg-type]
