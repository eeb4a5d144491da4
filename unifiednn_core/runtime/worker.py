"""The worker: one process that trains one run on one device.

The engine trains in the main thread. The telemetry thread writes reports to the store, passes commands to the engine
and samples memory; two more threads write checkpoints and export models. Only the store connects the worker with the
outside, so the next worker can continue whatever happens to this one.
"""

import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch
from sqlalchemy.exc import OperationalError

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock, RealClock
from unifiednn_core.base.files import keep_private
from unifiednn_core.base.paths import Home
from unifiednn_core.base.visible import keep_log_visible
from unifiednn_core.engine import late_dynamo
from unifiednn_core.engine.device import environment, preserved, resolve
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Answered
from unifiednn_core.engine.graph import graph_document
from unifiednn_core.engine.job import Job, Standing, reasons
from unifiednn_core.engine.operator_trace import OperatorTrace
from unifiednn_core.engine.orders import (
    AnyOrder,
    Join,
    Order,
    Reorder,
    SetDeadline,
    SetEpochs,
    SetPolicy,
    SetPriority,
)
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.machine import allocator
from unifiednn_core.machine.cores import lanes_of
from unifiednn_core.machine.host import PROCESS_RSS
from unifiednn_core.machine.template import is_forked
from unifiednn_core.preflight.estimate import context_key
from unifiednn_core.preflight.forecast import memory_room
from unifiednn_core.runtime import launchers
from unifiednn_core.runtime.assembly import Ingredients, Workbench
from unifiednn_core.runtime.confinement import forgo_privileges
from unifiednn_core.runtime.gauge import WorkerGauge
from unifiednn_core.runtime.launchers import WorkMark
from unifiednn_core.runtime.main_thread import MainThreadTrainer, SigtermListener, Watchdog
from unifiednn_core.runtime.reporter import Reporter
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import PolicySpec, RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.places import Place
from unifiednn_core.store.schema import CommandRow, RunRow, SubModelRow
from unifiednn_core.store.workers import first_period

TICK_S = 0.2
FAREWELL_S = 20.0  # a machine that shuts down gives us at most this long to write the last checkpoints
MOST_DEFECTS = 25  # ticks in a row that may fail before the run does; 5 s

DONE, FAILED, STUCK, LOST, TERMINATED = 0, 1, 3, 4, 128 + signal.SIGTERM


