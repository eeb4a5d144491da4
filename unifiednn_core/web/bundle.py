"""Several files as one zip, made while it is sent: memory stays flat at any size."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_BLOCK_BYTES = 256 * 1024


class _Sink(io.RawIOBase):
    """Takes what a zip writes, for the next block of an answer. It has no places, so the zip goes on forwards alone."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        self._held.append(bytes(content))  # type: ignore[call-overload]
        return len(self._held[-1])

    def taken(self) -> bytes:
        """All since the last call."""
        block, self._held = b"".join(self._held), []
        return block


def zipped(files: Sequence[Path]) -> Iterator[bytes]:
    """The blocks of a zip of files under their own names, uncompressed. Raises `OSError` for one that is gone."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as archive:
        for path in files:
            with path.open("rb") as source, archive.open(path.name, "w", force_zip64=True) as target:
                while block := source.read(_BLOCK_BYTES):
                    target.write(block)
                    yield sink.taken()
            yield sink.taken()
    yield sink.taken()
