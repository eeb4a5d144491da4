"""The worker: one process that trains one hybrid on one device.

The engine trains in the main thread. The telemetry thread writes reports to the store, passes commands to the engine
and samples memory; two more threads write checkpoints and export models. Only the store connects the worker with the
outside, so the next worker can continue whatever happens to this one.
"""

import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from sqlalchemy.exc import DatabaseError, OperationalError
from torch.utils._python_dispatch import TorchDispatchMode

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import Fenced, cause_of
from unifiednn_core.base.files import set_private_umask
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import is_disk_full, log_error
from unifiednn_core.base.visible import keep_log_visible
from unifiednn_core.engine import late_dynamo
from unifiednn_core.engine.device import environment, resolve
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Answered
from unifiednn_core.engine.graph import graph_document
from unifiednn_core.engine.orders import Adjust, AnyOrder, Join, Order, Reorder, SetPolicy
from unifiednn_core.machine import allocator
from unifiednn_core.machine.cores import keep_to, lanes_of
from unifiednn_core.machine.template import is_forked
from unifiednn_core.preflight.estimate import context_key
from unifiednn_core.runtime import launchers
from unifiednn_core.runtime.assembly import Workbench
from unifiednn_core.runtime.confinement import die_with_parent, forgo_privileges
from unifiednn_core.runtime.gauge import WorkerGauge
from unifiednn_core.runtime.launchers import WorkMark
from unifiednn_core.runtime.loader import SubModelLoader
from unifiednn_core.runtime.main_thread import MainThreadTrainer, SigtermListener, Watchdog
from unifiednn_core.runtime.remote_store import RemoteStore
from unifiednn_core.runtime.reporter import Reporter
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import HybridSettings, PolicySpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.database import Fence
from unifiednn_core.store.hybrids import Place, address, key_of
from unifiednn_core.store.schema import CommandRow
from unifiednn_core.store.workers import first_period

TICK_S = 0.2
FAREWELL_S = 20.0  # a machine that shuts down gives us at most this long to write the last checkpoints
MOST_DEFECTS = 25  # ticks in a row that may fail before the run does; 5 s

DONE, FAILED, STUCK, LOST, FENCED, TERMINATED = 0, 1, 3, 4, 5, 128 + signal.SIGTERM

_log = logging.getLogger(__name__)


