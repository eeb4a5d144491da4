"""Opens JSONL, one JSON object in each line, as blocks of columns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unifiednn_core.data.tables import TableSource
from unifiednn_core.formats.tensor_files import bad_file
from unifiednn_core.spec.columns import MAX_COLUMNS, MAX_NAME

SNIFFED_BYTES = 2**20
MAX_LINE_BYTES = 16 * 1024**2
BLOCK_BYTES = 4 * 1024**2
_REMEDY = 'Write one object in each line, in UTF-8: {"text": "...", "label": 1}.'


def is_jsonl(path: Path) -> bool:
    """Whether the first line of the file is a whole JSON object, and the second begins as one."""
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    lines = [line for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()][:2]
    if len(lines) < 2 or not all(line.lstrip()[:1] == b"{" for line in lines):
        return False
    try:
        return isinstance(json.loads(lines[0]), dict)
    except (ValueError, RecursionError):
        return False


def open_jsonl(path: Path, wanted: tuple[str, ...] = ()) -> TableSource:
    """Open a file; its columns are the keys in its first mebibyte, and those of `wanted`. Raises `BadInput`."""
    names: dict[str, None] = {}
    read_bytes = 0
    for number, line in _lines(path):
        names |= dict.fromkeys(_object(path, line, number))
        read_bytes += len(line)
        if read_bytes > SNIFFED_BYTES:
            break
    names |= dict.fromkeys(wanted)
    if len(names) > MAX_COLUMNS or any(not 1 <= len(name) <= MAX_NAME for name in names):
        message = f"There are {len(names):,} keys, or one without or with more than {MAX_NAME} characters."
        raise bad_file(path, "Columns", message, f"At most {MAX_COLUMNS:,} keys are read.")
    return TableSource(path, "jsonl", tuple(names), lambda: _blocks(path, tuple(names)), first_line=1)


def _blocks(path: Path, names: tuple[str, ...]) -> Iterator[Any]:
    rows: list[dict[str, object]] = []
    size_bytes = 0
    for number, line in _lines(path):
        rows.append(_object(path, line, number))
        size_bytes += len(line)
        if size_bytes > BLOCK_BYTES:
            yield _block(path, names, rows, number)
            rows, size_bytes = [], 0
    if rows:
        yield _block(path, names, rows, number)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line with its number from 1, without blank ones; raises `BadInput` for a very long one."""
    with path.open("rb") as file:
        if file.read(3) != b"\xef\xbb\xbf":
            file.seek(0)
        number = 0
        while line := file.readline(MAX_LINE_BYTES):
            number += 1
            if len(line) == MAX_LINE_BYTES and line[-1:] != b"\n":
                message = f"Line {number:,} has more than {MAX_LINE_BYTES:,} bytes."
                raise bad_file(path, "Line too long", message, _REMEDY)
            if line.strip():
                yield number, line


def _object(path: Path, line: bytes, number: int) -> dict[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        said = str(error).partition(":")[0][:80] if isinstance(error, ValueError) else "it is nested too deep"
        raise bad_file(path, "Not JSONL", f"Line {number:,} is no JSON: {said}.", _REMEDY) from None
    if not isinstance(found, dict):
        message = f"Line {number:,} holds {type(found).__name__}, not an object."
        raise bad_file(path, "Not JSONL", message, _REMEDY)
    return found


def _block(path: Path, names: tuple[str, ...], rows: list[dict[str, object]], last: int) -> Any:
    import pyarrow as pa

    return pa.record_batch([_column([row.get(name) for row in rows]) for name in names], names=list(names))


def _column(values: list[object]) -> Any:
    """Make a column of values of one kind; of several kinds they become texts as they are written."""
    import pyarrow as pa

    try:
        kinds = {type(value) for value in values} - {type(None)}
        if kinds <= {int, float, bool} or kinds in ({str}, {list}):
            if kinds == {float, int} or kinds == {float, bool}:
                values = [None if value is None else float(value) for value in values]  # type: ignore[arg-type]
            return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeError):
        pass
    if dict in kinds or list in kinds:
        return pa.array([None if value is None else {"": "an object"} for value in values])
    return pa.array([v if v is None or isinstance(v, str) else json.dumps(v) for v in values], pa.string())
