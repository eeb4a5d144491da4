"""Splits, conversions and previews: what becomes of a data set between upload and library."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.files import file_sha256
from unifiednn_core.base.paths import Home
from unifiednn_core.data import parts as reading
from unifiednn_core.data.conversion import convert, is_needed, split
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.data.preview import preview
from unifiednn_core.data.values import DataNotes, DataPreview, SplitPlan, preview_of, split_plan
from unifiednn_core.preflight import process
from unifiednn_core.preflight.inspection import inspect_file


def saved(folder: Path, samples: int = 50, **changes: Any) -> Path:
    data = {"inputs": torch.arange(samples * 3.0).view(samples, 3), "targets": torch.arange(samples) % 4} | changes
    torch.save(data, folder / "data.pt")
    return folder / "data.pt"


def halves(path: Path, folder: Path, **asked: Any) -> dict[str, dict[str, torch.Tensor]]:
    folder.mkdir()
    return {name: load_file(part) for name, part in split(path, SplitPlan(**asked), folder).items()}


@pytest.mark.parametrize("elements", [2**19, 7])
def test_the_parts_hold_every_sample_once_in_order(
    elements: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK_ELEMENTS", elements)
    parts = halves(saved(tmp_path), tmp_path / "out", test_share=0.25, seed=3)
    firsts = {name: (part["inputs"][:, 0] / 3).long() for name, part in parts.items()}
    for name, part in parts.items():
        assert torch.equal(firsts[name], firsts[name].sort().values)
        assert torch.equal(part["inputs"], torch.arange(150.0).view(50, 3)[firsts[name]])
        assert torch.equal(part["targets"], firsts[name] % 4)
    assert torch.equal(torch.cat(list(firsts.values())).sort().values, torch.arange(50))
    assert [int((parts["test"]["targets"] == label).sum()) for label in range(4)] == [3, 3, 3, 3]


@pytest.mark.parametrize(("samples", "tested"), [(10, 3), (9, 2), (2, 1)])
def test_a_share_is_rounded_to_the_nearest_sample(samples: int, tested: int, tmp_path: Path) -> None:
    parts = halves(saved(tmp_path, samples), tmp_path / "out", test_share=0.25, by_class=False)
    assert len(parts["test"]["inputs"]) == tested


def test_equal_file_share_and_seed_give_equal_bytes_and_another_seed_others(tmp_path: Path) -> None:
    path = saved(tmp_path)

    def hashes(name: str, seed: int) -> list[str]:
        (tmp_path / name).mkdir()
        return [file_sha256(part) for part in split(path, SplitPlan(seed=seed), tmp_path / name).values()]

    first = hashes("a", 0)
    assert hashes("b", 0) == first
    assert set(hashes("c", 1)).isdisjoint(first)


def test_rare_classes_stay_in_the_training(tmp_path: Path) -> None:
    targets = torch.tensor([0] * 40 + [1, 1, 2])
    path = saved(tmp_path, inputs=torch.rand(43, 2), targets=targets)
    parts = halves(path, tmp_path / "out", test_share=0.1)
    assert sorted(parts["test"]["targets"].tolist()) == [0, 0, 0, 0, 1]
    free = halves(path, tmp_path / "free", test_share=0.1, by_class=False)
    assert len(free["test"]["targets"]) == 4


def test_bytes_and_real_targets_stay_what_they_are(tmp_path: Path) -> None:
    path = saved(tmp_path, inputs=torch.arange(50, dtype=torch.uint8).view(50, 1), targets=torch.rand(50).double())
    test = halves(path, tmp_path / "out")["test"]
    assert (test["inputs"].dtype, test["targets"].dtype, len(test["inputs"])) == (torch.uint8, torch.float32, 10)


def test_what_cannot_be_parted_is_bad_input(tmp_path: Path) -> None:
    path = saved(tmp_path, 1)
    with pytest.raises(BadInput, match="is left for the test"):
        split(path, SplitPlan(), tmp_path)
    for asked in ({"test_share": 0}, {"test_share": 1.0}, {"seed": -1}):
        with pytest.raises(BadInput, match="share lies between 0 and 1"):
            split_plan(**asked)


def test_parts_come_into_the_home_by_their_content(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_let_write", lambda allowed: None)  # the limits are the process's, not this one's
    report = process.run_split(saved(tmp_path), "data.pt", SplitPlan(), home.create())
    assert report.train is not None and report.test is not None
    for part in (report.train, report.test):
        assert file_sha256(home.file(part.sha256)) == part.sha256
    seen = preview_of(report.test.facts)
    assert seen is not None and seen.notes.part == "test 20 %, seed 0, by class"
    assert SplitPlan().filename("test", "data.pt") == "data-test20-seed0.safetensors"
    assert not list(home.quarantine.iterdir())
    assert process.run_split(saved(tmp_path, 1), "one.pt", SplitPlan(), home).findings[0].field == "one.pt"


def packed(folder: Path) -> dict[str, Path]:
    """One file of each kind that is converted."""
    (folder / "t.csv").write_text("a,label\n1,x\n2,y\n")
    arrays = {"inputs": np.arange(12, dtype=np.float32).reshape(4, 3), "targets": np.arange(4)}
    np.savez_compressed(folder / "p.npz", **arrays)
    content = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(content, "PNG")
    with zipfile.ZipFile(folder / "i.zip", "w") as archive:
        archive.writestr("c/1.png", content.getvalue())
    return {"csv": folder / "t.csv", "npz": folder / "p.npz", "images": folder / "i.zip"}


def test_a_conversion_gives_the_same_data_in_a_file_that_maps(tmp_path: Path) -> None:
    for origin, path in packed(tmp_path).items():
        assert is_needed(path)
        convert(path, tmp_path / "one")
        convert(path, tmp_path / "two")
        assert file_sha256(tmp_path / "one") == file_sha256(tmp_path / "two")
        assert not is_needed(tmp_path / "one")
        ours, theirs = read_dataset(path), read_dataset(tmp_path / "one")
        assert torch.equal(ours.first, theirs.first) and torch.equal(ours.targets, theirs.targets)
        assert theirs.first.data_ptr() % 64 == 0
        assert theirs.notes == ours.notes.model_copy(update={"origin": origin})
        assert inspect_file(tmp_path / "one", "shown").format == origin


def test_a_part_of_a_converted_data_set_is_a_safetensors_file(tmp_path: Path) -> None:
    convert(packed(tmp_path)["csv"], tmp_path / "converted")
    parts = split(tmp_path / "converted", SplitPlan(by_class=False), tmp_path)
    assert {inspect_file(part, "shown").format for part in parts.values()} == {"safetensors"}


def test_inspecting_converts_where_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_let_write", lambda allowed: None)
    files, target = packed(tmp_path), tmp_path / "converted"
    report = process.run_inspect(files["csv"], "t.csv", target)
    assert (report.converted, report.format, report.kind) == (True, "csv", "data")
    assert (report.sha256, report.size_bytes) == (file_sha256(target), target.stat().st_size)
    plain = process.run_inspect(saved(tmp_path), "data.pt", tmp_path / "not-written")
    assert not plain.converted and not (tmp_path / "not-written").exists()
    files["csv"].write_text("a,b\n1,2\nx,3\n")
    refused = process.run_inspect(files["csv"], "t.csv", target)
    assert refused.kind == "unknown" and refused.findings[0].field == "t.csv"


def look(folder: Path, **data: Any) -> DataPreview:
    path = saved(folder, **data)
    return preview(path, read_dataset(path))


def test_a_preview_tells_range_balance_and_first_samples(tmp_path: Path) -> None:
    seen = look(tmp_path, inputs=torch.tensor([[0.0, 1], [2, 3], [4, 5]]), targets=torch.tensor([0, 1, 1]))
    assert seen.inputs.model_dump() == pytest.approx({"minimum": 0, "maximum": 5, "mean": 2.5, "std": (35 / 12) ** 0.5})
    assert seen.class_counts == (1, 2) and seen.targets is None
    assert [(sample.values, sample.target, sample.image) for sample in seen.samples] == [
        ("0, 1", "0", ""),
        ("2, 3", "1", ""),
        ("4, 5", "1", ""),
    ]
    assert DataPreview.model_validate_json(seen.model_dump_json()) == seen


@pytest.mark.parametrize(
    ("data", "title"),
    [
        ({"inputs": torch.ones(3, 2), "targets": torch.arange(3)}, "Inputs all equal"),
        ({"inputs": torch.rand(3, 2), "targets": torch.zeros(3).long()}, "One class alone"),
        ({"inputs": torch.rand(3, 2), "targets": torch.tensor([0, 2, 3])}, "Classes without samples"),
        ({"inputs": torch.rand(50, 2), "targets": torch.tensor([0] * 49 + [1])}, "Classes unbalanced"),
        ({"inputs": torch.rand(4, 2), "targets": torch.tensor([0, 1, 1, 0])}, None),
    ],
)
def test_what_is_odd_is_a_warning(data: Any, title: str | None, tmp_path: Path) -> None:
    assert [warning.title for warning in look(tmp_path, **data).warnings] == ([title] if title else [])


def test_notes_of_strangers_are_taken_only_where_they_are_notes() -> None:
    notes = DataNotes(origin="csv", class_names=("a",))
    assert DataNotes.of(notes.metadata()) == notes
    for text in ("{", "[]", '{"class_names": 3}', '{"other": 1}', '{"target": "' + "x" * 201 + '"}'):
        assert DataNotes.of({"unifiednn_data": text}) == DataNotes()