class Worker:
    """Everything between the store and the engine of one run. `assemble` reads the store and the files."""

    def __init__(
        self, reads: "_Reader", engine: Engine, gauge: WorkerGauge, work_mark: WorkMark, sigterm: SigtermListener,
        *, threads: int, step_limit_s: float, lanes: int = 1,
    ):  # fmt: skip
        self._reads, self._store, self._bench, self._reporter = reads, reads.store, reads.bench, reads.reporter
        self._run_id = reads.bench.run_id
        self._engine = engine
        self._gauge: WorkerGauge | None = gauge
        self._work_mark, self._sigterm = work_mark, sigterm
        self._threads, self._step_limit_s, self._lanes = threads, step_limit_s, lanes
        self._trainer = MainThreadTrainer(engine.run)
        self._posted: set[int] = set()
        self._defects = 0
        """Ticks in a row that failed."""
        self._bad_samples = 0
        """Memory samples in a row that failed."""
        self._terminated_at_s: float | None = None

    @classmethod
    def assemble(
        cls, home: Home, store: Store, run_id: str, sigterm: SigtermListener, clock: Clock | None = None
    ) -> "Worker":
        """Read a run and its files, restore its sub-models and put the parts of a worker together."""
        clock = clock or RealClock()
        store.commands.adopt(run_id)
        run, rows = store.runs.get(run_id)
        spec, threads = RunSpec.model_validate(run.spec), run.threads or 1
        torch.set_num_threads(threads)
        bench = Workbench(home, run_id, resolve(run.device))
        earlier = {"cpu_s": run.cpu_s, "gpu_s": run.gpu_s, "energy_j": run.energy_j}
        gauge = WorkerGauge(bench.device, clock, earlier=earlier)  # before any model or data set is read
        reads, work_mark = (
            _Reader(store, bench, Reporter(store, run, bench, clock, gauge), clock),
            WorkMark(home.at_work(run_id)),
        )
        for command in store.commands.open(run_id):
            if command.verb == Verb.RETRY and command.arguments.get("from_start"):
                bench.checkpoints(command.submodel or "").clear()
        last_turns, elapsed_s = store.telemetry.last_turns(run_id), 0.0
        if run.started_at_s is not None:  # never before the last turn, even if the clock was set back
            elapsed_s = max(clock.utc_s() - run.started_at_s, *last_turns.values(), 0.0)
        suspects, lanes = Place.all_of(run.died_at), lanes_of(spec.lanes, threads, bench.device.type)
        engine = Engine(
            bench.hybrid,
            policy_named(spec.policy.name, spec.policy.parameters),
            device=bench.device,
            threads=threads,
            lanes=lanes,
            fast=spec.profile == "fast",
            report=reads.reporter.report,
            jobs=reads.jobs(run, rows, work_mark, last_turns, elapsed_s),
            checkpoint=spec.checkpoint,
            first_period=first_period(run.deaths),
            mark=work_mark.set,
            trace=partial(_trace, suspects, work_mark),
            alone_until={place.submodel: place.step for place in suspects},
            memory=reads.memory,
            free_on_end=True,
            elapsed_s=elapsed_s,
        )
        reads.reporter.engine = engine
        limit_s = spec.step_limit_s
        return cls(reads, engine, gauge, work_mark, sigterm, threads=threads, lanes=lanes, step_limit_s=limit_s)

    def run(self) -> int:
        """Train to the end in the calling thread, which has to be the main one. Return the exit code."""
        facts = environment(self._bench.device, self._threads)
        facts |= {"allocator": allocator.of_this_process(), "lanes": self._lanes}
        self._store.runs.record_environment(self._run_id, facts)
        self._store.runs.update(self._run_id, graph=graph_document(self._bench.hybrid))
        self._store.runs.transition(self._run_id, None, Event.BEGIN)
        self._carry_commands()  # commands issued meanwhile take effect before the first step
        Watchdog(lambda: self._engine.at_work, self._step_limit_s, self._end_a_stuck_step).start()
        self._trainer.start()
        return self._trainer.run(partial(_guarded, self._store, self._run_id, self._telemetry), _leave)

    # -- the telemetry thread

    def _telemetry(self) -> int:
        """Do everything but training until nothing is left to do; return the exit code."""
        while True:
            self._sample()
            try:
                code = self._tick()
                if code is not None:
                    if code != LOST:
                        self._work_mark.clear()
                    return code
                self._defects = 0
            except OperationalError:  # a full disk or a locked store: the next tick tries again, nothing is lost
                traceback.print_exc()
            except Exception:  # one defect in telemetry must not end training; many in a row do
                self._defects += 1
                if self._defects >= MOST_DEFECTS:
                    raise
                traceback.print_exc()
            if self._terminated_at_s is not None and time.monotonic() - self._terminated_at_s > FAREWELL_S:
                return TERMINATED
            time.sleep(TICK_S)

    def _sample(self) -> None:
        """Sample memory. A reading that fails costs that sample; `MOST_DEFECTS` in a row end the sampling."""
        if self._gauge is None:
            return
        try:
            reading = self._gauge.read(self._engine.now_s(), self._engine, self._bench.data.placed_bytes)
        except Exception:  # a driver may raise anything
            traceback.print_exc()
            self._bad_samples += 1
            if self._bad_samples >= MOST_DEFECTS:
                self._gauge = None
            return
        if reading is not None:
            self._bad_samples = 0
            self._reporter.memory(reading)

    def _tick(self) -> int | None:
        if self._terminated_at_s is None and self._sigterm.heard:
            self._terminated_at_s = time.monotonic()
            self._engine.post(Order(Event.PAUSE))
        leaving = self._terminated_at_s is not None
        if not leaving:
            self._carry_commands()
        resting = not self._trainer.is_training  # read before its last reports are written
        self._reporter.write(self._engine.now_s())
        rests = resting and self._reporter.idle
        if rests:  # before the run ends in the store, where others may wait for its figures
            self._sum_up()
        return self._outcome(resting=rests, leaving=leaving)

    def _sum_up(self) -> None:
        """Write what the process used in total, and store the memory of its context for predictions."""
        gauge, used = self._gauge, allocator.of_this_process() or allocator.GLIBC
        key = context_key(self._bench.device.type, torch.__version__, used)
        if gauge is None:
            return
        self._store.runs.update(self._run_id, **gauge.columns())
        self._store.runs.record_environment(self._run_id, {"pages": gauge.pages(self._reporter.host_peak_bytes())})
        if gauge.alone_bytes is None:
            self._store.measured.remember(key, gauge.context_bytes or 0, gauge.context_source)
        elif not is_forked():  # a fork holds fewer pages than the next worker, which may start cold
            self._store.measured.remember(key, gauge.alone_bytes, PROCESS_RSS)

    def _outcome(self, *, resting: bool, leaving: bool) -> int | None:
        """Exit code once nothing is left to do; `resting` says that the engine and all other threads are idle."""
        if not resting:
            return None
        if not self._reporter.open and self._store.runs.conclude(self._run_id):
            return DONE
        if self._engine.device_lost is not None:
            steps, cause, remedy = self._engine.device_lost
            if len(steps) > 1:  # as after a crash, the next worker lets each of them train alone there
                for lane, (name, step) in enumerate(steps.items(), start=1):
                    self._work_mark.set(lane, name, f"step {step}")
                return LOST
            [name] = steps
            self._store.runs.fail_submodel(self._run_id, name, cause, remedy)
            return STUCK  # the device works for a new process, which continues the others
        if self._reporter.pause is not None:
            return self._paused(self._reporter.pause)
        if leaving:
            return TERMINATED
        if self._engine.orders:  # a sub-model joined when all others had just ended
            self._trainer.start()
        elif self._reporter.open - self._reporter.exporter.paused:
            raise RuntimeError("The engine ended before its sub-models did; the worker's log says why.")
        return None

    def _paused(self, pause: Answered) -> int | None:
        """Pause the run in the store, now that everything is on disk; train on if a stop came first."""
        if self._store.commands.carry_out(pause.id, pause.step):
            return DONE
        self._reporter.pause = None
        self._trainer.start()
        return None

    # -- commands

    def _carry_commands(self) -> None:
        """Pass new commands to the engine; it answers each when it has taken effect."""
        for command in self._store.commands.open(self._run_id):
            if command.id in self._posted:
                continue
            if command.verb == Verb.RESUME and command.submodel is None:  # it asked for this very worker
                self._store.commands.carry_out(command.id)
            elif (name := _joining(command)) is not None:
                if not self._bring(command, name):
                    continue
            elif not self._carry_to_exporter(command):
                self._engine.post(order_of(command))
            self._posted.add(command.id)

    def _carry_to_exporter(self, command: CommandRow) -> bool:
        """Resume, stop or discard sub-models whose export is paused; False if the engine has to act as well."""
        names = self._reporter.exporter.paused & ({command.submodel} if command.submodel else self._reporter.open)
        for name in names:
            if command.verb in (Verb.RESUME, Verb.STOP):
                self._reporter.exporter.retry(name)
            elif command.verb == Verb.DISCARD:
                self._reporter.discard_export(name)
        if command.verb == Verb.RESUME and names:
            self._store.commands.carry_out(command.id)
        return bool(names) and command.submodel is not None

    def _bring(self, command: CommandRow, name: str) -> bool:
        """Read a sub-model in this thread, so the engine only merges it; False to try again at the next tick."""
        run, rows = self._store.runs.get(self._run_id)
        row = next(row for row in rows if row.name == name)
        if name in self._reporter.open:  # this worker began with it
            self._store.commands.carry_out(command.id)
            return True
        if State(row.state) in ENDED:
            self._store.commands.decline(command.id, f"{command.verb}: {name} is {row.state}")
            return True
        if self._reporter.writer.is_writing(name):  # a checkpoint of its last attempt must not follow `clear`
            return False
        try:
            if command.arguments.get("from_start"):
                self._bench.checkpoints(name).clear()
        except OSError:  # a full or read-only disk
            traceback.print_exc()
            return False
        read = self._reads.read(run, row, peers=len(rows))
        if read is None:
            self._store.commands.decline(command.id, f"{command.verb}: {name} could not be read")
        else:
            standing = self._reads.standing(run, row, self._reads.clock.utc_s() - self._engine.now_s())
            self._engine.post(Join(name, partial(self._bench.add, read), command.id, standing))
        return True

    def _end_a_stuck_step(self, name: str) -> None:
        """Fail the sub-model and end the process: nothing inside it can end a step that never returns."""
        cause = f"A step of {name} took longer than {self._step_limit_s:g} s."
        remedy = "It may be endless. Correct the model, or allow longer steps in the spec (step_limit_s)."
        self._store.runs.fail_submodel(self._run_id, name, cause, remedy)
        _leave(STUCK)


