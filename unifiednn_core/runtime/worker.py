"""The worker: one process that trains one run on one device.

The engine trains in the main thread. Another writes down what it reports, hands it the orders of people, and samples
memory. Two more put progress on disk and separate what has ended. The store is all that they share with
the outside; whatever happens to this process, the next one goes on from there.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from sqlalchemy.exc import OperationalError

from unifiednn_core import failpoints
from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.home import Home
from unifiednn_core.hybrid.graph import to_dot
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.memory.estimate import context_key
from unifiednn_core.memory.samplers import PROCESS_RSS
from unifiednn_core.runtime import liveness
from unifiednn_core.runtime.assembly import Workbench, in_line
from unifiednn_core.runtime.at_work import AtWork
from unifiednn_core.runtime.gauge import Gauge
from unifiednn_core.runtime.giving_up import give_up
from unifiednn_core.runtime.ledger import Ledger
from unifiednn_core.runtime.orders_of import joins, order_of
from unifiednn_core.runtime.seat import Seat, Terminations
from unifiednn_core.runtime.takeup import TakeUp
from unifiednn_core.runtime.watchdog import Watchdog
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Command, Verb
from unifiednn_core.training.device import environment, resolve
from unifiednn_core.training.engine import Engine
from unifiednn_core.training.events import Obeyed
from unifiednn_core.training.orders import Leave

TICK_S = 0.2
FAREWELL_S = 20.0  # what a machine that shuts down leaves us, at most, to keep what was learnt

DONE, FAILED, STUCK, TERMINATED = 0, 1, 3, 128 + signal.SIGTERM


class Worker:
    """Everything between the store and the engine of one run."""

    def __init__(self, home: Home, store: Store, run_id: str, terminations: Terminations, clock: Clock | None = None):
        self._store, self._run_id, self._clock = store, run_id, clock or RealClock()
        self._terminations = terminations
        self._store.commands.adopt(run_id)
        run, rows = store.runs.get(run_id)
        spec, self._threads = RunSpec.model_validate(run.spec), run.threads or 1
        torch.set_num_threads(self._threads)
        bench = Workbench(home, run_id, resolve(spec.device))
        earlier = {"cpu_s": run.cpu_s, "gpu_s": run.gpu_s, "energy_j": run.energy_j}
        self._gauge = Gauge(bench.device, self._clock, earlier=earlier)  # before any model or data set is read
        self._bench, self._step_limit_s = bench, spec.step_limit_s
        self._at_work = AtWork(home.at_work(run_id))
        self._ledger = Ledger(store, run_id, bench, self._clock)
        self._ledger.recorder.seen(run.memory_source, run.peak_memory_bytes)
        self._ledger.recorder.gauge = self._gauge
        self._take_up = TakeUp(store, run_id, bench, self._ledger, self._at_work)
        self._clear_for_retries()
        last_turns, alive = store.telemetry.last_turns(run_id), [row for row in rows if State(row.state) not in ENDED]
        taken = self._take_up.all(run, alive, in_line([row.name for row in alive], last_turns))
        self._engine = Engine(
            bench.hybrid,
            [submodel for submodel, _ in taken],
            policy_named(spec.policy.name, spec.policy.parameters),
            device=bench.device,
            threads=self._threads,
            report=self._ledger.report,
            standings={submodel.name: standing for submodel, standing in taken},
            checkpoint=spec.checkpoint,
            mark=self._at_work.mark,
            empties=True,
            elapsed_s=self._elapsed_s(run.started_at_s, max(last_turns.values(), default=0.0)),
        )
        self._ledger.attach(self._engine)
        self._seat = Seat(self._engine.run)
        self._posted: set[int] = set()

    def run(self) -> int:
        """Train to the end in the calling thread, the main one, and write down how it went; returns the exit code."""
        self._store.runs.record_environment(self._run_id, environment(self._bench.device, self._threads))
        self._store.runs.update(self._run_id, graph=to_dot(self._bench.hybrid))
        self._store.runs.transition(self._run_id, None, Event.BEGIN)
        self._carry_orders()  # what was asked in the meantime holds before the first step
        Watchdog(lambda: self._engine.at_work, self._step_limit_s, self._end_a_stuck_step).start()
        self._seat.take()
        return self._seat.serve(partial(_guarded, self._store, self._run_id, self._attend), _leave)

    def _attend(self) -> int:
        """Everything beside the training, until there is nothing more to do here; returns the exit code."""
        terminated_at_s: float | None = None
        while True:
            reading = self._gauge.read(self._engine.now_s(), self._engine, self._bench.data.placed_bytes)
            if reading is not None:
                self._ledger.recorder.memory(reading)
            if terminated_at_s is None and self._terminations.heard:
                terminated_at_s = time.monotonic()
                self._engine.post(Leave())
            leaving = terminated_at_s is not None
            try:
                if not leaving:
                    self._carry_orders()
                resting = not self._seat.taken  # asked before its last reports are read
                self._ledger.write_down()
                rests = resting and self._ledger.idle
                if rests:  # before the run ends in the store, where somebody may wait for its figures
                    self._sum_up()
                code = self._outcome(resting=rests, leaving=leaving)
                if code is not None:
                    self._at_work.clear()
                    return code
            except OperationalError:  # a full disk or a locked store: nothing is dropped, the next turn tries again
                traceback.print_exc()
            if terminated_at_s is not None and time.monotonic() - terminated_at_s > FAREWELL_S:
                return TERMINATED
            time.sleep(TICK_S)

    def _sum_up(self) -> None:
        """Write down what the process used in all, and remember what it took beside all tensors."""
        self._store.runs.update(self._run_id, **self._gauge.columns())
        gauge, key = self._gauge, context_key(self._bench.device.type, torch.__version__)
        if gauge.alone_bytes is not None:
            self._store.measured.remember(key, gauge.alone_bytes, PROCESS_RSS)
        else:
            self._store.measured.remember(key, gauge.context_bytes or 0, gauge.context_source)

    def _outcome(self, *, resting: bool, leaving: bool) -> int | None:
        """Exit code where there is nothing more to do here; `resting` is whether the engine and everything else is."""
        if not self._ledger.open and resting and self._store.runs.conclude(self._run_id):
            return DONE
        pause = self._ledger.pause
        if resting and self._engine.device_lost is not None:
            self._store.workers.quarantine(self._run_id, *self._engine.device_lost)
            return STUCK  # the device works for a new process, which takes up the others
        if resting and pause is not None:
            return self._paused(pause)
        if resting and leaving:
            return TERMINATED
        if resting and self._engine.has_orders:  # somebody joined when all others had just ended
            self._seat.take()
        elif resting and self._ledger.open:
            raise RuntimeError("The engine ended before its sub-models did; the worker's log says why.")
        return None

    def _paused(self, pause: Obeyed) -> int | None:
        """Everything is kept: the run is paused, unless a stop has overtaken the pause."""
        run, _ = self._store.runs.get(self._run_id)
        if State(run.state) is not State.STOPPING:
            self._store.commands.carry_out(pause.id, pause.step)
            return DONE
        self._store.commands.decline(pause.id, "pause: a stop overtook it")
        self._ledger.pause = None
        self._engine.stay()
        self._seat.take()
        return None

    def _carry_orders(self) -> None:
        """Hand the engine what was asked for since; it answers each when it has taken effect."""
        for command in self._store.commands.open(self._run_id):
            if command.id in self._posted:
                continue
            if command.verb is Verb.RESUME and command.submodel is None:  # this very worker is what was asked for
                self._store.commands.carry_out(command.id)
            elif joins(command) is None:
                self._engine.post(order_of(command))
            elif not self._bring(command, joins(command) or ""):
                continue
            self._posted.add(command.id)

    def _bring(self, command: Command, name: str) -> bool:
        """Read a sub-model here, so that the engine has only to merge it; False where that has to wait a little."""
        run, rows = self._store.runs.get(self._run_id)
        row = next(row for row in rows if row.name == name)
        if name in self._ledger.open:  # it was among those that this worker began with
            self._store.commands.carry_out(command.id)
            return True
        if State(row.state) in ENDED:
            self._store.commands.decline(command.id, f"{command.verb}: {name} is {row.state}")
            return True
        if self._ledger.is_keeping(name):  # a checkpoint of its last attempt must not come after what is cleared here
            return False
        try:
            if command.arguments.get("from_start"):
                self._bench.shelf(name).clear()
        except OSError:  # a disk that cannot be written now, or is full
            traceback.print_exc()
            return False
        read = self._take_up.read(run, row, peers=len(rows))
        if read is None:
            self._store.commands.decline(command.id, f"{command.verb}: {name} could not be read")
        else:
            self._engine.post(order_of(command, partial(self._bench.add, read)))
        return True

    def _clear_for_retries(self) -> None:
        for command in self._store.commands.open(self._run_id):
            if command.verb is Verb.RETRY and command.arguments.get("from_start"):
                self._bench.shelf(command.submodel or "").clear()

    def _elapsed_s(self, started_at_s: float | None, last_turn_end_s: float) -> float:
        """Seconds since the run began; never before what was recorded of it, wherever the clock was set to."""
        return 0.0 if started_at_s is None else max(self._clock.utc_s() - started_at_s, last_turn_end_s)

    def _end_a_stuck_step(self, name: str) -> None:
        """Nothing inside this process can end a step that never returns: its sub-model fails, and the process ends."""
        cause = f"A step of {name} took longer than {self._step_limit_s:g} s."
        remedy = "It may be endless. Correct the model, or allow longer steps in the spec (step_limit_s)."
        self._store.workers.quarantine(self._run_id, name, cause, remedy)
        _leave(STUCK)


def launched_at_s(clock: Clock) -> float:
    """UTC moment at which this process was started, by the clock that goes on while the machine sleeps."""
    began_s = liveness.started_at_s(os.getpid())
    if not hasattr(time, "CLOCK_BOOTTIME"):  # not Linux: it is a time of day already
        return began_s
    return clock.utc_s() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def train(home: Home, run_id: str, clock: Clock | None = None) -> int:
    """Be the worker of a run, in the main thread of a process that does nothing else; returns its exit code."""
    store = Store.open(home, clock)
    attempt = store.workers.register(run_id, liveness.current())
    if attempt is None:
        return FAILED  # it came up so late that the run was given up
    if attempt == 1:
        store.runs.update(run_id, launched_at_s=launched_at_s(clock or RealClock()))
    return _guarded(store, run_id, lambda: Worker(home, store, run_id, Terminations(), clock).run())


def _guarded(store: Store, run_id: str, work: Callable[[], int]) -> int:
    """Do a part of the worker's work; what goes wrong in it is written down, and the exit code returned."""
    try:
        return work()
    except (OperationalError, OSError):  # a store or disk that cannot be written now is no fault of the run
        traceback.print_exc()
        return FAILED
    except Exception as error:
        traceback.print_exc()
        give_up(store, run_id, error)
        return FAILED


def main() -> None:
    """Train the run named on the command line: `python -m unifiednn_core.runtime.worker HOME RUN_ID`."""
    failpoints.arm_from_environment()
    _leave(train(Home(Path(sys.argv[1])), sys.argv[2]))


def _leave(code: int) -> NoReturn:
    """End the process at once: no thread of it must hold the device any longer."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