class Worker:
    """Everything between the store and the engine of one hybrid. `assemble` reads the store and the files."""

    def __init__(
        self,
        reads: SubModelLoader,
        engine: Engine,
        gauge: WorkerGauge,
        work_mark: WorkMark,
        sigterm: SigtermListener,
        *,
        threads: int,
        step_limit_s: float,
        lanes: int = 1,
    ):
        self._reads, self._store, self._bench, self._reporter = reads, reads.store, reads.bench, reads.reporter
        self._hybrid_id, self._shared = reads.bench.hybrid_id, reads.shared
        self._engine = engine
        self._gauge: WorkerGauge | None = gauge
        self._work_mark, self._sigterm = work_mark, sigterm
        self._threads, self._step_limit_s, self._lanes = threads, step_limit_s, lanes
        self._trainer = MainThreadTrainer(engine.run)
        self._posted: set[int] = set()
        self._told: dict[int, set[str]] = {}
        """Sub-models to which each command of a shared run was passed, by its id."""
        self._told_to_leave: set[str] = set()
        self._device_is_needed = False
        """Whether the run goes back to the line as soon as its checkpoints are on disk."""
        self._defects = 0
        """Ticks in a row that failed."""
        self._bad_samples = 0
        """Memory samples in a row that failed."""
        self._terminated_at_s: float | None = None

    @classmethod
    def assemble(
        cls, home: Home, store: Store, hybrid_id: str, sigterm: SigtermListener, courier: RemoteStore | None = None
    ) -> "Worker":
        """Read a hybrid and its files, restore its sub-models and put the parts of a worker together.

        `courier` is None on the server's machine.
        """
        clock = store.clock
        store.commands.adopt(hybrid_id)
        hybrid, members = store.hybrids.get(hybrid_id)
        settings, threads = HybridSettings.model_validate(hybrid.settings), hybrid.threads
        torch.set_num_threads(threads)
        bench = Workbench(
            home,
            hybrid_id,
            resolve(hybrid.device or "cpu"),
            fast=settings.profile == "fast",
            also=tuple(map(resolve, hybrid.also)),
        )
        earlier = {"cpu_s": hybrid.cpu_s, "gpu_s": hybrid.gpu_s, "energy_j": hybrid.energy_j}
        load = hybrid.environment.get("load", ())
        gauge = WorkerGauge(
            bench.device, clock, earlier=earlier, earlier_load=load
        )  # before any model or data set is read
        work_mark = WorkMark(home.at_work(hybrid_id))
        reporter = Reporter(store, hybrid, bench, clock, gauge, courier)
        reads = SubModelLoader(store, bench, reporter, clock, hybrid.shared, courier)
        for command in store.commands.open_in(hybrid_id):
            if command.verb == Verb.RETRY and command.arguments.get("from_start"):
                reads.forget_checkpoints(key_of(hybrid_id, command.run_id, command.submodel or ""))
        last_turns, elapsed_s = store.telemetry.last_turns(hybrid_id), 0.0
        if hybrid.started_at_s is not None:  # never before the last turn, even if the clock was set back
            elapsed_s = max(clock.utc_s() - hybrid.started_at_s, *last_turns.values(), 0.0)
        suspects, lanes = Place.all_of(hybrid.died_at), lanes_of(settings.lanes, threads, bench.device.type)
        engine = Engine(
            bench.hybrid,
            policy_named(settings.policy.name, settings.policy.parameters),
            device=bench.device,
            threads=threads,
            lanes=lanes,
            fast=bench.fast,
            report=reads.reporter.report,
            jobs=reads.jobs(members, work_mark, last_turns, elapsed_s),
            checkpoint=settings.checkpoint,
            first_period=first_period(hybrid.deaths),
            mark=work_mark.set,
            trace=partial(_trace, suspects, work_mark),
            alone_until={place.submodel: place.step for place in suspects},
            memory=reads.memory,
            free_on_end=True,
            elapsed_s=elapsed_s,
        )
        reads.reporter.engine = engine
        limit_s = settings.step_limit_s
        return cls(reads, engine, gauge, work_mark, sigterm, threads=threads, lanes=lanes, step_limit_s=limit_s)

    def run(self) -> int:
        """Train to the end in the calling thread, which has to be the main one. Return the exit code."""
        facts = environment(self._bench.device, self._threads)
        facts |= {"allocator": allocator.of_this_process(), "lanes": self._lanes}
        self._store.hybrids.record_environment(self._hybrid_id, facts)
        self._store.hybrids.update(self._hybrid_id, graph=graph_document(self._bench.hybrid))
        self._store.hybrids.begin(self._hybrid_id)
        if not self._shared:  # runs in a shared one begin with the attempts on their sub-models
            self._store.runs.transition(self._hybrid_id, None, Event.BEGIN)
        self._carry_commands()  # commands issued meanwhile take effect before the first step
        Watchdog(lambda: self._engine.at_work, self._step_limit_s, self._end_a_stuck_step).start()
        self._trainer.start()
        return self._trainer.run(partial(_guarded, self._store, self._hybrid_id, self._shared, self._telemetry), _leave)

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
            except Fenced:
                log_error(_log, "Another worker has this hybrid.")
                return FENCED
            except Exception as error:
                # On a full disk or with a locked store the next tick tries again, and nothing is lost. A defect in
                # telemetry must not end training; many in a row do.
                self._defects += not (isinstance(error, OperationalError) or is_disk_full(error))
                if self._defects >= MOST_DEFECTS:
                    raise
                log_error(_log, "Telemetry could not be written; it is tried again.")
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
            log_error(_log, "Memory could not be sampled.")
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
            self._follow_placement()
            self._bring_waiting()
        resting = not self._trainer.is_training  # read before its last reports are written
        self._reporter.write(self._engine.now_s(), at_once=resting or leaving)
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
        self._store.hybrids.update(self._hybrid_id, **gauge.columns())
        pages = gauge.pages(self._reporter.host_peak_bytes())
        self._store.hybrids.record_environment(self._hybrid_id, {"pages": pages, "load": gauge.load()})
        if gauge.alone_bytes is None:
            self._store.measured.remember(key, gauge.context_bytes or 0)
        elif not is_forked():  # a fork holds fewer pages than the next worker, which may start cold
            self._store.measured.remember(key, gauge.alone_bytes)

    def _outcome(self, *, resting: bool, leaving: bool) -> int | None:
        """Exit code once nothing is left to do; `resting` says that the engine and all other threads are idle."""
        if not resting:
            return None
        end = self._store.workers.close if self._shared else self._store.runs.conclude
        if not self._reporter.open and end(self._hybrid_id):
            return DONE
        if self._engine.device_lost is not None:
            steps, cause, remedy = self._engine.device_lost
            if len(steps) > 1:  # as after a crash, the next worker lets each of them train alone there
                for lane, (name, step) in enumerate(steps.items(), start=1):
                    self._work_mark.set(lane, name, f"step {step}")
                return LOST
            [name] = steps
            if name in self._reporter.open:  # one that has ended keeps its end: its probes ended the device
                self._store.runs.fail_submodel(*self._address(name), cause, remedy)
            return STUCK  # the device works for a new process, which continues the others
        if self._reporter.pause is not None:
            return self._paused(self._reporter.pause)
        if leaving:
            return TERMINATED
        if self._device_is_needed:
            self._store.workers.give_back(self._hybrid_id)
            return DONE
        if self._engine.orders:  # a sub-model joined when all others had just ended
            self._trainer.start()
        elif self._reporter.open - self._reporter.exporter.paused:
            raise RuntimeError("The engine ended before its sub-models did; the worker's log says why.")
        return None

    def _paused(self, pause: Answered) -> int | None:
        """Pause the run in the store, now that everything is on disk; train on if a stop came first."""
        if self._store.commands.carry_out(pause.id):
            return DONE
        self._reporter.pause = None
        self._trainer.start()
        return None

    # -- commands

    def _carry_commands(self) -> None:
        """Pass new commands to the engine; it answers each when it has taken effect."""
        for command in self._store.commands.open_in(self._hybrid_id):
            if self._shared:
                self._carry_shared(command)
                continue
            if command.id in self._posted:
                continue
            if command.verb in (Verb.RESUME, Verb.MOVES) and command.submodel is None:  # for this very worker, or later
                self._store.commands.carry_out(command.id)
            elif (name := _joining(command)) is not None:
                if not self._bring(name, command):
                    continue
            elif command.submodel in self._reads.waiting and command.verb not in (Verb.STOP, Verb.DISCARD):
                self._carry_waiting(command)
            elif not self._carry_to_exporter(command):
                self._engine.post(order_of(command, command.submodel or ""))
            self._posted.add(command.id)

    def _carry_shared(self, command: CommandRow) -> None:
        """Pass a command to those of its sub-models that have come and do not know it; others come by placement.

        A stop of a whole run is answered by its end, because other hybrids may have to obey it, too.
        """
        told = self._told.setdefault(command.id, set())
        names = (self._of(command) & self._reporter.open) - told
        if not names:
            return
        if command.verb in (Verb.RETRY, Verb.MOVES):  # this worker began with it, or need not know
            self._store.commands.carry_out(command.id)
        elif self._carry_to_exporter(command):
            pass
        elif command.submodel is not None:
            self._engine.post(order_of(command, self._key(command)))
        else:
            answers = command.verb not in (Verb.STOP, Verb.DISCARD)
            for name in sorted(names):
                last = answers and name == max(names)
                self._engine.post(Order(Event(command.verb), name, command.id if last else None))
        told |= names  # last: an error above repeats it at the next tick

    def _of(self, command: CommandRow) -> set[str]:
        """Keys of the open sub-models that a command is for."""
        if command.submodel is not None:
            return {self._key(command)}
        return {key for key in self._reporter.open if self._address(key)[0] == command.run_id}

    def _key(self, command: CommandRow) -> str:
        return key_of(self._hybrid_id, command.run_id, command.submodel or "")

    def _address(self, key: str) -> tuple[str, str]:
        return address(self._hybrid_id, key)

    def _follow_placement(self) -> None:
        """Let sub-models in that were placed here, and let those go that are to leave."""
        if not self._shared:
            if not self._device_is_needed and self._store.hybrids.is_to_leave(self._hybrid_id):
                self._device_is_needed = True
                self._engine.post(Order(Event.PAUSE))
            return
        here = self._store.hybrids.open_members(self._hybrid_id)
        self._told_to_leave &= {key for key, _ in here}
        for key, leaves in here:
            if leaves and key in self._reporter.exporter.paused:  # its weights have to be written before it can go
                self._reporter.exporter.retry(key)
            elif key not in self._reporter.open and not leaves:
                if key not in self._reads.waiting:
                    self._bring(key)
            elif key in self._reporter.open and leaves and key not in self._told_to_leave:
                self._told_to_leave.add(key)
                self._engine.post(Order(Event.RELEASE, key))
            elif key not in self._reporter.open and leaves:  # it never came
                self._store.workers.left(self._hybrid_id, key)

    def _carry_waiting(self, command: CommandRow) -> None:
        """Carry a command out on a sub-model that waits for its parts: it reads its row and its spec when it comes."""
        if command.verb == Verb.EPOCHS:
            self._store.commands.decline(command.id, f"{command.submodel} has not been joined of its parts yet")
        else:
            self._store.commands.carry_out(command.id)

    def _bring_waiting(self) -> None:
        """Bring sub-models whose parts have been trained; end those that a person stopped before."""
        if not self._reads.waiting:
            return
        for member in self._store.hybrids.get(self._hybrid_id)[1]:
            if member.key not in self._reads.waiting:
                continue
            if State(member.row.state) in ENDED:
                self._reads.waiting.pop(member.key)
            elif State(member.row.state) is State.STOPPING:
                self._store.runs.transition(member.run.id, member.row.name, Event.HALT)
                self._reads.waiting.pop(member.key)
            elif State(member.row.state) in (State.PAUSING, State.PAUSED):
                continue
            elif member.row.leaving is None:
                done = False
                try:
                    done = self._bring(member.key)
                finally:  # also after an error, else nobody would bring it
                    if not done:
                        self._reads.waiting.setdefault(member.key, ())

    def _carry_to_exporter(self, command: CommandRow) -> bool:
        """Resume, stop or discard sub-models whose export is paused; False if the engine has to act as well."""
        names = self._reporter.exporter.paused & self._of(command)
        if command.verb == Verb.RESUME and names:  # first: an error repeats it as long as the exports are paused
            self._store.commands.carry_out(command.id)
        for name in names:
            if command.verb in (Verb.RESUME, Verb.STOP):
                self._reporter.exporter.retry(name)
            elif command.verb == Verb.DISCARD:
                self._reporter.discard_export(name)
        return bool(names) and command.submodel is not None

    def _bring(self, name: str, command: CommandRow | None = None) -> bool:
        """Read a sub-model in this thread, so the engine only merges it; False to try again at the next tick.

        `command` is what brings it; into a shared hybrid it is placed, after a retry perhaps.
        """
        hybrid, members = self._store.hybrids.get(self._hybrid_id)
        member = next(member for member in members if member.key == name)
        commands = self._store.commands
        asked = command or next(
            (one for one in commands.open_in(hybrid.id) if one.verb == Verb.RETRY and self._key(one) == name), None
        )
        if name in self._reporter.open:  # this worker began with it
            if asked is not None:
                commands.carry_out(asked.id)
            return True
        if State(member.row.state) in ENDED:
            if asked is not None:
                commands.decline(asked.id, f"{asked.verb}: {member.row.name} is {member.row.state}")
            return True
        if self._reads.waits(member):
            if asked is not None:
                commands.carry_out(asked.id)
            return True
        if self._reporter.writer.is_writing(name):  # a checkpoint of its last attempt must not follow `clear`
            return False
        if not (there := self._reads.has_brought(member)):
            if there is None and asked is not None:
                commands.decline(asked.id, f"{asked.verb}: a file of {member.row.name} is lost")
            return there is None
        try:
            if asked is not None and asked.arguments.get("from_start"):
                self._reads.forget_checkpoints(name)
        except OSError:  # a full or read-only disk
            log_error(_log, "Checkpoints could not be deleted; it is tried again.")
            return False
        self._told_to_leave.discard(name)  # what its last stay was told does not count for this one
        for told in self._told.values():
            told.discard(name)
        standing = self._reads.standing(member, self._reads.clock.utc_s() - self._engine.now_s())
        read = self._reads.read(member, members)  # last: what has begun has to be posted
        if read is not None:
            prepare, captured_step = partial(self._bench.add, read), read.columns.get("checkpoint_step", 0)
            self._engine.post(Join(name, prepare, None if asked is None else asked.id, standing, captured_step))
        elif asked is not None:
            commands.decline(asked.id, f"{asked.verb}: {member.row.name} could not be read")
        return True

    def _end_a_stuck_step(self, name: str) -> None:
        """Fail the sub-model and end the process: nothing inside it can end a step that never returns."""
        cause = f"A step of {self._address(name)[1]} took longer than {self._step_limit_s:g} s."
        remedy = "It may be endless. Correct the model, or allow longer steps in the spec (step_limit_s)."
        self._store.runs.fail_submodel(*self._address(name), cause, remedy)
        _leave(STUCK)


class OperatorTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, calls `tell` with the name of each operator (`aten.div.Tensor_mode`) before it runs.

    Only a step at which a worker has died runs with it: naming costs some microseconds for each operator.
    """

    supports_higher_order_operators = True

    def __init__(self, tell: Callable[[str], object]):
        super().__init__()  # type: ignore[no-untyped-call]
        self._tell = tell

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Name an operator and run it."""
        self._tell(str(operator))
        return operator(*args, **(kwargs or {}))


def _trace(
    suspects: tuple[Place, ...], mark: WorkMark, lane: int, name: str, step: int
) -> AbstractContextManager[object]:
    """Mark each operator of a step at which the last worker died, so that a second death there has its name."""
    suspected = any((place.submodel, place.step) == (name, step) for place in suspects)
    return OperatorTrace(partial(mark.operator, lane)) if suspected else nullcontext()


def order_of(command: CommandRow, name: str) -> AnyOrder:
    """The engine's order for a command that brings no sub-model; `name` is the key of its target."""
    arguments = command.arguments
    match command.verb:
        case Verb.PRIORITY | Verb.EPOCHS | Verb.DEVICES:
            return Adjust(name, command.verb, arguments[command.verb], command.id)
        case Verb.DEADLINE:
            return Adjust(name, "deadline_s", arguments["deadline_s"], command.id)
        case Verb.ORDER:
            return Reorder(tuple(arguments["names"]), command.id)
        case Verb.POLICY:
            policy = PolicySpec.model_validate(arguments["policy"])
            return SetPolicy(policy_named(policy.name, policy.parameters), command.id)
        case _:
            return Order(Event(command.verb), name or None, command.id)


