"""What one turn costs: the most memory that was in use during it, and CPU time."""

import contextlib
import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from unifiednn_core.memory.strata import Footprint
from unifiednn_core.training import device as devices
from unifiednn_core.training.events import Cost

_RESET_PEAK = b"5"  # proc_pid_clear_refs(5)
_FIRST_BYTES = 2048  # of /proc/self/status; the peak stands near its beginning
_REST_S = 0.25


@dataclass(frozen=True, slots=True)
class _ProcFiles:
    """Open files of this process in /proc."""

    clear_refs: int
    status: int


@dataclass(frozen=True, slots=True)
class _Usage:
    """Bytes that are, and at most were, in use; on the host also what of them are pages of files."""

    in_use_bytes: int
    peak_bytes: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class _Base:
    """Where a turn began."""

    usage: _Usage
    footprint: Footprint


class TurnMeter:
    """Memory since `begin`, and CPU time since the turn before. The engine's thread measures, any thread can read.

    On a GPU memory is what torch has allocated there. On the host it is what the process has resident, as the kernel
    counts it. Asking adds 40 us to a turn (measured on Linux 6.18), so of short turns each sub-model has at most four
    in a second measured.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._base: _Base | None = None
        self._measures = False
        self._measured_at_s: dict[str, float] = {}
        self._transient_bytes: dict[str, int] = {}
        self._submodel = ""
        self._cpu_began_s = time.process_time()
        self._files = _proc_files(os.getpid()) if device.type == "cpu" else None

    def begin(self, submodel: str, now_s: float) -> None:
        """Begin to count at `now_s` (engine's clock).

        Before the first turn of a sub-model, what others left in reserve is given back: its first steps would be given
        that memory, and seem to need none.
        """
        self._submodel = submodel
        last_s = self._measured_at_s.get(submodel)
        self._measures = last_s is None or now_s - last_s >= _REST_S
        if not self._measures:
            return
        self._measured_at_s[submodel] = now_s
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        elif self._files is not None:
            if last_s is None:
                devices.free_cached(self._device)
            os.pwrite(self._files.clear_refs, _RESET_PEAK, 0)

    def placed(self, footprint: Footprint) -> None:
        """Say that everything which stays during the turn is there, but for gradients; `footprint` tells of both."""
        usage = self._usage()
        self._base = None if usage is None else _Base(usage, footprint)

    def end(self, footprint: Footprint) -> Cost:
        """End the turn."""
        usage = self._usage()
        transient_bytes = self._risen_bytes(usage, footprint)
        if transient_bytes is not None:
            self._transient_bytes[self._submodel] = max(transient_bytes, self._transient_bytes.get(self._submodel, 0))
        self._base, self._measures = None, False
        cpu_began_s, self._cpu_began_s = self._cpu_began_s, time.process_time()
        return Cost(None if usage is None else usage.peak_bytes, transient_bytes, self._cpu_began_s - cpu_began_s)

    def pass_over(self) -> None:
        """Say that the CPU time since the last turn was spent on none."""
        self._cpu_began_s = time.process_time()

    def transient_bytes(self, submodel: str, footprint: Footprint) -> int | None:
        """Most that a sub-model took for a while, in this turn or one before; None where unknown."""
        now_bytes = self._risen_bytes(self._usage(), footprint) if submodel == self._submodel else None
        earlier_bytes = self._transient_bytes.get(submodel)
        return max((size for size in (now_bytes, earlier_bytes) if size is not None), default=None)

    # -- inside

    def _usage(self) -> _Usage | None:
        if not self._measures:
            return None
        if self._device.type == "cuda":
            peak_bytes = torch.cuda.max_memory_allocated(self._device)
            return _Usage(torch.cuda.memory_allocated(self._device), peak_bytes, 0)
        if self._files is None:
            return None
        status = os.pread(self._files.status, _FIRST_BYTES, 0)
        return _Usage(*(_field(status, name) for name in (b"VmRSS:", b"VmHWM:", b"RssFile:")))

    def _risen_bytes(self, usage: _Usage | None, footprint: Footprint) -> int | None:
        """How far the peak lies above the beginning of the turn, beside gradients, what came to stay, and code."""
        base = self._base
        if base is None or usage is None:
            return None
        stayed = base.footprint.gradients_bytes + footprint.optimizer_bytes - base.footprint.optimizer_bytes
        stayed += max(0, usage.file_bytes - base.usage.file_bytes)
        return max(0, usage.peak_bytes - base.usage.in_use_bytes - stayed)


def _field(status: bytes, name: bytes) -> int:
    """Bytes that a line of the file `status` names; 0 where there is no such line."""
    found = status.partition(name)[2]
    return int(found.split(None, 1)[0]) * 1024 if found else 0


@cache
def _proc_files(pid: int) -> _ProcFiles | None:
    """Files of this process, open until it ends; None where the system has none, or keeps them from us."""
    folder = Path("/proc") / str(pid)
    with contextlib.suppress(OSError):
        clear_refs = os.open(folder / "clear_refs", os.O_WRONLY)
        os.pwrite(clear_refs, _RESET_PEAK, 0)
        return _ProcFiles(clear_refs=clear_refs, status=os.open(folder / "status", os.O_RDONLY))
    return None
