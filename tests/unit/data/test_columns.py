"""Plans of columns: proposed, declared, fitted, and applied to a second file as they were fitted on the first."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.unit.data import data_files as made
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import fitting, jsonl, tables
from unifiednn_core.data.conversion import convert, settled
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.spec.columns import NO_TABLE_OPTIONS, ColumnPlan, TableImportOptions, parse_plan

MIXED = "age,job,town,label\n30,cook,Ulm,yes\n,clerk,Bonn,no\n50,cook,Ulm,yes\n40,clerk,,no\n"


def written(folder: Path, text: str, name: str = "data") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def converted(
    path: Path, wish: TableImportOptions = NO_TABLE_OPTIONS, size: int | None = None, **files: Path
) -> Dataset:
    target = path.with_name(f"{path.name}.converted")
    convert(path, target, settled(path, path.name, ImportOptions(table=wish, size=size)), files.__getitem__)
    return read_dataset(target)


def planned(document: dict[str, Any]) -> TableImportOptions:
    return TableImportOptions(plan=parse_plan(document))


def test_a_table_of_numbers_categories_and_gaps_needs_no_options(tmp_path: Path) -> None:
    found = converted(written(tmp_path, MIXED))
    assert found.first.tolist() == [[30, 0, 1, 0, 0, 1], [40, 1, 0, 0, 1, 0], [50, 0, 1, 0, 0, 1], [40, 1, 0, 1, 0, 0]]
    assert found.first.dtype is torch.float32
    assert found.notes.columns == ("age", "job = clerk", "job = cook", "town = ", "town = Bonn", "town = Ulm")
    assert found.notes.class_names == ("no", "yes") and found.targets is not None
    assert found.targets.tolist() == [1, 0, 1, 0]


def test_test_data_become_numbers_as_the_training_data_did(tmp_path: Path) -> None:
    converted(written(tmp_path, MIXED, "train"))
    other = "label,town,age,job,more\nno,Bonn,,clerk,x\n"
    found = converted(
        written(tmp_path, other, "test"), TableImportOptions(like="0" * 64), **{"0" * 64: tmp_path / "train.converted"}
    )
    assert found.first.tolist() == [[40, 1, 0, 0, 1, 0]]  # the mean of the training data, its categories, its order
    assert found.targets is not None and found.targets.tolist() == [0]
    unknown = written(tmp_path, "age,job,town,label\n1,pilot,Ulm,no\n", "unknown")
    with pytest.raises(BadInput, match="'pilot' in line 2, which the 2 known values lack"):
        converted(unknown, TableImportOptions(like="0" * 64), **{"0" * 64: tmp_path / "train.converted"})
    with pytest.raises(BadInput, match="no column 'age'"):
        short = written(tmp_path, "job,town,label\ncook,Ulm,no\n", "short")
        converted(short, TableImportOptions(like="0" * 64), **{"0" * 64: tmp_path / "train.converted"})


def test_columns_that_became_numbers_in_another_way_are_named(tmp_path: Path) -> None:
    """Otherwise the same number would mean one thing in training and another one in the test."""
    reviews = "text,label\n" + "".join(f"{word} film,{at % 2}\n" for at, word in enumerate("abcd"))
    wish = TableImportOptions(tokenizer="words", text_columns=("text",))
    train = converted(written(tmp_path, reviews, "train.csv"), wish).notes.plan
    files = {"0" * 64: tmp_path / "train.csv.converted"}
    other = written(tmp_path, reviews.replace("film", "play"), "test.csv")
    alone, like = (
        converted(other, wish).notes.plan,
        converted(other, TableImportOptions(like="0" * 64), **files).notes.plan,
    )
    assert train is not None and alone is not None and like is not None
    assert train.otherwise(alone) == ("text",) and train.otherwise(like) == ()
    ages = [converted(written(tmp_path, f"age,y\n{age},1\n,0\n")).notes.plan for age in (1, 1, 2)]
    assert [ages[0].otherwise(one) for one in ages if one is not None] == [(), (), ("age",)]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ("mean", [[1], [3], [8], [4]]),
        ("median", [[1], [3], [8], [3]]),
        ("zero", [[1], [3], [8], [0]]),
        ("flag", [[1, 0], [3, 0], [8, 0], [0, 1]]),
    ],
)
def test_what_a_missing_number_becomes_is_said(missing: str, expected: list[list[float]], tmp_path: Path) -> None:
    column = {"kind": "number", "name": "a", "missing": missing}
    plan = planned({"columns": [column, {"kind": "number", "name": "y", "whole": True}], "target": "y"})
    path = written(tmp_path, "a,b,y\n1,x,0\n3,x,1\n8,x,2\n,x,3\n")
    assert converted(path, plan).first.tolist() == expected
    column["missing"] = "refuse"
    with pytest.raises(BadInput, match="Column 'a' has no value in line 5"):
        converted(path, planned({"columns": [column]}))


def test_columns_become_named_inputs(tmp_path: Path) -> None:
    plan = planned(
        {
            "columns": [
                {"kind": "category", "name": "job", "input": "ids"},
                {"kind": "category", "name": "label", "input": "ids"},
                {"kind": "number", "name": "age", "missing": "zero", "input": "real"},
            ]
        }
    )
    found = converted(written(tmp_path, MIXED), plan)
    assert list(found.inputs) == ["ids", "real"] and found.targets is None
    assert found.inputs["ids"].dtype is torch.int64 and found.inputs["real"].dtype is torch.float32
    assert found.inputs["ids"].tolist() == [[1, 1], [0, 0], [1, 1], [0, 0]]
    assert found.inputs["real"].tolist() == [[30], [0], [50], [40]]


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"columns": []}, "No column becomes an input"),
        ({"columns": [{"kind": "number", "name": "a"}], "target": "y"}, "does not say how 'y'"),
        ({"columns": [{"kind": "number", "name": "a"}, {"kind": "ignore", "name": "a"}]}, "named twice"),
        ({"columns": [{"kind": "text", "name": "a"}, {"kind": "number", "name": "b"}]}, "shares the input"),
        (
            {"columns": [{"kind": "text", "name": "a", "stream": True}, {"kind": "number", "name": "b", "input": "b"}]},
            "no name",
        ),
        ({"columns": [{"kind": "number", "name": "a", "missing": "guess"}]}, 'cannot be "guess"'),
        ("{", "no JSON"),
    ],
)
def test_a_plan_that_does_not_fit_together_is_a_finding(document: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_plan(document)


TEXTS = ["The cat sat", "a DOG", "", "the cat saw the dog and the cow"]


def jsonl_of(folder: Path, name: str = "texts.jsonl") -> Path:
    lines = [json.dumps({"text": text, "label": number % 2}) for number, text in enumerate(TEXTS)]
    return written(folder, "\n".join(lines) + "\n", name)


def test_texts_become_numbers_of_the_most_frequent_words(tmp_path: Path) -> None:
    found = converted(jsonl_of(tmp_path), TableImportOptions(tokenizer="words", text_columns=("text",), vocabulary=3))
    # the: 3, then of the words that occur twice the first of the alphabet: cat, dog
    assert found.first.tolist() == [
        [3, 4, 1, 0, 0, 0, 0, 0],
        [1, 5, 0, 0, 0, 0, 0, 0],
        [0] * 8,
        [3, 4, 1, 3, 5, 1, 3, 1],
    ]
    assert found.first.dtype is torch.int64 and found.notes.pad == {"inputs": 0} and found.notes.origin == "jsonl"
    assert found.notes.plan is not None
    text = tuple(column for column in found.notes.plan.columns if column.name == "text")
    other = written(tmp_path, '{"text": "dog cow"}\n{"label": 0, "text": "the"}\n')
    again = converted(other, TableImportOptions(plan=ColumnPlan(columns=text)))
    assert again.first[:, :3].tolist() == [[5, 1, 0], [3, 0, 0]] and again.targets is None


def test_a_mask_is_a_second_input_and_long_texts_are_cut(tmp_path: Path) -> None:
    found = converted(
        jsonl_of(tmp_path), TableImportOptions(tokenizer="words", text_columns=("text",), length=2, mask=True)
    )
    assert list(found.inputs) == ["attention_mask", "input_ids"] and found.notes.pad == {"input_ids": 0}
    assert found.inputs["attention_mask"].tolist() == [[1, 1], [1, 1], [0, 0], [1, 1]]
    assert torch.equal(found.inputs["attention_mask"], (found.inputs["input_ids"] != 0).long())


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    letters = {letter: number for number, letter in enumerate(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz"])}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


def test_texts_go_through_a_tokenizer_file(tokenizer_file: Path, tmp_path: Path) -> None:
    path = written(tmp_path, "text,label\n" + "".join(f"{text},{n % 2}\n" for n, text in enumerate(TEXTS)), "t.csv")
    sha256 = "1" * 64
    found = converted(
        path, TableImportOptions(tokenizer=sha256, text_columns=("text",), length=6), **{sha256: tokenizer_file}
    )
    plain = Tokenizer.from_file(str(tokenizer_file))
    plain.enable_truncation(6)
    plain.enable_padding(length=6, pad_id=0)
    assert found.first.tolist() == [one.ids for one in plain.encode_batch(TEXTS)]
    assert found.notes.plan is not None and found.notes.plan.tokenizers() == {sha256}


def test_a_text_is_a_stream_of_tokens(tmp_path: Path) -> None:
    text = "a b\n\n c a\nb"
    found = converted(written(tmp_path, text, "t.txt"), TableImportOptions(length=3))
    # <end> is 2; a and b occur twice, so a is 3, b 4, c 5: a b <end> <end> c a <end> b <end>
    assert found.first.tolist() == [[3, 4, 2], [2, 5, 3], [2, 4, 2]] and found.targets is None
    assert converted(written(tmp_path, "a " * 9, "line.txt"), TableImportOptions(length=10)).samples == 1
    with pytest.raises(BadInput, match="9 tokens, too few for one sample of 10"):
        converted(tmp_path / "t.txt", TableImportOptions(length=10))


def test_lists_of_numbers_are_padded(tmp_path: Path) -> None:
    rows = {"ids": [[1, 2, 3], [], None, [7]], "y": [0, 1, 0, 1]}
    parquet.write_table(pa.table(rows), tmp_path / "t.parquet")
    found = converted(tmp_path / "t.parquet")
    assert found.first.tolist() == [[1, 2, 3], [0] * 3, [0] * 3, [7, 0, 0]] and found.first.dtype is torch.int64
    lines = "".join(json.dumps({"ids": one, "y": y}) + "\n" for one, y in zip(rows["ids"], rows["y"], strict=True))
    assert torch.equal(converted(written(tmp_path, lines)).first, found.first)


def test_images_of_a_table_are_decoded(tmp_path: Path) -> None:
    pixels = made.pixels(3)
    rows = [{"bytes": made.picture(one), "path": None} for one in pixels]
    parquet.write_table(pa.table({"image": rows, "label": [0, 1, 0]}), tmp_path / "t.parquet")
    found = converted(tmp_path / "t.parquet")
    assert torch.equal(found.first, torch.from_numpy(pixels))
    assert converted(tmp_path / "t.parquet", size=4).first.shape == (3, 3, 4, 4)
    rows[1] = {"bytes": made.picture(made.pixels(1, 3, 9)[0]), "path": None}
    parquet.write_table(pa.table({"image": rows, "label": [0, 1, 0]}), tmp_path / "t.parquet")
    with pytest.raises(BadInput, match=r"Images are 8x8 but 9x9 .* in row 2.* --size"):
        converted(tmp_path / "t.parquet")
    for content, words in ((b"\x89PNG", "row 1' is damaged"), (None, "no image in row 1")):
        rows[0] = {"bytes": content, "path": None}
        parquet.write_table(pa.table({"image": rows, "label": [0, 1, 0]}), tmp_path / "t.parquet")
        with pytest.raises(BadInput, match=words):
            converted(tmp_path / "t.parquet")


Cell = st.one_of(st.none(), st.floats(-1e6, 1e6, width=32))


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(Cell, st.sampled_from("xyz"), Cell, st.integers(0, 3)), min_size=2, max_size=30))
def test_blocks_of_any_size_and_every_format_give_the_same(
    rows: list[tuple[float | None, str, float | None, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("t")
    names = ["a", "kind", "b", "label"]
    records = [dict(zip(names, row, strict=True)) for row in rows]
    written(folder, "".join(json.dumps(one) + "\n" for one in records), "t.jsonl")
    cells = [",".join("" if cell is None else str(cell) for cell in row) for row in rows]
    written(folder, "\n".join([",".join(names), *cells]) + "\n", "t.csv")
    columns: dict[str, Any] = {name: [one[name] for one in records] for name in names}
    for name in ("a", "b"):
        columns[name] = pa.array(columns[name], pa.float64())
    parquet.write_table(pa.table(columns), folder / "t.parquet")
    plan = planned(
        {
            "columns": [
                {"kind": "number", "name": "a", "missing": "median"},
                {"kind": "category", "name": "kind", "one_hot": True},
                {"kind": "number", "name": "b", "missing": "zero"},
                {"kind": "number", "name": "label", "whole": True},
            ],
            "target": "label",
        }
    )
    has_value = any(row[0] is not None for row in rows)
    found = []
    for name in ("t.jsonl", "t.csv", "t.parquet"):
        if not has_value:
            with pytest.raises(BadInput, match="no value at all"):
                converted(folder / name, plan)
            continue
        found.append(converted(folder / name, plan))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(jsonl, "BLOCK_BYTES", 50)
            patch.setattr(tables, "_BLOCK_BYTES", 256)
            patch.setattr(tables, "_BATCH_ROWS", 3)
            found.append(converted(folder / name, plan))
    if has_value:
        middle = np.float32(np.median([row[0] for row in rows if row[0] is not None]))
        kinds = sorted({row[1] for row in rows})
        expected = [
            [middle if a is None else a, *(float(kind == one) for one in kinds), b or 0.0] for a, kind, b, _ in rows
        ]
        for one in found:
            assert torch.equal(one.first, torch.tensor(np.array(expected, np.float32)))
            assert one.targets is not None and one.targets.tolist() == [row[3] for row in rows]


def test_words_are_counted_over_blocks_as_over_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(list("abcdefgh"), 5)) for _ in range(200)]
    path = written(tmp_path, "\n".join(lines), "t.txt")
    whole = converted(path, TableImportOptions(length=7, vocabulary=4))
    counts = Counter(" ".join(lines).split())
    assert whole.notes.plan is not None
    [column] = whole.notes.plan.used()
    assert column.kind == "text" and column.words == tuple(sorted(counts, key=lambda one: (-counts[one], one))[:4])
    monkeypatch.setattr(tables, "BLOCK_BYTES", 37)
    assert torch.equal(converted(path, TableImportOptions(length=7, vocabulary=4)).first, whole.first)


@pytest.mark.parametrize(
    ("content", "wish", "words"),
    [
        ('{"a": 1, "y": 0}\n{"a": 2\n', {}, "Line 2 is no JSON"),
        ('{"a": 1, "y": 0}\n{"a": {"b": 1}, "y": 1}\n', {}, "Column 'a' holds"),
        ('{"a": [1], "y": 0}\n{"a": ["x"], "y": 1}\n', {}, "Column 'a' holds"),
        ('{"a": [1e39], "y": 0}\n{"a": [2], "y": 1}\n', {}, "not finite in or after line 1"),
        ('{"a": 1, "y": 0}\n{"a": 2, "y": 1}\n', {"target": "z"}, "There is no column 'z'"),
        ('{"a": 1}\n{"a": 2}\n', {}, "--no-target"),
        ("a\0b", {"text": True}, "There is a NUL in line 1"),
        ("text,y\n" + "a b c d e,1\n" * 9, {"tokenizer": "1" * 64}, "needs a file of the library"),
    ],
)
def test_data_that_cannot_be_read_are_findings(content: str, wish: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    with pytest.raises(BadInput, match=words):
        convert(path, tmp_path / "out", settled(path, "data", ImportOptions(table=TableImportOptions(**wish))))


def test_a_file_without_names_is_told_by_its_labels(tmp_path: Path) -> None:
    path = written(tmp_path, "good , film\t1\nbad , film\t0\nfine\t1\n")
    found = converted(path, TableImportOptions(tokenizer="words", text_columns=("column 1",)))
    assert found.targets is not None and found.targets.tolist() == [1, 0, 1]
    assert converted(written(tmp_path, "1,2,0\n3,4,2\n"), TableImportOptions(header=False)).samples == 2
    assert converted(written(tmp_path, "a,2019,2020\n3,4,2\n7,8,9\n")).samples == 2


def test_a_table_does_not_become_far_larger_than_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "text,label\n" + "a b,1\n" * 50)
    wish = TableImportOptions(tokenizer="words", text_columns=("text",), length=2**16)
    monkeypatch.setattr("unifiednn_core.formats.zips.FREE_UNPACKED_BYTES", 2**20)
    with pytest.raises(BadInput, match="Give a smaller length"):
        converted(path, wish)
    monkeypatch.setattr(fitting, "SEQUENCE", 4)
    assert converted(path, wish.model_copy(update={"length": 4})).first.shape == (50, 4)
