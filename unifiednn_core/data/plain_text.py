"""Opens plain text as blocks of lines: the column `text`."""

import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.source import TableSource
from unifiednn_core.formats.kinds import Said, recognised
from unifiednn_core.formats.tensor_files import bad_file

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
