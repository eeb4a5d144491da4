"""Tables that are none, that unpack without end, or that say something else than numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tests.hostile.corpus import images
from tests.hostile.corpus.images import png

Maker = Callable[[Path], Path]
MANY = 10**6


def _csv(content: bytes | Callable[[], bytes]) -> Maker:
    def make(folder: Path) -> Path:
        (folder / "data.csv").write_bytes(content if isinstance(content, bytes) else content())
        return folder / "data.csv"

    return make


def _parquet(columns: Callable[[], dict[str, Any]], **options: Any) -> Maker:
    def make(folder: Path) -> Path:
        parquet.write_table(pa.table(columns()), folder / "data.parquet", **options)
        return folder / "data.parquet"

    return make


def _edited(edit: Callable[[bytearray], object]) -> Maker:
    def make(folder: Path) -> Path:
        path = _parquet(lambda: {"a": np.arange(40.0), "target": np.arange(40) % 2})(folder)
        content = bytearray(path.read_bytes())
        edit(content)
        path.write_bytes(content)
        return path

    return make


def _set(content: bytearray, start: int, end: int, value: bytes) -> None:
    content[start:end] = value


def _deep() -> dict[str, Any]:
    kind: pa.DataType = pa.float32()
    for _ in range(60):
        kind = pa.list_(kind)
    return {"a": pa.array([None], kind), "target": [1]}


def _long_text() -> dict[str, Any]:
    """One text of 32 MiB, 4000 times over: 125 GiB, in a file of some bytes."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array(["x" * 32 * 1024**2]))
    return {"a": np.zeros(4000), "target": texts}


def _long_lists() -> dict[str, Any]:
    """Lists of 2^16 numbers, all alike: 400 MiB, in a file of some bytes."""
    ids = pa.ListArray.from_arrays(np.arange(101) * 2**16, pa.array(np.zeros(100 * 2**16, np.int64)))
    return {"ids": pa.chunked_array([ids] * 8), "target": np.zeros(800)}


def _pictures(content: Callable[[], bytes]) -> Callable[[], dict[str, Any]]:
    return lambda: {"image": [{"bytes": content(), "path": "1.png"}] * 2, "target": [0, 1]}


def _bombs() -> dict[str, Any]:
    """One image of 16 million pixels, 4000 times over: 47 GiB, in a file of some bytes."""
    content = png(4000, 4000, bytes(4001) * 4000)
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 4000, pa.int32()), pa.array([content])).cast(pa.binary())
    return {"image": column, "target": np.zeros(4000)}


def _packed(folder: Path) -> Path:
    """A thousandth of what it unpacks to."""
    schema = pa.schema([("a", pa.float32()), ("b", pa.float32()), ("target", pa.int8())])
    block = pa.table([np.zeros(MANY, np.float32), np.zeros(MANY, np.float32), np.zeros(MANY, np.int8)], schema=schema)
    with parquet.ParquetWriter(folder / "data.parquet", schema, compression="zstd") as writer:
        for _ in range(40):
            writer.write_table(block, row_group_size=MANY)
    return folder / "data.parquet"


