"""A data set that stays in its file: batches are read from there, ahead of the step that needs them.

It has the samples, types and order of the resident data set, so the bits of a training are the same. In memory are the
batches that were asked for, no more; rows are read, not mapped, because pages of a mapping count as memory.
"""

import os
import re
import threading
import weakref
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.containers import open_data
from unifiednn_core.data.datasets import INPUTS, TARGETS, as_targets

MOST_AHEAD = 16
"""Batches that are read ahead, of all sub-models that use a data set."""
_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+\s+(.+)")
Samples = Tensor | slice


@dataclass(slots=True, weakref_slot=True, eq=False)
class Streamed:
    """A data set in a file whose tensors lie there as plain rows; made by `of_file`. For any thread."""

    inputs: Mapping[str, Tensor]
    """Mapped: for their shapes and types. A value that is read counts as memory."""
    targets: Tensor | None
    device: torch.device
    """Where its batches go."""
    _file: int
    _places: Mapping[str, int]
    """Offset of the first row of each entry in the file."""
    _ahead: dict[bytes, "Future[Batch]"] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "read-ahead"))

    @classmethod
    def of_file(cls, path: Path, device: torch.device) -> Self | None:
        """Open the data set of a file that was checked before; None if its rows do not lie there as they are."""
        entries: Mapping[str, Tensor] = open_data(path).entries
        places = {name: _place(path, tensor) for name, tensor in entries.items()}
        found = {name: place for name, place in places.items() if place is not None}
        if found.keys() != places.keys():
            return None
        names = sorted(name for name in entries if name != TARGETS)
        inputs = {name.removeprefix(f"{INPUTS}."): entries[name] for name in names}
        file = os.open(path, os.O_RDONLY)
        ordered = {name: found[entry] for name, entry in zip(inputs, names, strict=True)}
        streamed = cls(inputs, entries.get(TARGETS), device, file, ordered | _only(found, TARGETS))
        weakref.finalize(streamed, os.close, file)  # not before the last of its users, and of its reads, is gone
        return streamed

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(next(iter(self.inputs.values())))

    @property
    def resident_bytes(self) -> int:
        """Bytes of its tensors in memory between two batches."""
        return 0

    @property
    def intact(self) -> bool:
        """Whether it is as it was read: always, because no network gets more than a copy of rows."""
        return True

    def to(self, _: torch.device) -> Self:
        """Stay where it is."""
        return self

    def batch(self, samples: Samples) -> Batch:
        """Copy samples to the device: as they were read ahead, else read now."""
        with self._lock:
            ahead = self._ahead.pop(_key(samples), None)
        batch = self._read(samples) if ahead is None else ahead.result()
        if self.device.type == "cpu":
            return batch
        inputs = {name: self._placed(one) for name, one in batch.inputs.items()}
        return Batch(inputs, None if batch.targets is None else self._placed(batch.targets))

    def rows(self, entry: str, samples: slice) -> Tensor:
        """Read some samples of one input, or of `TARGETS`, on the host; not ahead."""
        places = range(*samples.indices(self.samples))
        if entry == TARGETS and self.targets is not None:
            return as_targets(self._rows(self.targets, self._places[TARGETS], places))
        return self._rows(self.inputs[entry], self._places[entry], places)

    def expect(self, upcoming: Iterable[Samples]) -> None:
        """Read these samples ahead, in this order, in a thread; of many only the first."""
        wanted = {_key(samples): samples for samples in islice(upcoming, MOST_AHEAD)}
        with self._lock:
            others = [key for key in self._ahead if key not in wanted]
            for key in others[: max(0, len(self._ahead | wanted) - MOST_AHEAD)]:  # of one that has left or moved back
                self._ahead.pop(key).cancel()
            for key, samples in wanted.items():
                if key not in self._ahead:
                    self._ahead[key] = self._reader.submit(self._read, samples)

    def _placed(self, one: Tensor) -> Tensor:
        return one.pin_memory().to(self.device, non_blocking=True)

    def _read(self, samples: Samples) -> Batch:
        rows = range(*samples.indices(self.samples)) if isinstance(samples, slice) else samples.tolist()
        inputs = {name: self._rows(one, self._places[name], rows) for name, one in self.inputs.items()}
        targets = None if self.targets is None else as_targets(self._rows(self.targets, self._places[TARGETS], rows))
        return Batch(inputs, targets)

    def _rows(self, like: Tensor, place: int, rows: Iterable[int]) -> Tensor:
        """Read rows of an entry, in order of the file."""
        numbers = list(rows)
        found = torch.empty((len(numbers), *like.shape[1:]), dtype=like.dtype)
        size, view = like[0].nbytes, memoryview(found.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
        for at in sorted(range(len(numbers)), key=numbers.__getitem__):
            read = os.preadv(self._file, [view[at * size : (at + 1) * size]], place + numbers[at] * size)
            if read != size:
                raise OSError(f"the data file ended at sample {numbers[at]}")
        return found


def _only(entries: Mapping[str, int], name: str) -> dict[str, int]:
    return {name: entries[name]} if name in entries else {}


def _key(samples: Samples) -> bytes:
    """Equal for equal samples."""
    if isinstance(samples, slice):
        return f"{samples.start}:{samples.stop}".encode()
    return samples.cpu().numpy().tobytes()


def _place(path: Path, tensor: Tensor) -> int | None:
    """Offset in the file at which the bytes of a mapped tensor begin; None if it is not mapped row by row."""
    if not tensor.is_contiguous():
        return None
    address, resolved = tensor.data_ptr(), str(path.resolve())
    try:
        mappings = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system than Linux
        return None
    for line in mappings.splitlines():
        known = _MAPPING.fullmatch(line)
        if known is not None and known[4] == resolved and int(known[1], 16) <= address < int(known[2], 16):
            return address - int(known[1], 16) + int(known[3], 16)
    return None
