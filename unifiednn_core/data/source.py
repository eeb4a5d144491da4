"""A table as blocks of columns, read anew from its start at each request."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.tensor_files import bad_file


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
