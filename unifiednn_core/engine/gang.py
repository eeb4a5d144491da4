"""Gangs: equal networks with different hyper-parameters, seeds or data orders, which take their steps together.

Only forward and backward are one. The gradients end in the `.grad` of each member, where its own clipping, optimizer
and LR scheduler find them; each member keeps its own weights, running statistics, data order and figures, and nothing
of it shares memory with another one between two steps.

A `fast` gang fuses its operators. Fused sums are rounded differently, so it is for the profile `fast` only. An exact
gang has the steps of its members as branches of one CUDA graph, which give the bits of each member alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import SGD

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine import batched, optimizers
from unifiednn_core.engine.device import synchronize
from unifiednn_core.engine.events import Ganged, Stepped
from unifiednn_core.engine.fused import Fused, FusedPass, State, double_error, fuse
from unifiednn_core.engine.graphs import CudaRecorder, RecordedLearner
from unifiednn_core.engine.job import Job
from unifiednn_core.engine.learning import EagerLearner, Learned
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.step_program import StepProgram, record, state_of
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.machine.budget import budget_of
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.spec.choices import CLASSIFICATION

_EQUAL = ("momentum", "dampening", "weight_decay", "nesterov", "maximize")
_LARGEST_ERROR = 1e-6


class StackedSgd:
    """Updates members as SGD does. The first update is also made by their own optimizers, which decides."""

    def __init__(self, members: Sequence[SubModel], *, exact: bool):
        """Take members whose gradients are those of one step; with `exact` only the same bits count."""
        self._members, self._exact = list(members), exact
        groups = [group for member in members for group in member.optimizer.param_groups]
        self._settings = groups[0]
        self._ones: list[Tensor] = []
        self._checked = False
        self._possible = len(groups) == len(members) and all(
            type(member.optimizer) is SGD and member.spec.hyperparameters.gradient_clipping is None
            for member in members
        )
        self._possible = self._possible and all(
            all(group[name] == groups[0][name] for name in _EQUAL) and not group["maximize"] for group in groups
        )

    def __call__(self) -> bool:
        """Update the weights; returns False, and does nothing, if each member has to do it by itself."""
        if not self._possible:
            return False
        trained = [[one for one in member.eager.trained if one.grad is not None] for member in self._members]
        parameters: list[Tensor] = [one for own in trained for one in own]
        gradients = [one.grad for one in parameters if one.grad is not None]
        buffers: list[Tensor] = []
        if self._settings["momentum"]:
            found = [
                member.optimizer.state[one].get("momentum_buffer")
                for member, own in zip(self._members, trained, strict=True)
                for one in own
            ]
            buffers = [one for one in found if one is not None]
            if len(buffers) < len(parameters):
                return False  # the first step makes them
        rates = [-_rate(member) for member, own in zip(self._members, trained, strict=True) for _ in own]
        if not self._checked:
            self._check(parameters, gradients, buffers, rates)
            return True
        self._launch(parameters, gradients, buffers, rates)
        for member in self._members:
            member.optimizer._opt_called = True  # type: ignore[attr-defined]  # what an LR scheduler asks for
        return True

    @torch.no_grad()
    def _launch(
        self, parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], rates: list[float]
    ) -> None:
        """Do what `torch.optim.SGD` does; a sum with a factor for each tensor exists only with a product inside."""
        settings = self._settings
        if settings["weight_decay"]:
            gradients = list(torch._foreach_add(gradients, parameters, alpha=settings["weight_decay"]))
        if buffers:
            torch._foreach_mul_(buffers, settings["momentum"])
            torch._foreach_add_(buffers, gradients, alpha=1 - settings["dampening"])
            nesterov = settings["nesterov"]
            gradients = (
                list(torch._foreach_add(gradients, buffers, alpha=settings["momentum"])) if nesterov else buffers
            )
        if len(self._ones) != len(parameters):
            each = len(parameters) // len(self._members)
            self._ones = [torch.ones_like(one) for one in parameters[:each]] * len(self._members)
        torch._foreach_addcmul_(parameters, gradients, self._ones, rates)

    def _check(
        self, parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor], rates: list[float]
    ) -> None:
        """Update by the members' own optimizers, and compare."""
        stacked, held = ([one.detach().clone() for one in some] for some in (parameters, buffers))
        self._launch(stacked, gradients, held, rates)
        for member in self._members:
            hyperparameters, trained = member.spec.hyperparameters, member.eager.trained
            optimizers.update(member.optimizer, trained, hyperparameters, member.steps_done + 1)
        pairs = list(zip((*stacked, *held), (*parameters, *buffers), strict=True))
        self._checked = True
        if self._exact:
            self._possible = all(torch.equal(one, own) for one, own in pairs)
        else:
            self._possible = all(torch.allclose(one, own, _LARGEST_ERROR, _LARGEST_ERROR) for one, own in pairs)