ROWS = b"a,b,target\n" + b"1,2,0\n2,1,1\n" * 4
MAKERS: dict[str, Maker] = {
    "garbage": lambda folder: _written(folder / "data.parquet", b"PAR1" + b"\xff" * 512 + b"PAR1"),
    "without rows": _csv(b"a,b,target\n"),
    "header and no more": _csv(b"a,b,target"),
    "many columns": _csv(lambda: b",".join(b"c%d" % n for n in range(200_000)) + b"\n" + b"1," * 200_000),
    "a million columns": _csv(lambda: b",".join([b"c"] * MANY) + b"\n" + b",".join([b"1"] * MANY) + b"\n"),
    "NUL": _csv(b"a,target\n\0\0\0,1\n"),
    "NUL late": _csv(b"a,target\n" + b"1,1\n" * 300_000 + b"\0,1\n"),
    "giant field": _csv(lambda: b"a,target\n" + b"1" * 20_000_000 + b",1\n"),
    "giant name": _csv(b"a" * 2_000_000 + b",target\n1,1\n"),
    "giant quoted field": _csv(lambda: b'a,target\n"' + b"x" * 20_000_000 + b'",1\n'),
    "quote never closed": _csv(b'a,target\n1,1\n"2,0\n' + b"3,1\n" * 200_000),
    "quote never closed in the names": _csv(b'a,"target\n1,1\n'),
    "rows of other lengths": _csv(b"a,b,target\n1,2,0\n1,2\n1,2,3,4\n"),
    "one column": _csv(b"target\n1\n0\n"),
    "no names": _csv(b"1,2,0\n2,1,1\n"),
    "two of a name": _csv(b"a,a,target\n1,2,0\n"),
    "targets missing": _csv(b"a,target\n1,1\n2,\n"),
    "every value missing": _csv(b"a,target\n,1\n,0\n"),
    "infinite": _csv(b"a,target\n1,1\ninf,0\n-inf,1\n"),
    "number too large": _csv(b"a,target\n1,1\n1e999,0\n"),
    "decimal commas": _csv(b"a;target\n1,5;1\n2,5;0\n"),
    "two encodings": _csv(b"a,target\n1,caf\xc3\xa9\n2,caf\xe9\n"),
    "two encodings late": _csv(b"a,target\n" + b"1,yes\n" * 200_000 + b"2,caf\xe9\n"),
    "UTF-16": _csv("a,target\n1,1\n2,0\n".encode("utf-16")),
    "names of bytes": _csv(b"\xff\xfe\xfd,target\n1,1\n2,0\n"),
    "line ends of old": _csv(b"a,target\r1,1\rx,0\r"),
    "lists of texts": _parquet(lambda: {"a": [["x"], ["y"]], "target": [0, 1]}),
    "bytes": _parquet(lambda: {"a": [b"\x80\x02cos\n", b"x"], "target": [0, 1]}),
    "objects": _parquet(lambda: {"a": [{"b": 1}, {"b": 2}], "target": [0, 1]}),
    "deep": _parquet(_deep),
    "text without end": _parquet(_long_text, compression="zstd"),
    "packed zeros": _packed,
    "no columns": _parquet(dict),
    "one column of parquet": _parquet(lambda: {"target": [1, 2]}),
    "image bomb": _parquet(_pictures(lambda: png(30_000, 30_000, bytes(30_001) * 3_000))),
    "text bomb in an image": _parquet(_pictures(lambda: png(4, 4, bytes(20), images._text(96 * 1024**2)))),
    "one bomb for every row": _parquet(lambda: _bombs(), compression="zstd"),
    "no image": _parquet(_pictures(lambda: b"\x80\x02cos\nsystem\n.")),
    "nothing in it": _parquet(lambda: {"a": np.zeros(0), "target": np.zeros(0)}),
    "parquet with gaps": _parquet(lambda: {"a": [2.0, 1.0], "target": [None, 1]}),
    "parquet of nothing": _parquet(lambda: {"a": [None, None], "target": [1, 2]}),
    "lists without end": _parquet(_long_lists, compression="zstd", write_statistics=False),
    "two of a name in parquet": lambda folder: _twice(folder / "data.parquet"),
    "times": _parquet(lambda: {"a": np.array(["2020-01-01", "2021-01-01"], "datetime64[s]"), "target": [0, 1]}),
    "cut": _edited(lambda content: _set(content, len(content) // 2, len(content), b"")),
    "footer longer than the file": _edited(lambda content: _set(content, -8, -4, b"\xff\xff\xff\x7f")),
    "footer of nothing": _edited(lambda content: _set(content, -8, -4, bytes(4))),
    "footer of garbage": _edited(lambda content: _set(content, -200, -8, b"\xff" * 192)),
    "pages of garbage": _edited(lambda content: _set(content, 8, 300, b"\xfe" * 292)),
    "encrypted": _edited(lambda content: (_set(content, 0, 4, b"PARE"), _set(content, -4, None, b"PARE"))),  # type: ignore[arg-type]
}

HARMLESS: dict[str, Maker] = {
    "text": _csv(b"a,target\n" + b"x,1\ny,0\n" * 3),
    "formulas": _csv(b"a,target\n" + b'=SUM(1),1\n=HYPERLINK("http://127.0.0.1:9/"),0\n' * 3),
    "commands": _csv(b"a,target\n" + b"@SUM(1+1)*cmd|' /C calc'!A0,1\n-2+3,0\n" * 3),
    "values missing": _csv(b"a,target\n" + b"1,1\n,0\n" * 3),
    "NaN": _csv(b"a,target\n" + b"1,1\nNaN,0\n" * 3),
    "parquet with NaN": _parquet(lambda: {"a": [float("nan"), 1.0] * 3, "target": [0, 1] * 3}),
    "parquet with gaps": _parquet(lambda: {"a": [None, 1.0] * 3, "target": [0, 1] * 3}),
}
"""Texts are numbers of categories, and missing numbers are the mean."""


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _twice(path: Path) -> Path:
    parquet.write_table(
        pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0]), pa.array([1])], ["a", "a", "target"]), path
    )
    return path
