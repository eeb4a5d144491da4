"""Measurements of the engine: quanta, step times, due checkpoints, and the cost of turns."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

import torch

from unifiednn_core.base.clock import Clock
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.events import Cost
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.scheduling.base import Quantum
from unifiednn_core.scheduling.company import TRIAL_S, TRIAL_STEPS, Rates, Took
from unifiednn_core.spec.run import CheckpointSpec

_RESET_PEAK = b"5"  # proc_pid_clear_refs(5)
_FIRST_BYTES = 2048  # of /proc/self/status; the peak is near its beginning
_REST_S = 0.25
_LAST_STEPS = 200


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


_Moment = tuple[float, float, float]
"""Seconds of the clock, CPU seconds of the thread, and seconds for which it had no core."""


class StepTimer:
    """Measures how long the steps of one sub-model take, by the group at work with it.

    Leaves out what does not repeat from step to step: placement on the device, the first step (kernels are loaded and
    libraries initialised) and evaluation. Call `start` and `stop` in the lane that steps, while its work is done.
    """

    def __init__(self, clock: Clock, name: str, rates: Rates, *, judges: bool = True):
        """Without `judges` nobody compares steps alone with those in company, and a moment costs 4 us less."""
        self._clock, self._name, self._rates, self._judges = clock, name, rates, judges
        self._began: _Moment | None = None
        self._last = self._before = (0.0, 0.0, 0.0)
        self._group = frozenset({name})
        self._steps, self._share = 0, 1.0
        self._news = False
        self._each = deque[float](maxlen=_LAST_STEPS)
        self.warm = False
        """Whether the first step is done."""

    def start(self, group: frozenset[str], share: float = 1.0) -> None:
        """Begin a stretch of steps while `group`, itself included, is at work; steps take this share of the time."""
        self._group, self._steps, self._share = group, 0, share
        self._began = self._last = self._before = self._now()

    def count(self, group: frozenset[str]) -> None:
        """Count one step; if the group has changed meanwhile, the next stretch begins and this step counts nowhere."""
        self._steps += 1
        alone = len(self._group) == 1
        self._before, self._last = self._last, self._now(alone=alone)
        if alone and self.warm and self._share == 1.0:
            self._each.append(self._last[0] - self._before[0])
        if group != self._group and self._began is not None:
            self._add(self._before, self._steps - 1)
            self.start(group, self._share)

    def stop(self) -> None:
        """End the stretch; does nothing without one."""
        if self._began is not None:
            self._add(self._now(), self._steps)
            self._began = None

    def tell(self) -> bool:
        """Add the stretch so far if it is long enough to judge by; returns whether there is anything new since."""
        if self._began is not None and (
            self._steps >= TRIAL_STEPS or self._last[0] - self._began[0] >= TRIAL_S
        ):  # an epoch may be shorter, and its end adds a stretch, too
            self._add(self._last, self._steps)
            self._steps, self._began = 0, self._last
        news, self._news = self._news, False
        return news

    @property
    def seconds_per_step(self) -> float | None:
        """Mean over all measured steps alone, or an estimate of it; None before the first of them."""
        return self._rates.seconds_per_step(self._name)

    @property
    def usual_step_s(self) -> float | None:
        """Median of the last steps alone on a CPU, which a stall of the machine does not move; else the mean.

        A GPU computes while the host goes on, so there only a whole stretch can be timed.
        """
        return median(self._each) if self._each and self._rates.cpu_tells else self.seconds_per_step

    def _now(self, *, alone: bool = False) -> "_Moment":
        """The moment; in a stretch alone, whose steps are seldom looked at, as if the thread computed all the time."""
        now_s = self._clock.monotonic_s()
        if not self._judges:
            return now_s, now_s, 0.0
        if alone and self._began is not None:
            began_s, cpu_s, waited_s = self._began
            return now_s, cpu_s + now_s - began_s, waited_s
        return now_s, self._clock.thread_s(), self._clock.waited_s()

    def _add(self, until: "_Moment", steps: int) -> None:
        if self._began is not None and self.warm and steps:
            seconds, cpu_s, waited_s = (end - begin for begin, end in zip(self._began, until, strict=True))
            share = self._share
            self._rates.add(self._name, self._group, Took(share * seconds, share * cpu_s, share * waited_s, steps))
            self._news = True


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


class CpuShares:
    """CPU seconds of the process, divided among the turns at work as the threads of their lanes used them.

    The time between two turns belongs to the next. Threads that a lane starts (intra-op, CUDA) count with their share.
    """

    def __init__(self) -> None:
        self._process_s = time.process_time()
        self._clocks: dict[str, tuple[int, float]] = {}
        """Of each turn: the clock of its thread, and the time there when the shares were last settled."""
        self._used_s: dict[str, float] = {}

    def enter(self, name: str) -> None:
        """Begin the turn of a sub-model in the calling thread."""
        if self._clocks:
            self._settle()
            self._clocks = {other: (thread, _thread_s(thread)) for other, (thread, _) in self._clocks.items()}
        self._clocks[name], self._used_s[name] = (threading.get_ident(), time.thread_time()), 0.0

    def leave(self, name: str) -> float:
        """End a turn; returns its CPU seconds."""
        self._settle()
        del self._clocks[name]
        return self._used_s.pop(name)

    def discard(self) -> None:
        """Exclude the time since the last turn, if none is at work."""
        if not self._clocks:
            self._process_s = time.process_time()

    def _settle(self) -> None:
        process_s = time.process_time()
        passed_s, self._process_s = process_s - self._process_s, process_s
        if len(self._clocks) == 1:  # the usual case, and four times as fast
            [name] = self._clocks
            self._used_s[name] += passed_s
            return
        read = {name: (thread, _thread_s(thread)) for name, (thread, _) in self._clocks.items()}
        spent = {name: now_s - self._clocks[name][1] for name, (_, now_s) in read.items()}
        in_lanes_s = sum(spent.values())
        for name, own_s in spent.items():
            self._used_s[name] += passed_s * (own_s / in_lanes_s if in_lanes_s else 1 / len(spent))
        self._clocks = read


def _thread_s(thread: int) -> float:
    """CPU seconds of a thread of this process."""
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


@dataclass(frozen=True, slots=True)
class _Usage:
    """Bytes in use now and at most; on the host also how many of them are pages of files."""

    in_use_bytes: int
    peak_bytes: int
    file_bytes: int


class TurnMeter:
    """Memory of steps alone, and CPU time of all turns. The lanes measure, one at a time; any thread may read.

    On a GPU, memory is what torch has allocated. On the host it is the resident memory of the process, as the kernel
    counts it. A measurement adds 40 us to a turn (Linux 6.18), so at most four turns of a sub-model are measured per
    second. What is used in company belongs to nobody, so a measurement ends when company comes. A sub-model that never
    trains alone has one step measured while all others rest.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._base: tuple[_Usage, Footprint] | None = None
        self._measures = False
        self._measured_at_s: dict[str, float] = {}
        self._transient_bytes: dict[str, int] = {}
        self._gradients_bytes: dict[str, int] = {}
        self._submodel = ""
        self._cpu = CpuShares()
        self._files = _proc_files(os.getpid()) if device.type == "cpu" else None

    def begin(self, submodel: str, now_s: float, *, alone: bool = True) -> None:
        """Start measuring at `now_s` (engine's clock), in the lane of the turn.

        Before the first turn of a sub-model, memory that others left in reserve goes back to the system. Otherwise its
        first steps would reuse that memory and seem to need none.
        """
        self._cpu.enter(submodel)
        if not alone:
            return
        self._submodel = submodel
        last_s = self._measured_at_s.get(submodel)
        self._measures = last_s is None or now_s - last_s >= _REST_S
        if not self._measures:
            return
        self._measured_at_s[submodel] = now_s
        if self._device.type == "cpu" and last_s is None:
            devices.free_cached(self._device)
        self._reset_peak()

    def record_baseline(self, submodel: str, footprint: Footprint) -> None:
        """Record the baseline once weights, optimizer state and data are resident, before gradients exist."""
        usage = self._usage() if submodel == self._submodel else None
        self._base = None if usage is None else (usage, footprint)
        self._gradients_bytes[submodel] = footprint.gradients_bytes

    def company_comes(self, footprint: Footprint) -> None:
        """Stop to measure the memory of the turn that was alone; what it has used so far counts."""
        self._remember(self._usage(), footprint)

    def is_unknown(self, submodel: str) -> bool:
        """Whether the temporary memory of its steps has never been measured, and this turn does not do so."""
        return submodel not in self._transient_bytes and (self._base is None or submodel != self._submodel)

    @contextlib.contextmanager
    def step_alone(self, submodels: Sequence[SubModel]) -> Iterator[None]:
        """Measure the temporary memory of one step that these equal sub-models take together, while all others rest."""
        self._reset_peak()
        before, held = self._read(), [one.footprint for one in submodels]
        present = any(weight.grad is not None for one in submodels for weight in one.module.parameters())
        yield
        if before is None or (after := self._read()) is None:
            return
        new_bytes = sum(one.footprint.optimizer_bytes for one in submodels) - sum(one.optimizer_bytes for one in held)
        new_bytes += 0 if present else sum(one.gradients_bytes for one in held)
        for one in submodels:
            self._gradients_bytes[one.name] = one.footprint.gradients_bytes
            self._transient_bytes[one.name] = _risen_bytes(before, after, new_bytes) // len(submodels)

    def own_bytes(self, submodel: str, footprint: Footprint) -> int | None:
        """Most memory of a sub-model's own; None before a step was measured. For any thread."""
        transient_bytes = self.transient_bytes(submodel, footprint)
        if transient_bytes is None:
            return None
        gradients_bytes = max(footprint.gradients_bytes, self._gradients_bytes.get(submodel, 0))
        return footprint.weights_bytes + footprint.optimizer_bytes + gradients_bytes + transient_bytes

    def end(self, submodel: str, footprint: Footprint) -> Cost:
        """End the turn, in its lane."""
        usage = self._usage() if submodel == self._submodel else None
        transient_bytes = self._remember(usage, footprint) if submodel == self._submodel else None
        peak_bytes = None if usage is None else usage.peak_bytes
        return Cost(peak_bytes, transient_bytes, self._cpu.leave(submodel), self.own_bytes(submodel, footprint))

    def discard_cpu_time(self) -> None:
        """Exclude the CPU time since the last turn."""
        self._cpu.discard()

    def transient_bytes(self, submodel: str, footprint: Footprint) -> int | None:
        """Largest temporary memory of a sub-model, in this turn or an earlier one; None if unknown."""
        now_bytes = self._risen_bytes(self._usage(), footprint) if submodel == self._submodel else None
        earlier_bytes = self._transient_bytes.get(submodel)
        return max((size for size in (now_bytes, earlier_bytes) if size is not None), default=None)

    # -- inside

    def _remember(self, usage: _Usage | None, footprint: Footprint) -> int | None:
        """End the measurement; returns the temporary memory of the turn, if it was measured."""
        transient_bytes = self._risen_bytes(usage, footprint)
        if transient_bytes is not None:
            self._transient_bytes[self._submodel] = max(transient_bytes, self._transient_bytes.get(self._submodel, 0))
        self._base, self._measures = None, False
        return transient_bytes

    def _reset_peak(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
        elif self._files is not None:
            os.pwrite(self._files[0], _RESET_PEAK, 0)

    def _usage(self) -> _Usage | None:
        return self._read() if self._measures else None

    def _read(self) -> _Usage | None:
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
        return _risen_bytes(before, usage, held.gradients_bytes + footprint.optimizer_bytes - held.optimizer_bytes)


def _risen_bytes(before: _Usage, after: _Usage, new_bytes: int) -> int:
    """How far the peak rose, without new gradients and optimizer state and without loaded code."""
    loaded_bytes = max(0, after.file_bytes - before.file_bytes)
    return max(0, after.peak_bytes - before.in_use_bytes - new_bytes - loaded_bytes)


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
