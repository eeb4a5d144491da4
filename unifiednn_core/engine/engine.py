"""Algorithm 2 of the paper: the loop that trains the sub-models of a hybrid, one quantum at a time.

The policy decides, the engine enacts. With several lanes others step beside the policy's choice, as long as that pays
(`scheduling.company`). Between two steps the engine carries out orders and captures checkpoints, while all lanes rest.
It never waits for a database, a disk, a log or a reader of its reports.
"""

import contextlib
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from unifiednn_core.base import failpoints
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.errors import DamagedData
from unifiednn_core.engine import device as devices
from unifiednn_core.engine.checkpoint import name_of_key
from unifiednn_core.engine.company import Company, Roster
from unifiednn_core.engine.events import (
    Answered,
    Captured,
    Cost,
    DataChanged,
    Ended,
    EpochDone,
    Ganged,
    Granted,
    Left,
    Refused,
    Released,
    Report,
)
from unifiednn_core.engine.gang import Gang, Gangs
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.job import RUNNABLE, Job, Turn, reasons
from unifiednn_core.engine.meters import CheckpointTimer, TurnMeter, quantum_meter
from unifiednn_core.engine.orders import Adjust, AnyOrder, Join, Order, Reorder, SetPolicy, adjust
from unifiednn_core.engine.probes import Probes
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.stepping import UNTRACED, Lanes, Stepper, Trace, start_timers
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.machine.cores import cores
from unifiednn_core.scheduling.base import Decision, Policy, Shares, View, decide_or_fall_back
from unifiednn_core.scheduling.company import MemoryRoom, Rates
from unifiednn_core.spec.lifecycle import Event, State, next_state
from unifiednn_core.spec.run import CheckpointSpec

_LOOK_S = 5.0  # how often an idle lane looks whether those who were parted may try again


class DeviceLost(NamedTuple):
    """An error after which the device does not work for this process any more."""

    steps: Mapping[str, int]
    """The steps at work, by sub-model: with more than one, nobody knows whose error it was."""
    cause: str
    remedy: str


