"""A mark of what a worker is doing, which outlives the worker: who goes down at the same step again and again is found.

It lies in memory that is mapped to a file, so that setting it before every step costs a microsecond and no disk.
"""

import contextlib
import mmap
from pathlib import Path

SIZE_BYTES = 256


class AtWork:
    """The mark of one worker. Where there is no room for it, it goes without."""

    def __init__(self, path: Path):
        self._memory: mmap.mmap | bytearray = bytearray(SIZE_BYTES)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w+b") as file:
                file.write(bytes(SIZE_BYTES))  # a mapped page without room on the disk would kill who writes to it
                file.flush()
                self._memory = mmap.mmap(file.fileno(), SIZE_BYTES)

    def mark(self, submodel: str, doing: str) -> None:
        """Say what is being done with a sub-model: "step 120"."""
        self._memory[:] = f"{submodel}:{doing}".encode()[:SIZE_BYTES].ljust(SIZE_BYTES, b"\0")

    def clear(self) -> None:
        """Say that nothing is being done with anybody."""
        self._memory[:] = bytes(SIZE_BYTES)


def last_mark(path: Path) -> str | None:
    """What the last worker was doing, as `NAME:DOING`; None where it was doing nothing, or never came that far."""
    try:
        return path.read_bytes().rstrip(b"\0").decode("utf-8", errors="replace") or None
    except OSError:
        return None