def _trace(
    suspects: tuple[Place, ...], mark: WorkMark, lane: int, name: str, step: int
) -> AbstractContextManager[object]:
    """Mark each operator of a step at which the last worker died, so that a second death there has its name."""
    suspected = any((place.submodel, place.step) == (name, step) for place in suspects)
    return OperatorTrace(partial(mark.operator, lane)) if suspected else nullcontext()


def order_of(command: CommandRow) -> AnyOrder:
    """The engine's order for a command that brings no sub-model."""
    name, arguments = command.submodel or "", command.arguments
    match command.verb:
        case Verb.PRIORITY:
            return SetPriority(name, arguments["priority"], command.id)
        case Verb.DEADLINE:
            return SetDeadline(name, arguments["deadline_s"], command.id)
        case Verb.EPOCHS:
            return SetEpochs(name, arguments["epochs"], command.id)
        case Verb.ORDER:
            return Reorder(tuple(arguments["names"]), command.id)
        case Verb.POLICY:
            policy = PolicySpec.model_validate(arguments["policy"])
            return SetPolicy(policy_named(policy.name, policy.parameters), command.id)
        case _:
            return Order(Event(command.verb), command.submodel, command.id)


def train(home: Home, run_id: str, clock: Clock | None = None) -> int:
    """Train a run in the main thread of this process, its worker. Return the exit code."""
    store = Store(home.database_url, clock)  # the server made the folders
    attempt = store.workers.register(run_id, launchers.own_identity())
    if attempt is None:
        return FAILED  # it started so late that the run was given up
    if attempt == 1:
        store.runs.update(run_id, launched_at_s=launched_at_s(clock or RealClock()))
        store.runs.record_environment(run_id, {"start": "warm" if is_forked() else "cold"})
    return _guarded(store, run_id, lambda: Worker.assemble(home, store, run_id, SigtermListener(), clock).run())