class Engine:
    """Trains a hybrid in the calling thread (`run`) or in its own thread (`start`), and in further lanes."""

    def __init__(
        self,
        hybrid: HybridModel,
        policy: Policy,
        *,
        device: torch.device,
        threads: int = 1,
        lanes: int = 1,
        fast: bool = False,
        report: Callable[[Report], object] = lambda report: None,
        clock: Clock | None = None,
        jobs: Iterable[Job] | None = None,
        checkpoint: CheckpointSpec | None = None,
        first_period: float = 1.0,
        elapsed_s: float = 0.0,
        mark: Callable[[int, str, str], object] = lambda lane, name, doing: None,
        trace: Trace = lambda lane, name, step: UNTRACED,
        alone_until: Mapping[str, int] | None = None,
        memory: Callable[[], MemoryRoom] = MemoryRoom,
        free_on_end: bool = False,
    ):
        """Prepare a run; nothing trains yet.

        `threads` is for each of the at most `lanes` sub-models that step at once; with `fast`, equal networks may
        step fused. `jobs` holds the state of each sub-model, in order of arrival; without it all are new. `elapsed_s`
        is the time since the run began. Without `checkpoint`, only orders capture checkpoints; the first is due after
        a share `first_period` of a period. `mark(1, "name", "step 7")` runs in the first thread before a step,
        `mark(1, "name", "evaluation after step 7")` before an evaluation, `mark(1, "name", "")` after a turn;
        `trace(1, "name", 7)` surrounds a step. Sub-models in `alone_until` have no company up to that step.
        `memory` says what the prediction of the run allows to company. With `free_on_end` the memory of a sub-model is
        freed when it ends, despite references to it.
        """
        self._hybrid = hybrid
        self._policy, self._shares = policy, Shares()
        self._device = device
        self._report = report
        self._clock = clock or Clock()
        self._free_on_end = free_on_end
        self._started_s = self._clock.monotonic_s() - elapsed_s
        self._rates = Rates(cpu_tells=device.type == "cpu", own_cores=lanes * threads <= cores())
        self._meter = TurnMeter(device)
        self._lanes, self._roster = Lanes(lanes), Roster(self._clock, self._rates, lanes=lanes)
        self._stepper = Stepper(
            self._roster,
            self._lanes,
            device=device,
            threads=threads,
            clock=self._clock,
            report=report,
            mark=mark,
            trace=trace,
            fast=fast,
        )
        self._company = Company(self._roster, self._rates, self._meter, memory=memory, alone_until=alone_until or {})
        self._gangs = Gangs(device, fast=fast, now_s=self._clock.monotonic_s, memory=memory)
        self._gang_steps = False
        """Whether the sub-models at work step together, as one gang."""
        if jobs is None:
            jobs = [Job(submodel, in_line_since=place) for place, submodel in enumerate(hybrid.submodels)]
        self._roster.admit_all(jobs, self.now_s())
        self.orders: deque[AnyOrder] = deque()
        """Orders that wait for the next step boundary."""
        self._leaving = False
        """Whether the loop ends with all sub-models as they are."""
        self._over = False
        """Whether a lane has found nothing left to do, so that all of them end."""
        self._changed = False
        """Whether to ask the policy again although the quantum is not used up."""
        self._memory_to_free = False
        """Whether an ended or paused sub-model left memory in reserve."""
        self._checkpoint_timer = CheckpointTimer(checkpoint, self._clock, first_period)
        self._being_written: set[str] = set()
        self.device_lost: DeviceLost | None = None
        """What made the device unusable for this process."""

    def start(self) -> threading.Thread:
        """Run in a background thread."""
        thread = threading.Thread(target=self.run, name="engine", daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        """Train until every sub-model has ended or an order says to leave; can be called again after that.

        Restores torch's settings and RNGs.
        """
        self._leaving = self._over = False
        self._meter.discard_cpu_time()
        with devices.preserved(self._device):
            self._lanes.run(self._run_once, self._stepper.lane)

    # -- for any thread

    @property
    def at_work(self) -> dict[str, float]:
        """Sub-models that the device works for, and since when (monotonic clock)."""
        return self._stepper.at_work

    def post(self, order: AnyOrder) -> None:
        """Ask for something; the engine does it at the next step boundary."""
        self.orders.append(order)
        self._lanes.wake()

    def checkpoint_written(self, submodel: str) -> None:
        """Confirm that the last capture of a sub-model is on disk; the next one may follow."""
        self._being_written.discard(submodel)

    def now_s(self) -> float:
        """Seconds since the run began; the clock of all reports."""
        return self._clock.monotonic_s() - self._started_s

    def footprints(self) -> dict[str, Footprint]:
        """Memory that each sub-model holds now."""
        return {job.name: job.submodel.footprint for job in list(self._roster.jobs.values())}

    def own_bytes(self) -> dict[str, int]:
        """Most memory of its own of each sub-model at work, where a step was measured."""
        jobs = [turn.job for turn in tuple(self._roster.turns.values())]
        found = {job.name: self._meter.own_bytes(job.name, job.submodel.footprint) for job in jobs}
        return {name: size for name, size in found.items() if size is not None}

    def transients(self) -> dict[str, int | None]:
        """Largest temporary memory of each sub-model at work, in any of its turns so far; None if unknown."""
        jobs = [turn.job for turn in tuple(self._roster.turns.values())]
        return {job.name: self._meter.transient_bytes(job.name, job.submodel.footprint) for job in jobs}

    # -- the loop, once in each lane

    def _run_once(self) -> bool:
        """Carry out orders, ask who is next, train it for one quantum; False once every sub-model has ended.

        No variable here outlives the turn of a sub-model, so that its memory is free once it has ended.
        """
        self._lanes.begin()  # before orders are read, so that none is missed
        if self._over:  # all lanes end together: the first one sets the process up for all
            return False
        self._between_steps()
        for job in self._roster.waiting:
            if job.submodel.finished:  # resumed at its last step, or given fewer epochs
                self._end(job, Event.COMPLETE)
        if self._memory_to_free:
            self._memory_to_free = False
            with contextlib.suppress(RuntimeError):  # a broken device has nothing to free
                devices.free_cached(self._device)
        if self._leaving or not self._roster.jobs or self._lanes.broken:
            self._over = True
            self._lanes.wake_others()
            return False
        turn = self._next_turn()
        if turn is not None:
            self._take(turn)
        else:
            self._lanes.wait(_LOOK_S if self._rates.any_rests or self._company.any_suspects else None)
            self._meter.discard_cpu_time()
        return True

    def _choose(self, jobs: Sequence[Job]) -> Decision:
        """Ask the policy to choose among runnable jobs, at least one."""
        now_s = self.now_s()
        service_s = self._shares.of({job.standing.owner: job.standing.tickets for job in self._roster.runnable})
        views = [job.view(now_s, service_s.get(job.standing.owner, 0.0)) for job in jobs]
        decision, refused = decide_or_fall_back(self._policy, View(tuple(views), now_s, tuple(self._roster.turns)))
        if refused:
            self._report(Refused(decision.job, decision.reason))
        return decision

    def _next_turn(self) -> Turn | None:
        """The turn that an idle lane takes now; None if no sub-model may train in it."""
        if self._roster.holder is None and (runnable := self._roster.runnable):
            decision = self._choose(runnable)
            job = self._roster.jobs[decision.job]
            if (turn := self._roster.turns.get(job.name)) is not None:
                if turn.failure is not None:  # it ends at its next step boundary
                    return None
                self._promote(turn, decision)
            elif self._company.make_room(job):
                return Turn(job, decision, lane=1)
            else:
                return None
        return self._beside()

    def _promote(self, turn: Turn, decision: Decision) -> None:
        """Let a sub-model that was company go on as the policy's choice."""
        self._release(turn)
        turn.lane, turn.decision, turn.leaves = 1, decision, None
        self._begin(turn)

    def _beside(self) -> Turn | None:
        """The turn of a sub-model that may train beside those at work; None if there is none."""
        first, waiting = self._roster.first, self._roster.waiting
        if first is None or len(self._roster.turns) >= self._lanes.count or not first.stays or self._gang_steps:
            return None
        jobs = self._company.admissible(waiting, self.now_s())
        if not jobs:
            return None
        decision = self._choose(jobs)
        job = self._roster.jobs[decision.job]
        lane = min(set(range(2, self._lanes.count + 1)) - {turn.lane for turn in self._roster.turns.values()})
        return Turn(job, replace(decision, reason=self._company.reason(job)), lane=lane)

    # -- turns

    def _take(self, turn: Turn) -> None:
        """Let a sub-model train in this lane until its quantum is used up, it is done, or something ends its turn."""
        crew = [turn, *self._mates(turn)]
        for one in crew:
            self._enter(one)
        if self._lanes.count > 1:
            self._lanes.open(len(self._roster.runnable))
            self._lanes.wake_others()
        try:
            if len(crew) == 1:
                self._train(turn)
            else:
                self._train_together(crew)
        except Exception as error:  # an error of one network ends that one alone
            turn.fail(error)
        for one in (*crew[1:], turn):  # the policy's choice goes to the end of the line
            self._leave(one)
        self._gang_steps = False
        self._lanes.wake_others()

    def _enter(self, turn: Turn) -> None:
        """Begin a turn in this lane."""
        job = turn.job
        if first := self._roster.first:
            self._meter.company_comes(first.job.submodel.footprint)
        turn.probes = self._company.is_unmeasured(job) and not self._gang_steps
        if self._roster.turns and not self._gang_steps and self._company.join(job):
            with self._lanes.parked():  # no step goes on that began before the rule
                pass
        self._roster.enter(turn)
        self._meter.begin(job.name, self.now_s(), alone=len(self._roster.turns) == 1)
        self._begin(turn)

    def _leave(self, turn: Turn) -> None:
        """End a turn in this lane."""
        job = turn.job
        self._stepper.rest(job)
        cost = self._meter.end(job.name, job.submodel.footprint)
        self._roster.leave(turn)
        self._company.part()
        self._release(turn, cost)
        if not self._leaving and turn.stays:  # one that was sent away keeps its place in line
            job.in_line_since = self._roster.next_tick()
        self._settle(job, turn.failure)

    def _begin(self, turn: Turn) -> None:
        """Report a turn, or the change of one from company to the policy's choice."""
        job = turn.job
        begins = job.state is State.QUEUED
        if begins:
            job.state = next_state(job.name, job.state, Event.BEGIN)
        if turn.lane == 1:
            self._roster.holder = job.name
        turn.begin(self.now_s(), quantum_meter(turn.decision.quantum, job.submodel, self._clock))
        self._report(Granted(job.name, turn.start_s, turn.decision.reason, begins, turn.lane))

    def _release(self, turn: Turn, cost: Cost | None = None) -> None:
        """Report the end of a turn, or of the part of it in this role."""
        job, end_s = turn.job, self.now_s()
        if turn.lane == 1:
            self._roster.holder = None
        turn.end(end_s)
        if turn.lane == 1 or not self._gang_steps:  # a gang takes as much of the device as its first member
            self._shares.charge(job.standing.owner, end_s - turn.start_s)
        steps, reason = job.submodel.steps_done - turn.first_step, turn.decision.reason
        if turn.leaves:
            reason = f"{reason} {turn.leaves}"
        step_s = job.timer.usual_step_s
        self._report(Released(job.name, turn.start_s, end_s, steps, reason, cost or Cost(), turn.lane, step_s))

    def _train(self, turn: Turn) -> None:
        """Take steps until the turn ends."""
        job, submodel = turn.job, turn.job.submodel
        if turn.lane == 1:
            self._changed = False
        self._stepper.heartbeat(job.name)
        with submodel.world():
            self._meter.record_baseline(job.name, submodel.footprint)
            job.timer.start(self._roster.group)
            while True:
                self._rest_while_another_probes(turn)
                self._stepper.record_step(job)
                self._stepper.step(job, self._company.climb(turn), self._measuring([turn]))
                if submodel.finished or turn.used_up():
                    break
                self._between_steps()
                self._company.judge(turn, self.now_s())
                if not self._goes_on(turn):
                    break
        self._stepper.finish(job)
        job.timer.stop()

    def _measuring(self, crew: Sequence[Turn]) -> contextlib.AbstractContextManager[None] | None:
        """Measures the temporary memory of the next step, once for a sub-model that has had no turn alone.

        Not of the first step, in which libraries are initialised.
        """
        if not any(turn.job.timer.warm and self._meter.is_unknown(turn.job.name) for turn in crew):
            return None
        return self._meter.step_alone([turn.job.submodel for turn in crew])

    # -- gangs

    def _mates(self, turn: Turn) -> list[Turn]:
        """Turns of those that step together with the policy's choice, while nobody else is at work."""
        if not self._gangs.possible or turn.lane != 1 or self._roster.turns or self._company.is_suspect(turn.job):
            return []
        waiting = [job for job in self._roster.waiting if job is not turn.job and not self._company.is_suspect(job)]
        mates = self._gangs.mates(turn.job, waiting, self._company.working_bytes)
        self._gang_steps = bool(mates)
        reason = f"It steps together with {turn.job.name}."
        return [
            Turn(job, replace(turn.decision, job=job.name, reason=reason), lane=place)
            for place, job in enumerate(mates, start=2)
        ]

    def _train_together(self, crew: list[Turn]) -> None:
        """Take steps of a gang until the turn of the first one ends; any other that has to leave does so before."""
        first, worlds = crew[0], {turn.job.name: contextlib.ExitStack() for turn in crew}
        self._changed = False
        self._stepper.heartbeat(first.job.name)
        try:
            gang = self._formed(crew, worlds)
            while gang is not None:
                self._stepper.record_gang(gang, first.job)
                try:
                    self._stepper.step_gang(gang, crew, self._measuring(crew))
                except Exception as error:  # all have taken their batches, and none has learnt from its own
                    for turn in crew:
                        turn.fail(error)
                    break
                for news in self._gangs.news(gang):
                    self._report(news)
                if first.job.submodel.finished or first.used_up():
                    break
                self._between_steps()
                for turn in [turn for turn in crew[1:] if turn.ends]:
                    crew.remove(turn)
                    gang.drop(turn.job.name)
                    worlds[turn.job.name].close()
                    self._leave(turn)
                if gang.dissolved is not None:
                    _send_away(crew)
                if not self._goes_on(first):
                    break
        finally:
            self._stepper.finish(first.job)
            for turn in crew:
                turn.job.timer.stop()
                worlds[turn.job.name].close()

    def _formed(self, crew: list[Turn], worlds: Mapping[str, contextlib.ExitStack]) -> Gang | None:
        """Place all members and form their gang; None if that is not possible, which ends their turns."""
        for turn in crew:
            try:
                worlds[turn.job.name].enter_context(turn.job.submodel.world())
            except Exception as error:
                turn.fail(error)
        found: Gang | str | None = None
        if all(turn.stays for turn in crew):
            with self._lanes.computing:
                found = self._gangs.of([turn.job.submodel for turn in crew])
        if isinstance(found, Gang):
            start_timers(crew)
            return found
        if found is not None:
            for turn in crew:
                self._report(Ganged(turn.job.name, len(crew) - 1, parted=found))
        _send_away(crew)
        return None

    def _rest_while_another_probes(self, turn: Turn) -> None:
        if turn.probes:
            with self._lanes.parked():  # until the steps of the others are done
                turn.probes = turn.job.timer.seconds_per_step is None
                self._roster.regroup()
            if not turn.probes:
                self._lanes.wake()
        while turn.job.name not in self._roster.group:
            self.at_work.pop(turn.job.name, None)
            self._lanes.begin()
            self._lanes.wait()

    def _goes_on(self, turn: Turn) -> bool:
        """Whether a turn goes on. After an order that may change the policy's choice, the policy is asked again."""
        if self._leaving or self._lanes.broken or turn.ends:
            return False
        if self._changed and turn.lane == 1:
            self._ask_again(turn)
        return turn.stays

    def _ask_again(self, turn: Turn) -> None:
        """Ask the policy whether its choice is still the same; another one takes over at once."""
        self._changed = False
        decision = self._choose(self._roster.runnable)
        if decision.job != turn.job.name:
            turn.leaves = ""
        elif decision.quantum != turn.decision.quantum:
            turn.decision = replace(turn.decision, quantum=decision.quantum)
            turn.used_up = quantum_meter(decision.quantum, turn.job.submodel, self._clock)

    # -- ends, pauses and departures

    def _settle(self, job: Job, failure: tuple[str, str] | None = None) -> None:
        """End, pause or let go a sub-model that is not at work, if its state, a failure or an order says so."""
        if failure is not None:
            with self._stepper.watched(job):
                healthy = devices.is_healthy(self._device)
            if healthy:
                self._end(job, Event.FAIL, *failure)
            else:
                at_work = (job, *(turn.job for turn in self._roster.turns.values()))
                places = {one.name: one.submodel.steps_done + 1 for one in at_work}
                self.device_lost, self._leaving = self.device_lost or DeviceLost(places, *failure), True
        elif job.submodel.finished:
            self._end(job, Event.COMPLETE)
        elif job.state is State.STOPPING:
            self._end(job, Event.HALT)
        else:
            if job.state is State.PAUSING:
                self._pause(job)
            here = job.name in self._roster.jobs  # else its data have changed, or its state could not be captured
            if job.leaving and here and self.device_lost is None:
                self._depart(job)

    def _pause(self, job: Job) -> None:
        """Capture a sub-model and free the memory that it holds on the device."""
        if not self._capture(job):
            return
        try:
            self._gangs.forget(job.name)
            with self._stepper.watched(job):
                job.submodel.park()
            self._memory_to_free = True
        except Exception as error:
            self._fail(job, error)
        else:
            job.state = next_state(job.name, job.state, Event.HOLD)
            job.paused_since_s = self.now_s()
            self._answer(job.pause_id, job)

    def _fail(self, job: Job, error: Exception) -> None:
        """End a sub-model by an error of its own; one at work ends at its next step boundary, in its lane."""
        if (turn := self._roster.turns.get(job.name)) is not None:
            turn.fail(error)
        else:
            traceback.print_exception(error)
            self._end(job, Event.FAIL, *reasons(error))

    def _end(self, job: Job, event: Event, cause: str | None = None, remedy: str | None = None) -> None:
        """Take a sub-model out of the hybrid, and report a host copy of its state."""
        name, submodel, checkpoint = job.name, job.submodel, None
        last_used = self._roster.used_alone(job)
        keeps = event is not Event.FAIL and not job.discarded
        try:
            with self._stepper.watched(job):
                self._verify_data(last_used, ending=job)
                if submodel.spec.joins and submodel.finished and submodel.last is None:
                    self._judge(job)
                checkpoint = submodel.capture() if keeps and (submodel.steps_done or submodel.spec.joins) else None
        except Exception as error:  # it fails alone; the others train on
            traceback.print_exc()
            if keeps:
                event, (cause, remedy) = Event.FAIL, reasons(error)
        job.state = next_state(name, job.state, event)
        ended = Ended(name, event, checkpoint, cause, remedy, job.discarded)
        if checkpoint is not None:
            ended = replace(ended, probes=self._probed(job))
        self._remove(job, last_used, ended)

    def _judge(self, job: Job) -> None:
        """Evaluate a network that was joined of its parts and does not train, while the others rest."""
        with self._lanes.parked(), devices.preserved(self._device), ProcessState(self._device), job.submodel.world():
            self._report(EpochDone(job.name, job.submodel.evaluate_joined()))

    def _probed(self, job: Job) -> Probes:
        """What a sub-model that has ended makes of a few samples, while the others rest; an error costs only that."""
        if not job.submodel.placed:
            return Probes(missing="it was not on its device when it ended")
        try:
            with (
                self._lanes.parked(),
                self._stepper.watched(job),
                devices.preserved(self._device),
                ProcessState(self._device),
                job.submodel.world(),
            ):
                return job.submodel.probe()
        except Exception as error:  # the network may raise anything
            traceback.print_exc()
            with self._stepper.watched(job):
                healthy = devices.is_healthy(self._device)
            if not healthy:  # else the next sub-model would be blamed
                lost = DeviceLost({job.name: job.submodel.steps_done}, *reasons(error))
                self.device_lost, self._leaving = self.device_lost or lost, True
            return Probes(missing=f"the network could not be run on its first samples ({type(error).__name__})")

    def _depart(self, job: Job) -> None:
        """Take a sub-model out of the hybrid once its state is captured; nothing is reported of it after that."""
        try:
            with self._stepper.watched(job):
                self._verify_data(job.submodel.leases, ending=job)
        except Exception as error:
            self._fail(job, error)
            return
        if self._capture(job):
            self._roster.users.remove(job.name)
            self._remove(job, self._roster.used_alone(job), Left(job.name))

    def _remove(self, job: Job, unused: Sequence[Lease], last: Report) -> None:
        """Take a sub-model out of the hybrid and free what it holds; `last` is its last report."""
        self._roster.remove(job, unused)
        self._gangs.forget(job.name)
        self._hybrid.remove(job.name)
        self._report(last)
        job.submodel.release(empty=self._free_on_end)
        self._memory_to_free = True

    # -- checkpoints

    def _between_steps(self) -> None:
        """Carry out orders and take due checkpoints, while every lane is between two steps."""
        while self.orders and not self._leaving:
            with self._lanes.parked():
                self.at_work.clear()
                self._carry_out(self.orders.popleft())
            self._lanes.open(len(self._roster.runnable))
            self._lanes.wake_others()
        if self._checkpoint_timer.is_due(self._stepper.steps):
            with self._lanes.parked():
                self.at_work.clear()
                self._capture_all(but=frozenset(self._being_written))

    def _capture_all(self, but: frozenset[str] = frozenset()) -> None:
        """Capture all sub-models, those at work last: an error may end their turns."""
        for turn in self._roster.turns.values():  # else the first copy would wait for their kernels under another name
            try:
                with self._stepper.watched(turn.job):
                    devices.synchronize(self._device)
            except Exception as error:
                turn.fail(error)
        for job in sorted(self._roster.jobs.values(), key=lambda job: job.name in self._roster.turns):
            if job.name not in but:
                self._capture(job)

    def _capture(self, job: Job) -> bool:
        """Report the state of a sub-model if it has changed; False if that fails, which ends the sub-model."""
        submodel = job.submodel
        if submodel.steps_done == job.captured_step:
            return True
        try:
            with self._stepper.watched(job):
                if job.name in self._roster.turns:  # its kernels may be in the stream of another lane
                    devices.synchronize(self._device)
                checkpoint = submodel.capture()
        except Exception as error:
            self._fail(job, error)
            return False
        job.captured_step = submodel.steps_done
        self._being_written.add(job.name)
        self._report(Captured(checkpoint))
        return True

    def _verify_data(self, leases: Iterable[Lease], ending: Job | None = None) -> None:
        """Report each data set that has changed for all that used it, and end those of them that still train.

        Raises `DamagedData` if `ending`, which is about to end anyway, is one of them.
        """
        users = self._roster.users.of_damaged(leases)
        for name, data in users.items():
            self._report(DataChanged(name, data))
        for name, data in users.items():
            if name in self._roster.jobs and self._roster.jobs[name] is not ending:
                self._fail(self._roster.jobs[name], DamagedData(name_of_key(name), data))
        if ending is not None and ending.name in users:
            raise DamagedData(name_of_key(ending.name), users[ending.name])

    # -- orders

    def _carry_out(self, order: AnyOrder) -> None:
        """Carry an order out. The end of a sub-model answers a stop; a pause is answered once the state is captured."""
        self._changed = True
        match order:
            case Order(event=Event.STOP | Event.DISCARD | Event.RELEASE as event, submodel=None):
                for job in list(self._roster.jobs.values()):
                    self._order_one(job, event, None)
            case Order(event=event, submodel=None):
                self._capture_all()
                self._verify_data(lease for job in self._roster.jobs.values() for lease in job.submodel.leases)
                self._leaving = event is Event.PAUSE
                self._answer(order.id)
            case Order(event=event, submodel=str(name)):
                if name in self._roster.jobs:  # else its end has answered
                    self._order_one(self._roster.jobs[name], event, order.id)
            case Join():
                self._join(order)
            case SetPolicy(policy=policy):
                failpoints.passing("policy.before_switch")
                self._policy = policy
                failpoints.passing("policy.after_switch")
                self._answer(order.id)
            case Reorder(names=names):
                self._roster.reorder(names)
                self._answer(order.id)
            case Adjust():
                found = self._roster.jobs.get(order.submodel)
                self._answer(order.id, found, declined=adjust(found, order))

    def _order_one(self, job: Job, event: Event, command_id: int | None) -> None:
        match event:
            case Event.PAUSE if job.state in RUNNABLE:
                job.state, job.pause_id = next_state(job.name, job.state, Event.PAUSE), command_id
            case Event.PAUSE if job.state is State.PAUSED:  # asked before a crash, and restored as paused since
                self._answer(command_id, job)
            case Event.RESUME:
                if job.state is State.PAUSED:
                    job.state = next_state(job.name, job.state, Event.RESUME)
                    job.resume(self.now_s(), self._roster.next_tick())
                self._answer(command_id, job)
            case Event.STOP | Event.DISCARD:
                if job.state is not State.STOPPING:
                    job.state = next_state(job.name, job.state, event)
                job.discarded = job.discarded or event is Event.DISCARD
            case Event.RELEASE:
                job.leaving = True
            case Event.SAVE:
                if self._capture(job):
                    self._verify_data(job.submodel.leases)
                self._answer(command_id, job)
        if job.name not in self._roster.turns and (job.leaving or job.state in (State.PAUSING, State.STOPPING)):
            self._settle(job)

    def _join(self, order: Join) -> None:
        """Merge one more network. It draws from no RNG of the others, and its failure ends it alone."""
        declined = None
        if order.submodel not in self._roster.jobs:  # else it was there when this worker began
            try:
                with devices.preserved(self._device), ProcessState(self._device):
                    submodel = order.prepare()
                standing = replace(order.standing, joined_s=self.now_s())
                tick, captured = self._roster.next_tick(), order.captured_step
                self._roster.admit(Job(submodel, in_line_since=tick, captured_step=captured, standing=standing))
            except Exception as error:
                traceback.print_exc()
                cause, remedy = reasons(error)
                self._report(Ended(order.submodel, Event.FAIL, None, cause, remedy))
                declined = f"{name_of_key(order.submodel)} could not join: {cause}"
        self._answer(order.id, declined=declined)

    def _answer(self, command_id: int | None, job: Job | None = None, *, declined: str | None = None) -> None:
        if command_id is not None:
            self._report(Answered(command_id, None if job is None else job.submodel.steps_done, declined))


def _send_away(crew: Iterable[Turn]) -> None:
    """End turns at the next step boundary; their sub-models keep their places in line."""
    for turn in crew:
        turn.leaves = turn.leaves or ""
