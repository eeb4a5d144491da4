"""Measurements of the engine: quanta, step times, due checkpoints, and the cost of turns."""

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.events import Cost
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.scheduling.base import Quantum
from unifiednn_core.spec.run import CheckpointSpec

_RESET_PEAK = b"5"  # proc_pid_clear_refs(5)
_FIRST_BYTES = 2048  # of /proc/self/status; the peak is near its beginning
_REST_S = 0.25


def quantum_meter(quantum: Quantum, submodel: SubModel, clock: Clock) -> Callable[[], bool]:
    """Begin a quantum; the returned function says whether it is used up."""
    if quantum.kind == "completion":
        return lambda: False
    meters: dict[str, Callable[[], float]] = {
        "epochs": lambda: submodel.epochs_done,
        "steps": lambda: submodel.steps_done,
        "seconds": clock.monotonic_s,
    }
    used = meters[quantum.kind]
    before = used()
    return lambda: used() - before >= quantum.amount


class StepTimer:
    """Mean duration of a sub-model's steps in this process.

    Leaves out what does not repeat from step to step: placement on the device, the first step (kernels are loaded and
    libraries initialised) and evaluation. Call `start` and `stop` while the device is idle.
    """

    def __init__(self, clock: Clock):
        self._clock = clock
        self._start_s: float | None = None
        self._measured_s = 0.0
        self._measured_steps = self._steps = 0
        self.warm = False
        """Whether the first step is done."""

    def start(self) -> None:
        """Begin a stretch of steps."""
        self._start_s, self._steps = self._clock.monotonic_s(), 0

    def count(self) -> None:
        """Count one step of the stretch."""
        self._steps += 1

    def stop(self) -> None:
        """End the stretch; does nothing without one."""
        if self._start_s is not None and self.warm:
            self._measured_s += self._clock.monotonic_s() - self._start_s
            self._measured_steps += self._steps
        self._start_s = None

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over all measured steps; None before the first of them."""
        return self._measured_s / self._measured_steps if self._measured_steps else None


class CheckpointTimer:
    """Says when the next checkpoint of the run is due, by seconds or by steps."""

    def __init__(self, asked: CheckpointSpec | None, clock: Clock, first_period: float = 1.0):
        """`first_period` is the share of a period after which the first one is due."""
        self._asked, self._clock, self._share = asked, clock, first_period
        self._since_s, self._since_steps = clock.monotonic_s(), 0

    def is_due(self, steps: int) -> bool:
        """Whether a checkpoint is due after `steps` steps of the run; if so, the next period begins."""
        if self._asked is None:
            return False
        every_s, every_steps, now_s = self._asked.every_s, self._asked.every_steps, self._clock.monotonic_s()
        due = every_s is not None and now_s - self._since_s >= every_s * self._share
        due = due or (every_steps is not None and steps - self._since_steps >= every_steps * self._share)
        if due:
            self._since_s, self._since_steps, self._share = now_s, steps, 1.0
        return due


@dataclass(frozen=True, slots=True)
class _Usage:
    """Bytes in use now and at most; on the host also how many of them are pages of files."""

    in_use_bytes: int
    peak_bytes: int
    file_bytes: int


class TurnMeter:
    """Memory since `begin`, and CPU time since the previous turn. The engine's thread measures, any thread may read.

    On a GPU, memory is what torch has allocated. On the host it is the resident memory of the process, as the kernel
    counts it. A measurement adds 40 us to a turn (Linux 6.18), so at most four turns of a sub-model are measured per
    second.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._base: tuple[_Usage, Footprint] | None = None
        self._measures = False
        self._measured_at_s: dict[str, float] = {}
        self._transient_bytes: dict[str, int] = {}
        self._submodel = ""
        self._cpu_began_s = time.process_time()
        self._files = _proc_files(os.getpid()) if device.type == "cpu" else None

    def begin(self, submodel: str, now_s: float) -> None:
        """Start measuring at `now_s` (engine's clock).

        Before the first turn of a sub-model, memory that others left in reserve goes back to the system. Otherwise its
        first steps would reuse that memory and seem to need none.
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
            os.pwrite(self._files[0], _RESET_PEAK, 0)

    def record_baseline(self, footprint: Footprint) -> None:
        """Record the baseline once weights, optimizer state and data are resident, before gradients exist."""
        usage = self._usage()
        self._base = None if usage is None else (usage, footprint)

    def end(self, footprint: Footprint) -> Cost:
        """End the turn."""
        usage = self._usage()
        transient_bytes = self._risen_bytes(usage, footprint)
        if transient_bytes is not None:
            self._transient_bytes[self._submodel] = max(transient_bytes, self._transient_bytes.get(self._submodel, 0))
        self._base, self._measures = None, False
        cpu_began_s, self._cpu_began_s = self._cpu_began_s, time.process_time()
        return Cost(None if usage is None else usage.peak_bytes, transient_bytes, self._cpu_began_s - cpu_began_s)

    def discard_cpu_time(self) -> None:
        """Exclude the CPU time since the last turn."""
        self._cpu_began_s = time.process_time()

    def transient_bytes(self, submodel: str, footprint: Footprint) -> int | None:
        """Largest temporary memory of a sub-model, in this turn or an earlier one; None if unknown."""
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
        status = os.pread(self._files[1], _FIRST_BYTES, 0)
        return _Usage(*(_field(status, name) for name in (b"VmRSS:", b"VmHWM:", b"RssFile:")))

    def _risen_bytes(self, usage: _Usage | None, footprint: Footprint) -> int | None:
        """How far the peak rose above the baseline, without gradients, new optimizer state and loaded code."""
        base = self._base
        if base is None or usage is None:
            return None
        before, held = base
        stayed = held.gradients_bytes + footprint.optimizer_bytes - held.optimizer_bytes
        stayed += max(0, usage.file_bytes - before.file_bytes)
        return max(0, usage.peak_bytes - before.in_use_bytes - stayed)


def _field(status: bytes, name: bytes) -> int:
    """Bytes on the line `name` of the file `status`; 0 if the line is missing."""
    found = status.partition(name)[2]
    return int(found.split(None, 1)[0]) * 1024 if found else 0


@cache
def _proc_files(pid: int) -> tuple[int, int] | None:
    """`clear_refs` and `status` in /proc, open until this process ends; None if the system denies or lacks them."""
    folder = Path("/proc") / str(pid)
    with contextlib.suppress(OSError):
        clear_refs = os.open(folder / "clear_refs", os.O_WRONLY)
        os.pwrite(clear_refs, _RESET_PEAK, 0)
        return clear_refs, os.open(folder / "status", os.O_RDONLY)
    return None