def launched_at_s(clock: Clock) -> float:
    """UTC moment at which this process started, by the clock that keeps running while the machine sleeps."""
    began_s = launchers.started_at_s(os.getpid())
    if not hasattr(time, "CLOCK_BOOTTIME"):  # not Linux: `began_s` is a time of day already
        return began_s
    return clock.utc_s() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def main() -> None:
    """Train the run named on the command line: `python -m unifiednn_core.runtime.worker HOME RUN_ID`."""
    keep_private()
    forgo_privileges()
    faulthandler.enable()  # a crash leaves the line of Python in the log
    failpoints.arm_from_environment()
    keep_log_visible()
    allocator.forget_preloading()
    late_dynamo.install()
    _leave(train(Home(Path(sys.argv[1])), sys.argv[2]))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Prepares sub-models for training. One that cannot be read or restored fails alone."""

    store: Store
    bench: Workbench
    reporter: Reporter
    clock: Clock
    rooms: list[MemoryRoom] = field(default_factory=lambda: [MemoryRoom()])
    """What the newest prediction of the run allows; its only entry."""

    def jobs(
        self, run: RunRow, rows: list[SubModelRow], mark: WorkMark, last_turns: dict[str, float], elapsed_s: float
    ) -> list[Job]:
        """Sub-models that are ready to train, in order of arrival, in a run that goes on after `elapsed_s`."""
        alive = [row for row in rows if State(row.state) not in ENDED]
        # The line is sorted by the end of the last turn; without one, or if it was cut short, a sub-model goes first.
        line = sorted((row.name for row in alive), key=lambda name: last_turns.get(name, -1.0))
        jobs: dict[str, Job] = {}
        for row in alive:
            mark.set(1, row.name, "loading")
            read = self.read(run, row, peers=len(alive))
            if read is None:
                continue
            try:
                with preserved(self.bench.device), ProcessState(self.bench.device):
                    submodel = self.bench.add(read)
                jobs[row.name] = Job(
                    submodel, in_line_since=line.index(row.name), service_s=row.service_s, paused_s=row.paused_s,
                    state=State.PAUSED if row.state == State.PAUSED.value else State.QUEUED,
                    captured_step=read.columns.get("checkpoint_step", 0),
                )  # fmt: skip
            except Exception as error:
                self._fail(row, error)
        mark.clear()
        began_at_s = self.clock.utc_s() - elapsed_s  # the engine's clock begins with this, right after the last reading
        for row in alive:
            if row.name in jobs:
                jobs[row.name].standing = self.standing(run, row, began_at_s)
        return list(jobs.values())

    def memory(self) -> MemoryRoom:
        """What the prediction of the run allows now. Safe in any thread."""
        return self.rooms[0]

    def standing(self, run: RunRow, row: SubModelRow, began_at_s: float) -> Standing:
        """What a sub-model may count on, in a run whose clock began at `began_at_s` (UTC)."""
        submitted_at_s = run.created_at_s if row.joined_at_s is None else row.joined_at_s
        return Standing(
            owner=row.owner,
            tickets=self.store.people.tickets_of(row.owner),
            submitted_s=submitted_at_s - began_at_s,
            deadline_s=row.deadline_s,
            joined_s=max(0.0, submitted_at_s - began_at_s),
        )

    def read(self, run: RunRow, row: SubModelRow, *, peers: int) -> Ingredients | None:
        """Read one of `peers` sub-models and open its attempt; None if it could not be read, and has failed."""
        spec, files = RunSpec.model_validate(run.spec), run.environment.get("files", {}).get(row.name, {})
        self.rooms[:] = [memory_room(run.prediction)]
        try:
            read = self.bench.read(spec, row.name, files, partial(self.store.runs.warn, run.id, row.name))
        except OperationalError:
            raise
        except Exception as error:
            self._fail(row, error)
            return None
        columns = read.columns
        [attempt] = self.store.workers.begin(run.id, {row.name: columns}).values()
        self.reporter.admit(row, attempt, from_step=columns["steps_done"], peers=peers)
        return read

    def _fail(self, row: SubModelRow, error: Exception) -> None:
        traceback.print_exception(error)
        self.reporter.open.discard(row.name)
        self.store.runs.fail_submodel(row.run_id, row.name, *reasons(error))


def _joining(command: CommandRow) -> str | None:
    """Name of the sub-model that an add or a retry brings into the hybrid."""
    if command.verb == Verb.ADD:
        name: str = command.arguments["submodel"]["name"]
        return name
    return command.submodel if command.verb == Verb.RETRY else None


def _guarded(store: Store, run_id: str, work: Callable[[], int]) -> int:
    """Run `work`; after an error in it, record the failure of the run and return that exit code."""
    try:
        return work()
    except Exception as error:
        traceback.print_exc()
        if not isinstance(error, OperationalError | OSError):  # a full disk or a locked store is no fault of the run
            store.runs.fail_run(run_id, error)
        return FAILED


def _leave(code: int) -> NoReturn:
    """End the process at once, so that no thread keeps the device."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