def _rate(member: SubModel) -> float:
    """Learning rate of the next step."""
    rate = float(member.optimizer.param_groups[0]["lr"])
    share = optimizers.share_of_rate(member.spec.hyperparameters, member.steps_done + 1)
    return rate if share == 1.0 else rate * share


MOST_STREAMS = 16
"""Each stream keeps a set of activations and a workspace of cuBLAS in the memory of the recording."""


class Branches:
    """Forward and backward of several sub-models with one training set."""

    def __init__(self, learners: Sequence[EagerLearner], device: torch.device):
        """Take the learner of each sub-model."""
        self._learners, self._device = list(learners), device
        self.module: nn.Module = nn.ModuleList([learner.module for learner in learners])
        self.trained = [parameter for learner in learners for parameter in learner.trained]
        self._streams: list[torch.cuda.Stream] = []

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Learn from one batch that holds those of all sub-models, equally long, one after another.

        Returns losses and correct predictions as tensors with one entry for each.
        """
        [together] = batches
        work = list(zip(self._learners, together.chunk(len(self._learners)), strict=True))
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            learned = self._on_streams(work)
        else:
            learned = [learner([batch]) for learner, batch in work]
        rights = [one.correct for one in learned if one.correct is not None]
        return Learned(torch.stack([one.loss for one in learned]), torch.stack(rights) if rights else None)

    def data(self) -> DataSource:
        """Return the training set on the device."""
        return self._learners[0].data()

    def drop_gradients(self) -> None:
        """Leave no gradients."""
        for learner in self._learners:
            learner.drop_gradients()

    def _on_streams(self, work: Sequence[tuple[EagerLearner, Tensor]]) -> list[Learned]:
        """Fork from the current stream, and join it again.

        Memory that one stream has freed is not used by another one within a recording.
        """
        here = torch.cuda.current_stream(self._device)
        while len(self._streams) < min(MOST_STREAMS, len(work)):
            self._streams.append(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        for stream in self._streams:
            stream.wait_stream(here)
        learned = []
        for place, (learner, batch) in enumerate(work):
            with torch.cuda.stream(self._streams[place % len(self._streams)]):
                learned.append(learner([batch]))
        for stream in self._streams:
            here.wait_stream(stream)
        return learned


LARGEST_ERROR = 1e-5
"""Relative difference of a member's gradients from those of its own step with which a gang is accepted."""
LARGEST_DOUBLE_ERROR = 1e-9
"""The same in double precision, which decides where single precision is not enough to tell."""
Argument = TypeVar("Argument")
Result = TypeVar("Result")
LEAST_GAIN = 1.1
"""Fused steps must be so many times as fast as those of the members one by one."""
TRIAL_STEPS = 3
"""Steps of either kind that are timed; the fastest counts."""
Batches = Mapping[str, list[Tensor]]
"""Batches of the next step, by sub-model."""