def train(home: Home, hybrid_id: str, remote: RemoteStore | None = None) -> int:
    """Train a hybrid in the main thread of this process, its worker. Return the exit code.

    `remote` is the store of a worker on another machine than the server's.
    """
    store, me = Store(home.database) if remote is None else remote.store, launchers.own_identity()
    attempt = store.workers.register(hybrid_id, me, launched_at_s(store.clock))
    if attempt is None:
        return FAILED  # it started so late that the hybrid was given up
    store.raise_fence(Fence(hybrid_id, attempt, (me.pid, me.started_at_s)))
    if attempt == 1:
        store.hybrids.record_environment(hybrid_id, {"start": "warm" if is_forked() else "cold"})
    hybrid, _ = store.hybrids.get(hybrid_id)
    keep_to([core for name in (hybrid.device, *hybrid.also) for core in store.devices.cpus_of(name)])  # before threads
    work = partial(Worker.assemble, home, store, hybrid_id, SigtermListener(), remote)
    return _guarded(store, hybrid_id, hybrid.shared, lambda: work().run())


def launched_at_s(clock: Clock) -> float:
    """UTC moment at which this process started, by the clock that keeps running while the machine sleeps."""
    began_s = launchers.started_at_s(os.getpid())
    if not hasattr(time, "CLOCK_BOOTTIME"):  # not Linux: `began_s` is a time of day already
        return began_s
    return clock.utc_s() - (time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


def main() -> None:
    """Train the hybrid named on the command line: `python -m unifiednn_core.runtime.worker HOME HYBRID_ID`.

    With `--relayed` its store is elsewhere.
    """
    home, hybrid_id, *relayed = sys.argv[1:]
    if relayed:
        die_with_parent()
    set_private_umask()
    forgo_privileges()
    faulthandler.enable()  # a crash leaves the line of Python in the log
    failpoints.arm_from_environment()
    keep_log_visible()
    threading.excepthook = _end_with
    allocator.forget_preloading()
    late_dynamo.install()
    place = Home(Path(home))
    _leave(train(place, hybrid_id, remote=RemoteStore.of(place, hybrid_id) if relayed else None))


def _joining(command: CommandRow) -> str | None:
    """Name of the sub-model that an add or a retry brings into the hybrid."""
    if command.verb == Verb.ADD:
        name: str = command.arguments["submodel"]["name"]
        return name
    return command.submodel if command.verb == Verb.RETRY else None


def _guarded(store: Store, hybrid_id: str, shared: bool, work: Callable[[], int]) -> int:
    """Run `work`; after an error in it, record the failure of the run and return that exit code.

    The runs of a shared hybrid do not fail by what may be the fault of another; it starts again like after a crash.
    """
    try:
        return work()
    except Fenced:
        traceback.print_exc()
        return FENCED
    except Exception as error:
        traceback.print_exc()
        if not shared and not isinstance(error, DatabaseError | OSError):  # those are no fault of the run
            store.runs.fail_run(hybrid_id, cause_of(error))
        return FAILED


def _end_with(died: threading.ExceptHookArgs) -> None:
    """End the process with a thread that an error has ended: the run goes on from its checkpoints in a new worker."""
    _log.error("The thread %s died.", died.thread and died.thread.name, exc_info=died.exc_value)
    _leave(FAILED)


def _leave(code: int) -> NoReturn:
    """End the process at once, so that no thread keeps the device."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
