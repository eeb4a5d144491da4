from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import conversion, tabular
from unifiednn_core.data.containers import container_of
from unifiednn_core.data.datasets import read_dataset


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "target", "inputs", "targets"),
    [
        ("a,b,y\n1,2,0\n3,4,2\n", "y", [[1, 2], [3, 4]], torch.tensor([0, 2])),
        ("label,a,b\n1,2,3\n0,4,5.5\n", "label", [[2, 3], [4, 5.5]], torch.tensor([1, 0])),
        ("label,a,Target\n1,2,3.5\n0,4,1\n", "Target", [[1, 2], [0, 4]], torch.tensor([3.5, 1])),
        ("a;b\n1;1e3\n2;-4\n", "b", [[1], [2]], torch.tensor([1000.0, -4])),
        ("\ufeffa\tb\n1\t7\n", "b", [[1]], torch.tensor([7])),
        ("a|b\n1|7\n", "b", [[1]], torch.tensor([7])),
        ('"a, x","b"\n1,dog\n2,cat\n3,dog\n', "b", [[1], [2], [3]], torch.tensor([1, 0, 1])),
    ],
)
def test_a_table_gives_float32_inputs_and_targets_of_their_kind(
    text: str, target: str, inputs: list[list[float]], targets: torch.Tensor, tmp_path: Path
) -> None:
    path = written(tmp_path, text)
    assert container_of(path) == "csv"
    dataset = read_dataset(path)
    assert torch.equal(dataset.first, torch.tensor(inputs, dtype=torch.float32))
    assert torch.equal(dataset.targets, targets)
    assert dataset.targets.dtype is targets.dtype
    assert dataset.notes.target == target and dataset.notes.origin == "csv"


def test_classes_of_text_are_numbered_by_the_alphabet_and_keep_their_names(tmp_path: Path) -> None:
    dataset = read_dataset(written(tmp_path, "a,label\n" + "".join(f"{n},{name}\n" for n, name in enumerate("cabac"))))
    assert dataset.notes.class_names == ("a", "b", "c")
    assert dataset.notes.columns == ("a",)
    assert dataset.targets.tolist() == [2, 0, 1, 0, 2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,y\n1,2,0\n3,x,2\n", "Column 'b': line 3: .*'x'"),
        ("a,b,y\n1,2,\n3,1,2\n", "Column 'y' has no value in line 2"),
        ("a,b,y\n1,2,\n3,1,\n", "has no value at all"),
        ("a;y\n1,5;2\n2,5;2\n", "Column 'a': line 2: '1,5' is not a number: it has a comma. Write .* point: 1.5"),
        ("y;a\n1.000,5;2\n2,5;2\n", "Column 'y': line 2: .* point: 1000.5"),
        ('y,a\n"1,000",2\n2,5\n', "Column 'y': line 2: .* Write 1000 if the comma separates thousands"),
        ('a,y\n"1,000,000",2\n3,5\n', "Column 'a': line 2: .*: 1000000, leave it empty"),
        ("a,b,label\n1,2,ja\n1,2,nein\n,,\n", "Column 'label' has no value in line 4"),
        ("a,label\n1,ja\n2,nein\n3, \n", "Column 'label' has no value in line 4"),
        ("a,y\n" + "".join(f"text {n},1\n" for n in range(65)), "more than 64 different texts.*--tokenizer words"),
        ("a,b,y\n1,2,0\n3,inf,2\n", "Column 'b' has a value that is NaN, infinite or beyond float32 in line 3"),
        ("1,2,0\n3,4,2\n", "The first line holds numbers"),
        ("a,a,y\n1,2,0\n", "Two columns are named 'a'"),
        ("a,b,y\n1,2,0\n1,2\n", "Expected 3 columns, got 2"),
        ("a,y\n1," + "x" * 300 + "\n", "long texts"),
    ],
)
def test_ambiguous_tables_are_findings(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        read_dataset(written(tmp_path, text))


def test_a_table_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabular, "MAX_READ_BYTES", 200)
    monkeypatch.setattr(tabular, "MAX_TABLE_BYTES", 240)
    csv_path = written(tmp_path, "a,b,y\n" + "1,2,3\n" * 13)
    with pytest.raises(BadInput, match="the limit for this file is 200"):
        read_dataset(csv_path)
    conversion.convert(csv_path, tmp_path / "converted")  # what is converted may be larger
    assert read_dataset(tmp_path / "converted").samples == 13
    parquet.write_table(pa.table({"a": [0.5] * 31, "y": [0] * 31}), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="the limit for this file is 200"):
        read_dataset(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "content", [b"", b"one line", b"a,b\n", b'{"a": 1,\n"b": 2}', b"a,b\n1,\0\n", b"\xff\xfe,\n,\n"]
)
def test_other_texts_are_no_tables(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert container_of(tmp_path / "t.csv") is None


def test_blanks_around_names_and_values_make_no_further_ones(tmp_path: Path) -> None:
    dataset = read_dataset(written(tmp_path, "size, price, label\n1, 2, ja\n3,,nein\n5, NA ,ja \n7, 8, nein\n"))
    assert (dataset.notes.columns, dataset.notes.class_names) == (("size", "price"), ("ja", "nein"))
    assert dataset.first.tolist() == [[1, 2], [3, 5], [5, 5], [7, 8]]
    assert dataset.targets.tolist() == [0, 1, 0, 1]


def test_parquet_with_other_than_numbers_is_a_finding(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [["x"], ["y"]], "y": [0, 1]}), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match="Column 'a' holds list"):
        read_dataset(tmp_path / "t.parquet")
    content = (tmp_path / "t.parquet").read_bytes()
    (tmp_path / "t.parquet").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadInput, match="cannot be read"):
        read_dataset(tmp_path / "t.parquet")
