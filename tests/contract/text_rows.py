"""Tables and texts as people have them: more rows of `docs/DATA.md`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.contract.data_rows import DataFile
from tests.unit.data import data_files as made
from unifiednn_core.base.paths import Home
from unifiednn_core.data.values import ImportOptions
from unifiednn_core.spec.columns import TableImportOptions, parse_plan

Write = Callable[[Path], object]
TOKENIZER = "7" * 64
THINGS = ("plot", "cast", "score", "end", "cut")
WORDS = ("good", "bad", "dull", "bold", "sad", "warm", "cold", "loud", "odd", "fine", "dry", "thin", "sharp")
SENTENCES = [
    f"the {thing} was {word} and the film went on{' and on' * (len(word) - 3)}" for thing in THINGS for word in WORDS
]
LABELS = [at % 2 for at in range(len(SENTENCES))]
PEOPLE = "age,job,income,label\n30,cook,1000.5,yes\n41,clerk,,no\n52,cook,900,yes\n38,,800,no\n"
IDS = [[2, 5, 7], [3], [4, 4], [6, 2]]


def text(content: str) -> Write:
    return lambda path: path.write_text(content, encoding="utf-8")


def jsonl(**columns: list[Any]) -> Write:
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return text("".join(json.dumps(row) + "\n" for row in rows))


def table(**columns: Any) -> Write:
    return lambda path: parquet.write_table(pa.table(columns), path)


def with_tokenizer(write: Write) -> Write:
    """Write the file, and a tokenizer of letters into the library."""

    def both(path: Path) -> None:
        letters = {letter: at for at, letter in enumerate(["[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz"])}
        made = Tokenizer(models.WordLevel(letters, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
        place = Home(path.parent).file(TOKENIZER)
        place.parent.mkdir(parents=True, exist_ok=True)
        made.save(str(place))
        write(path)

    return both


def asked(**wish: Any) -> ImportOptions:
    return ImportOptions(table=TableImportOptions(**wish))


PLAN = parse_plan(
    {
        "columns": [
            {"kind": "number", "name": "age", "input": "real"},
            {"kind": "number", "name": "income", "missing": "flag", "input": "real"},
            {"kind": "category", "name": "job", "missing": "own", "input": "job"},
            {"kind": "category", "name": "label"},
        ],
        "target": "label",
    }
)
SENTENCES_CSV = "sentence,label\n" + "".join(f"{one},{at}\n" for one, at in zip(SENTENCES, LABELS, strict=True))
SST = "".join(f"{one}\t{at}\n" for one, at in zip(SENTENCES, LABELS, strict=True))
PICTURES = [{"bytes": made.picture(one), "path": "1.png"} for one in made.pixels(4)]

TABLES = (
    DataFile("CSV of numbers", "numbers.csv", text("a,b,target\n1,2,0\n3,4,1\n5,6,0\n7,8,1\n")),
    DataFile("CSV with categories and missing values", "people.csv", text(PEOPLE)),
    DataFile("the same", "people.csv", text(PEOPLE), asked(plan=PLAN)),
    DataFile("CSV of sentences", "reviews.csv", text(SENTENCES_CSV)),
    DataFile("the same", "reviews.csv", text(SENTENCES_CSV), asked(tokenizer="words")),
    DataFile("TSV without a line of names (SST-2)", "sst2.tsv", text(SST), asked(tokenizer="words", length=12)),
    DataFile("CSV with a typing error", "typo.csv", text("a,label\n1,0\n2,1\n3x,0\n")),
    DataFile("CSV with decimal commas", "comma.csv", text("a;label\n1,5;0\n2,5;1\n")),
    DataFile(
        "JSONL with text", "reviews.jsonl", jsonl(text=SENTENCES, label=LABELS), asked(tokenizer="words", mask=True)
    ),
    DataFile("JSONL with ids of tokens", "ids.jsonl", jsonl(input_ids=IDS, label=[0, 1, 0, 1])),
    DataFile(
        "Parquet with text",
        "reviews.parquet",
        with_tokenizer(table(text=SENTENCES, label=LABELS)),
        asked(tokenizer=TOKENIZER, length=20),
    ),
    DataFile("Parquet with lists of tokens", "ids.parquet", table(input_ids=IDS, label=[0, 1, 0, 1])),
    DataFile("Parquet with images (`datasets`)", "images.parquet", table(image=PICTURES, label=[0, 1, 0, 1])),
    DataFile("plain text", "book.txt", text("\n".join(SENTENCES)), asked(length=16)),
    DataFile(
        "JSONL of documents",
        "documents.jsonl",
        jsonl(text=SENTENCES, id=LABELS),
        asked(text_columns=("text",), stream=True, length=16),
    ),
)
