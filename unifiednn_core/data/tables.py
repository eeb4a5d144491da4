"""Opens tables, CSV and Parquet, as blocks of columns."""

import codecs
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data import cells
from unifiednn_core.formats import zips
from unifiednn_core.formats.kinds import DELIMITERS, Said, recognised
from unifiednn_core.formats.tensor_files import bad_file
from unifiednn_core.spec.columns import MAX_COLUMNS, MAX_NAME


@dataclass(frozen=True, slots=True)
class TableSource:
    """One table. `read` yields record batches of Arrow with the columns of `names` in this order."""

    path: Path
    origin: str
    names: tuple[str, ...]
    read: Callable[[], Iterator[Any]]
    first_line: int = 0
    """Line of the first row as an editor counts it; 0 for a file without lines."""
    header: bool = True

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row, and the block."""
        row = 0
        for block in self.read():
            yield row, block
            row += block.num_rows

    def place(self, row: int) -> str:
        """Name a row."""
        return f"line {row + self.first_line}" if self.first_line else f"row {row + 1}"

    def bad(self, title: str, message: str, remedy: str) -> BadInput:
        """Make the exception with one finding on this file."""
        return bad_file(self.path, title, message, remedy)


SNIFFED_BYTES = 2**20
_BATCH_ROWS = 2**14
_BATCH_BYTES = 2**25
_BATCH_VALUES = 2**21  # of the column with the longest lists
_BUFFER_BYTES = 2**18
_BLOCK_BYTES = 4 * 1024**2
_SNIFFED_LINES = 20
_FLOAT_BYTES = 4
_PARQUET = b"PAR1"


def is_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do."""
    with path.open("rb") as file:
        return file.read(4) == _PARQUET


def is_csv(path: Path) -> bool:
    """Whether the file begins with text that has two lines of equally many, at least two, columns."""
    try:
        lines = _first_lines(path)
        first, second = list(csv.reader(lines[:2], delimiter=_delimiter(lines)))[:2]
    except (UnicodeDecodeError, ValueError, IndexError, csv.Error):
        return False
    return lines[0][:1] not in "{[" and len(first) == len(second) > 1


def open_csv(path: Path, header: bool | None = None) -> TableSource:
    """Open a CSV file; without `header` its first lines tell whether they have names. Raises `BadInput`."""
    import pyarrow as pa
    from pyarrow import compute
    from pyarrow import csv as arrow

    with path.open("rb") as file:
        lines = file.read(SNIFFED_BYTES).decode("utf-8-sig", errors="replace").splitlines()
    delimiter = _delimiter(lines)
    try:
        first = [cell.strip() for cell in next(csv.reader(lines[:1], delimiter=delimiter))]
        further = list(csv.reader(lines[1:200], delimiter=delimiter))
    except csv.Error as error:
        raise bad_file(path, "Not a table", f"The first lines cannot be read: {error}.", "Save it again.") from None
    named = _has_header(first, further) if header is None else header
    if header is None and all(map(cells.is_number, first)):
        message = "The first line holds numbers instead of column names."
        remedy = "Add a line of names on top, the column of the targets as 'target'; or say that there is none: "
        raise bad_file(path, "No header", message, f"{remedy}--no-header.")
    names = _names(path, first if named else [""] * len(first))

    def read() -> Iterator[Any]:
        options = arrow.ReadOptions(
            use_threads=False, block_size=_BLOCK_BYTES, column_names=list(names), skip_rows=int(named)
        )
        kept = arrow.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
        missing = pa.array(kept.null_values)
        try:
            for block in arrow.open_csv(path, options, arrow.ParseOptions(delimiter=delimiter), kept):
                trimmed = map(compute.utf8_trim_whitespace, block.columns)  # ' yes' and 'yes' are one category
                columns = [compute.if_else(compute.is_in(one, missing), None, one) for one in trimmed]
                yield pa.record_batch(columns, names=list(names))
        except pa.ArrowInvalid as error:
            said = str(error).strip().splitlines()[0][:200].rstrip(".").replace("Row #", "line ", 1)
            remedy = "Give every row as many values as the first line has, in UTF-8, and close every quote."
            raise bad_file(path, "Not a table", f"{said}.", remedy) from None

    return TableSource(path, "csv", names, read, first_line=1 + int(named), header=named)


def open_parquet(path: Path) -> TableSource:
    """Open a Parquet file, after its sizes were compared with its bytes; raises `BadInput`."""
    import pyarrow as pa
    from pyarrow import parquet

    def damaged(error: Exception) -> Exception:
        said = str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__
        return bad_file(path, "File damaged", f"The file cannot be read: {said}.", "Write it again, and copy it whole.")

    faults = (pa.ArrowException, OSError, UnicodeDecodeError)
    try:
        schema = parquet.read_schema(path)
        names = _names(path, list(schema.names))
        texts = [name for name, kind in zip(schema.names, schema.types, strict=True) if pa.types.is_string(kind)]

        def opened() -> Any:  # reads a repeated long text once; pages of a mapping would count as memory
            return parquet.ParquetFile(path, read_dictionary=texts, buffer_size=_BUFFER_BYTES, pre_buffer=False)

        rows = _check_packed(path, opened().metadata)
    except faults as error:
        raise damaged(error) from None

    def read() -> Iterator[Any]:
        try:
            yield from opened().iter_batches(batch_size=rows, use_threads=False)
        except faults as error:
            raise damaged(error) from None

    return TableSource(path, "parquet", names, read)