class Gang:
    """Sub-models that step together, as long as that computes what each of them would compute alone.

    All calls are made inside the `world` of each member.
    """

    def __init__(
        self, members: Sequence[SubModel], program: StepProgram | None, now_s: Callable[[], float] = time.perf_counter
    ):
        """Form a fast gang of members whose steps run `program`, or an exact one without; `Gang.of` does."""
        self._members, self._program = list(members), program
        self._states = {member.name: state_of(member.module, member.criterion) for member in members}
        self._accepted = False
        self._now_s = now_s
        self._trial_s: dict[bool, list[float]] = {False: [], True: []}
        """Durations of steps one by one, and of fused ones."""
        self.dissolved: str | None = None
        """Why the members do not step together any more, as a sentence."""
        self._whole = False
        """Whether all members took part in the last step with a full batch."""
        self._recorded = self._recordable()
        self._update = StackedSgd(members, exact=program is None)
        self._process = ProcessState(self._members[0].device)

    @classmethod
    def of(
        cls, submodels: Sequence[SubModel], *, fast: bool, now_s: Callable[[], float] = time.perf_counter
    ) -> "Gang | str":
        """Form a gang of sub-models; returns the reason, as a sentence, if they cannot be one."""
        if reason := _obstacle(submodels):
            return reason
        programs, process = [], ProcessState(submodels[0].device)
        for submodel in submodels:
            data, size = submodel.leases[0].use(), submodel.spec.hyperparameters.batch_size
            try:
                programs.append(record(submodel.module, submodel.criterion, *submodel.eager.pair(data, slice(0, size))))
                if fast:
                    batched.require_batched(programs[-1])
            except NoBatchedForm as refused:
                return f"{submodel.name} cannot train fused: {refused}."
            if changed := process.restore():
                return _changes(submodel.name, changed)
            if programs[-1] != programs[0]:
                return f"{submodels[0].name} and {submodel.name} are not the same network."
        return cls(submodels, programs[0] if fast else None, now_s)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(member.name for member in self._members)

    @property
    def gain(self) -> float | None:
        """How many times faster a step is than those of the members one by one; None if that is not known yet."""
        if self._program is None:
            return self._recorded.gain
        alone, fused = self._trial_s[False], self._trial_s[True]
        return min(alone) / max(min(fused), 1e-9) if len(fused) >= TRIAL_STEPS else None

    def drop(self, name: str) -> None:
        """Take a member out, between two steps; the others go on."""
        self._members = [member for member in self._members if member.name != name]
        self._states.pop(name, None)
        self._recorded.free()
        if len(self._members) < 2:
            self.dissolve("Only one member is left.")
        else:
            self._recorded = self._recordable()
            self._update = StackedSgd(self._members, exact=self._program is None)

    def dissolve(self, reason: str) -> None:
        """Let the members step one by one from now on."""
        self.dissolved = self.dissolved or reason
        self._recorded.free()

    def step(self) -> dict[str, Stepped | Exception]:
        """Take one step of each member; returns what it reports, or the error that ends this member alone.

        Members whose batch is smaller than the others' step by themselves.
        """
        if self._program is None or not self._accepted or self.dissolved is not None or self.gain is not None:
            return self._step(fuses=True)
        fuses = len(self._trial_s[True]) < len(self._trial_s[False])
        synchronize(self._members[0].device)
        began_s = self._now_s()
        done = self._step(fuses=fuses)
        synchronize(self._members[0].device)
        self._judge_gain(fuses, self._now_s() - began_s)
        return done

    def _step(self, *, fuses: bool) -> dict[str, Stepped | Exception]:
        batches = {member.name: member.next_batches() for member in self._members}
        found = [(member, batches[member.name]) for member in self._members]
        full = [member for member, own in found if len(own) == 1 and len(own[0]) == _size(member)]
        learned: dict[str, Learned | Exception] = {}
        fused: Fused | None = None
        self._whole = len(full) == len(self._members)
        if fuses and self.dissolved is None and self._whole:
            learned |= self._replayed(batches)
        if fuses and self.dissolved is None and self._program is not None and len(full) > 1 and not learned:
            fused = self._fuse(full, batches)
            if fused is not None and self._accepted:
                learned |= self._handed_out(fused, full)
        one_pass = len(learned) == len(self._members)
        for member in self._members:
            if member.name not in learned:
                learned[member.name] = _attempt(member.learner, batches[member.name])
                if changed := self._process.restore():  # before the next member computes
                    self.dissolve(_changes(member.name, changed))
        if fused is not None and not self._accepted:
            self._judge(fused, full, batches, alone=[learned[member.name] for member in full])
        together = self._whole and self.dissolved is None and one_pass
        finish = partial(SubModel.finish, updated=together and self._update())
        done: dict[str, Stepped | Exception] = {}
        for member in self._members:
            result = learned[member.name]
            done[member.name] = result if isinstance(result, Exception) else _attempt(partial(finish, member), result)
        return done

    # -- recorded steps

    def prepare_recording(self, recorder: CudaRecorder) -> bool:
        """Step in the lane of this recorder from now on; returns whether `record_step` is due before the next step."""
        if self.dissolved is not None or (self._program is not None and self.gain is None):
            return False
        return self._recorded.prepare(recorder)

    def record_step(self, recorder: CudaRecorder) -> None:
        """Record a step of all members as one graph, while nothing else computes.

        An exact gang is dissolved if its recorded step gives other bits, or is not faster; a fast one goes on without.
        """
        data = self._members[0].leases[0]
        needed = len(self._members) * _size(self._members[0])
        samples = torch.arange(data.samples, device=self._members[0].device).repeat(-(-needed // data.samples))
        self._recorded.record(recorder, samples)
        if self._recorded.refused is not None and self._program is None:
            self.dissolve(f"Their steps cannot be one: {self._recorded.refused}.")

    def _recordable(self) -> RecordedLearner:
        learners, device = [member.eager for member in self._members], self._members[0].device
        steps: Branches | FusedPass = Branches(learners, device)
        if self._program is not None:
            steps = FusedPass(self._program, learners, self._ignored, classes=self._has_classes)
        size = len(learners) * _size(self._members[0])
        return RecordedLearner(steps, [size], Randomness(nn.Identity(), 0, device))  # members draw nothing

    def _replayed(self, batches: Batches) -> dict[str, Learned]:
        """Take the step of all members by one launch; empty if it is not recorded, or fails."""
        if not self._recorded.holds_gradients:
            self._recorded.eager_steps += 1
            return {}
        try:
            learned = self._recorded([torch.cat([batches[member.name][0] for member in self._members])])
        except Exception as error:
            self.dissolve(f"A step failed: {error}")
            return {}
        return self._split(learned, self._members)

    def _split(self, learned: Learned, members: Sequence[SubModel]) -> dict[str, Learned]:
        """What each member has learned, from tensors with one entry for each."""
        for member in members:
            member.is_fast = member.is_fast or self._program is not None
        rights = [None] * len(members) if learned.correct is None else learned.correct.unbind()
        each = zip(members, learned.loss.unbind(), rights, strict=True)
        return {member.name: Learned(loss, right) for member, loss, right in each}

    # -- fused steps

    @property
    def _has_classes(self) -> bool:
        return self._members[0].spec.hyperparameters.criterion in CLASSIFICATION

    @property
    def _ignored(self) -> int | None:
        """Label of the data set that does not count; members have one criterion and one data set."""
        return self._members[0].eager.scorer.ignored_in(self._members[0].leases[0])

    def _fuse(self, members: Sequence[SubModel], batches: Batches) -> Fused | None:
        """Do forward and backward fused; None if that fails, which dissolves the gang."""
        try:
            return fuse(self._known_program, self._states_of(members), _fetched(members, batches))
        except Exception as error:  # most likely of one member, whose own step will tell
            self.dissolve(f"A fused step failed: {error}")
            return None

    def _handed_out(self, fused: Fused, members: Sequence[SubModel]) -> dict[str, Learned]:
        fused.hand_out(self._states_of(members))
        return self._split(Learned(fused.losses, fused.correct(self._ignored) if self._has_classes else None), members)

    def _judge(
        self, fused: Fused, members: Sequence[SubModel], batches: Batches, alone: Sequence[Learned | Exception]
    ) -> None:
        """Accept or dissolve the gang, once its members have their own gradients of the same step."""
        if any(isinstance(one, Exception) for one in alone):
            return  # the next step judges
        states = self._states_of(members)
        error = fused.error(states)
        if not error <= LARGEST_ERROR:
            modules = [(member.module, member.criterion) for member in members]
            try:
                exactly = double_error(self._known_program, modules, states, _fetched(members, batches))
            except Exception:  # a network that cannot compute in double precision
                exactly = error
            if not exactly <= LARGEST_DOUBLE_ERROR:
                self.dissolve(f"Fused gradients differ by {error:.1e} of their size from those of each member alone.")
                return
        self._accepted = True

    @property
    def _known_program(self) -> StepProgram:
        if self._program is None:
            raise TypeError("An exact gang has no program.")
        return self._program

    def _judge_gain(self, fused: bool, seconds: float) -> None:
        """Note how long a step took, and dissolve the gang once it is known not to pay."""
        if self._whole:  # else some stepped by themselves
            self._trial_s[fused].append(seconds)
        if self.gain is not None and self.gain < LEAST_GAIN:
            self.dissolve(f"Fused steps are only {self.gain:.2f} times as fast as those of each member alone.")

    def _states_of(self, members: Sequence[SubModel]) -> list[State]:
        return [self._states[member.name] for member in members]


def _changes(name: str, settings: Sequence[str]) -> str:
    return f"{name} changes settings of the process, which its neighbours would compute with: {', '.join(settings)}."


def _obstacle(submodels: Sequence[SubModel]) -> str | None:
    """Why sub-models cannot be a gang, as far as that is known without a step."""
    if len(submodels) < 2:
        return "A gang has at least two members."
    first = submodels[0]
    for submodel in submodels:
        asked, name = submodel.spec.hyperparameters, submodel.name
        if submodel.computing.autocast is not None:
            return f"{name} cannot train in a gang: it computes in {asked.precision}."
        if submodel.techniques.active:
            return f"{name} cannot train in a gang: a technique changes its steps."
        if submodel.spec.placement is not None:
            return f"{name} cannot train in a gang: its network is placed on several devices."
        if submodel.draws:
            return f"{name} cannot train in a gang: it draws random numbers."
        if not submodel.training_step.plain or submodel.outputs > 1:
            return f"{name} cannot train in a gang: its steps are more than a network on one input and a criterion."
        if asked.batch_split > 1 or asked.accumulation_steps > 1:
            return f"{name} cannot train in a gang: its steps have several passes."
        if common(submodel) != common(first):
            return f"{first.name} and {name} differ in batch size, criterion or training data."
        if asked.batch_size > submodel.leases[0].samples:
            return f"{name} cannot train in a gang: it has less than a batch of data."
    return None


def common(submodel: SubModel) -> tuple[object, ...]:
    """What all members have in common."""
    asked = submodel.spec.hyperparameters
    return (
        asked.batch_size,
        asked.criterion,
        asked.criterion_args,
        asked.class_weights,
        submodel.leases[0].sha256,
        submodel.device,
    )


def _size(submodel: SubModel) -> int:
    return submodel.spec.hyperparameters.batch_size


def _fetched(members: Sequence[SubModel], batches: Batches) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets of each member, copied anew: a network may write into them."""
    return [member.eager.pair(member.eager.data(), batches[member.name][0]) for member in members]


def _attempt(work: Callable[[Argument], Result], argument: Argument) -> Result | Exception:
    try:
        return work(argument)
    except Exception as error:  # of one member alone
        return error


MOST_MEMBERS = 64
FREE_SHARE = 0.5
"""Share of the free memory of the device that the steps of a gang may need together."""


class Gangs:
    """Finds equal sub-models of one owner and one priority, and keeps what is known about stepping together."""

    def __init__(
        self, device: torch.device, *, fast: bool, now_s: Callable[[], float], memory: Callable[[], MemoryRoom]
    ):
        """With `fast` operators are fused; without, there are gangs on CUDA only. `memory` is the room of the run."""
        self._device, self._fast, self._now_s, self._memory = device, fast, now_s, memory
        self._gang: Gang | None = None
        """The gang that stepped last."""
        self._told = False
        self._single: set[str] = set()
        """Sub-models that step by themselves for good."""

    @property
    def possible(self) -> bool:
        """Whether there can be any."""
        return self._fast or self._device.type == "cuda"

    def mates(self, first: Job, others: Iterable[Job], working_bytes: Callable[[Job], int | None]) -> list[Job]:
        """Those of `others` that may step together with the first one, as far as memory allows, in their order."""
        if first.name in self._single or first.submodel.draws or first.standing.deadline_s is not None:
            return []  # of those that draw, no two may be inside their worlds at once
        alike = [job for job in others if job.name not in self._single and _kind(job) == _kind(first)]
        found: list[Job] = []
        free_bytes = budget_of(str(self._device)).free_bytes if alike else None
        left_bytes, spare_bytes = int(FREE_SHARE * (free_bytes or 0)), self._memory().spare_bytes
        left_bytes = left_bytes if spare_bytes is None else min(left_bytes, spare_bytes)
        left_bytes -= working_bytes(first) or 0
        for job in alike[: MOST_MEMBERS - 1]:
            size_bytes = working_bytes(job)
            if size_bytes is None or size_bytes > left_bytes:
                break
            left_bytes -= size_bytes
            found.append(job)
        return found

    def of(self, submodels: Sequence[SubModel]) -> Gang | str:
        """The gang of these sub-models, each inside its `world`; the reason, as a sentence, if they cannot be one."""
        names = {submodel.name for submodel in submodels}
        gang = self._gang
        if gang is not None and gang.dissolved is None and names <= set(gang.names):
            for name in set(gang.names) - names:
                gang.drop(name)
            return gang
        if gang is not None:
            gang.dissolve("Others step together.")
        try:
            found = Gang.of(submodels, fast=self._fast, now_s=self._now_s)
        except Exception as error:  # of one network, whose own step will tell
            found = f"Their steps cannot be compared: {error}"
        self._gang, self._told = (found, False) if isinstance(found, Gang) else (None, False)
        if self._gang is None:
            self._single |= names
        return found

    def forget(self, name: str) -> None:
        """Let go of a sub-model that ends or leaves the device."""
        if self._gang is not None and name in self._gang.names:
            self._gang.drop(name)
            self._gang = self._gang if self._gang.dissolved is None else None

    def news(self, gang: Gang) -> Iterator[Ganged]:
        """What is new about a gang, for each member: that it pays, or that it is dissolved."""
        names, others = gang.names, len(gang.names) - 1
        if gang.dissolved is not None and others:
            self._single |= set(names)
            yield from (Ganged(name, others, parted=gang.dissolved) for name in names)
        elif gang.gain is not None and not self._told:
            self._told = True
            yield from (Ganged(name, others, gang.gain) for name in names)


def _kind(job: Job) -> tuple[object, ...]:
    submodel = job.submodel
    return job.standing.owner, job.priority, submodel.parameters, submodel.draws, *common(submodel)