def _check_packed(path: Path, metadata: Any) -> int:
    """Compare the sizes in a Parquet file with its bytes before anything is unpacked; returns the rows of one block."""
    groups = [metadata.row_group(at) for at in range(metadata.num_row_groups)]
    unpacked_bytes = sum(group.total_byte_size for group in groups)
    counts = [[group.column(at).num_values for at in range(group.num_columns)] for group in groups]
    kept_bytes = max(metadata.num_rows * metadata.num_columns, sum(map(sum, counts))) * _FLOAT_BYTES
    if max(unpacked_bytes, kept_bytes) > zips.most_unpacked_bytes(path.stat().st_size):
        message = f"The table would unpack to {max(unpacked_bytes, kept_bytes):,} bytes, far more than data compresses."
        raise bad_file(path, "File refused", message, "Save it as a .safetensors or .npz data set, which is mapped.")
    widest = (max(count, default=1) // max(1, group.num_rows) for group, count in zip(groups, counts, strict=True))
    row_bytes: int = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=1)
    rows: int = min(_BATCH_ROWS, _BATCH_VALUES // max(1, *widest, 1), _BATCH_BYTES // max(1, row_bytes))
    return max(1, rows)


def _names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns, `column 1` for one without; raises `BadInput`."""
    given = tuple(name or f"column {number}" for number, name in enumerate(names, 1))
    if len(set(given)) != len(given):
        twice = next(name for name in given if given.count(name) > 1)
        raise bad_file(path, "Columns", f"Two columns are named '{twice[:60]}'.", "Give each column its own name.")
    if not 1 <= len(given) <= MAX_COLUMNS:
        message = f"The table has {len(given):,} columns; 1 to {MAX_COLUMNS:,} are read."
        raise bad_file(path, "Columns", message, "Leave columns out, or save it as a .safetensors or .npz data set.")
    long = next((name for name in given if len(name) > MAX_NAME), None)
    if long is not None:
        message = f"The name of the column '{long[:60]}…' has {len(long):,} characters; at most {MAX_NAME} are read."
        remedy = "Give it a shorter name. If the first line holds no names, say so: --no-header."
        raise bad_file(path, "Columns", message, remedy)
    return given


def _has_header(first: Sequence[str], further: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names the columns: none of its cells is a number that its column has again."""
    again = (
        cells.is_number(cell) and any(len(row) > at and row[at] == cell for row in further)
        for at, cell in enumerate(first)
    )
    return not any(again)


def _first_lines(path: Path) -> list[str]:
    """The first lines of a text in UTF-8; raises `ValueError` for other files."""
    with path.open("rb") as file:
        head = file.read(SNIFFED_BYTES)
    if b"\0" in head:
        raise ValueError("no text")
    errors = "ignore" if len(head) == SNIFFED_BYTES else "strict"
    return head.decode("utf-8-sig", errors=errors).splitlines()


def _delimiter(lines: Sequence[str]) -> str:
    """The delimiter that cuts the first lines into equally many columns; else the one most frequent in the first."""

    def counted(delimiter: str) -> tuple[bool, int]:
        widths = {len(row) for row in csv.reader(lines[:_SNIFFED_LINES], delimiter=delimiter)}
        return len(widths) == 1 and widths != {1}, lines[0].count(delimiter)

    return max(DELIMITERS, key=counted)


COLUMN = "text"
BLOCK_BYTES = 2**20
MAX_LINE = 4 * 2**20  # characters; a longer line is cut
SUFFIXES = (".txt", ".text")


def open_text(path: Path) -> TableSource:
    """Open a text in UTF-8. Each line is a row, without its end."""
    return TableSource(path, "text", (COLUMN,), lambda: _blocks(path), first_line=1)


def _blocks(path: Path) -> Iterator[Any]:
    import pyarrow as pa

    for lines in _lines(path):
        yield pa.record_batch([pa.array(lines, pa.string())], names=[COLUMN])


def _lines(path: Path) -> Iterator[list[str]]:
    decoder, rest, line = codecs.getincrementaldecoder("utf-8-sig")(), "", 1
    with path.open("rb") as file:
        while True:
            chunk = file.read(BLOCK_BYTES)
            try:
                rest += decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError:
                message = f"The text is not UTF-8, in line {line:,} or after."
                raise _bad(path, line, Said("Encoding", message, "Save it in UTF-8.")) from None
            if "\0" in rest:
                message = f"There is a NUL in line {line:,} or after."
                raise _bad(path, line, Said("Not a text", message, "Give plain text."))
            *whole, rest = rest.split("\n")
            if len(rest) > MAX_LINE or not chunk:
                whole, rest = ([*whole, rest], "") if rest else (whole, rest)
            if whole:
                line += len(whole)
                yield [one.removesuffix("\r") for one in whole]
            if not chunk:
                return


def _bad(path: Path, line: int, said: Said) -> BadInput:
    """The finding for a file that is no text from this line on; a file of another kind is named."""
    return bad_file(path, *((recognised(path) if line == 1 else None) or said))
