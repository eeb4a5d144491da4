"""Gangs: equal networks with different hyper-parameters, seeds or data orders, whose steps run fused.

Only forward and backward are fused. The gradients end in the `.grad` of each member, where its own clipping, optimizer
and LR scheduler find them; each member keeps its own weights, running statistics, data order and figures, and nothing
of it shares memory with another one between two steps. Fused sums are rounded differently, so gangs are for the profile
`fast` only.
"""

from collections.abc import Sequence

from torch import Tensor

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.engine import batched
from unifiednn_core.engine.events import Stepped
from unifiednn_core.engine.fused import Fused, State, double_error, fuse
from unifiednn_core.engine.learning import Learned
from unifiednn_core.engine.step_program import StepProgram, record, state_of
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.spec.choices import CLASSIFICATION

LARGEST_ERROR = 1e-5
"""Relative difference of a member's gradients from those of its own step with which a gang is accepted."""
LARGEST_DOUBLE_ERROR = 1e-9
"""The same in double precision, which decides where single precision is not enough to tell."""


class Gang:
    """Sub-models that step together, as long as that computes what each of them would compute alone.

    All calls are made inside the `world` of each member.
    """

    def __init__(self, members: Sequence[SubModel], program: StepProgram):
        """Form a gang of members whose steps run `program`; `Gang.of` finds it."""
        self._members, self._recording = list(members), program
        self._accepted = False
        self.dissolved: str | None = None
        """Why the members do not step fused any more, as a sentence."""

    @classmethod
    def of(cls, submodels: Sequence[SubModel]) -> "Gang | str":
        """Form a gang of sub-models; returns the reason, as a sentence, if they cannot be one."""
        if reason := _obstacle(submodels):
            return reason
        programs = []
        for submodel in submodels:
            data, size = submodel.leases[0].use(), submodel.spec.hyperparameters.batch_size
            batch = submodel.eager.batch(data, slice(0, min(size, data.samples)))
            try:
                programs.append(record(submodel.module, submodel.criterion, *batch))
                batched.require_batched(programs[-1])
            except NoBatchedForm as refused:
                return f"{submodel.name} cannot train fused: {refused}."
            if programs[-1] != programs[0]:
                return f"{submodels[0].name} and {submodel.name} are not the same network."
        return cls(submodels, programs[0])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the members."""
        return tuple(member.name for member in self._members)

    def drop(self, name: str) -> None:
        """Take a member out, between two steps; the others go on."""
        self._members = [member for member in self._members if member.name != name]
        if len(self._members) < 2 and self.dissolved is None:
            self.dissolved = "Only one member is left."

    def step(self) -> dict[str, Stepped | Exception]:
        """Take one step of each member; returns what it reports, or the error that ends this member alone.

        Members whose batch is smaller than the others' step by themselves.
        """
        batches = {member.name: member.next_batches() for member in self._members}
        together = [member for member in self._members if self._fits(batches[member.name])]
        fused = self._fuse(together, batches) if self.dissolved is None and len(together) > 1 else None
        learned: dict[str, Learned | Exception] = {}
        if fused is not None and self._accepted:
            fused.hand_out(_states(together))
            learned |= zip((member.name for member in together), self._learned(fused, together), strict=True)
        for member in self._members:
            if member.name not in learned:
                try:
                    learned[member.name] = member.learner(batches[member.name])
                except Exception as error:
                    learned[member.name] = error
        if fused is not None and not self._accepted:
            self._judge(fused, together, batches, failed=[learned[member.name] for member in together])
        return {member.name: _finished(member, learned[member.name]) for member in self._members}

    def _fits(self, batches: Sequence[Tensor]) -> bool:
        """Whether batches are one batch of the recorded size."""
        return len(batches) == 1 and len(batches[0]) == self._recording.kinds[0][0][0]

    def _fuse(self, members: Sequence[SubModel], batches: dict[str, list[Tensor]]) -> Fused | None:
        """Do forward and backward fused; None if that fails, which dissolves the gang."""
        try:
            return fuse(self._recording, _states(members), _pairs(members, batches))
        except Exception as error:  # most likely of one member, whose own step will tell
            self.dissolved = f"A fused step failed: {error}"
            return None

    def _judge(
        self, fused: Fused, members: Sequence[SubModel], batches: dict[str, list[Tensor]], failed: Sequence[object]
    ) -> None:
        """Accept or dissolve the gang, once its members have their own gradients of the same step."""
        if any(isinstance(one, Exception) for one in failed):
            return  # the next step judges
        states = _states(members)
        error = fused.error(states)
        if not error <= LARGEST_ERROR:
            modules = [(member.module, member.criterion) for member in members]
            try:
                exactly = double_error(self._recording, modules, states, _pairs(members, batches))
            except Exception:  # a network that cannot compute in double precision
                exactly = error
            if not exactly <= LARGEST_DOUBLE_ERROR:
                self.dissolved = f"Fused gradients differ by {error:.1e} of their size from those of each member alone."
                return
        self._accepted = True

    def _learned(self, fused: Fused, members: Sequence[SubModel]) -> list[Learned]:
        hyperparameters = members[0].spec.hyperparameters
        correct: Sequence[Tensor | None] = [None] * len(members)
        if hyperparameters.criterion in CLASSIFICATION:
            ignored = [member.eager.scorer.ignored_in(member.leases[0]) for member in members]
            correct = fused.correct(next((label for label in ignored if label is not None), None))
        return [Learned(loss, right) for loss, right in zip(fused.losses.unbind(), correct, strict=True)]


def _obstacle(submodels: Sequence[SubModel]) -> str | None:
    """Why sub-models cannot be a gang, as far as that is known without a step."""
    if len(submodels) < 2:
        return "A gang has at least two members."
    asked = [submodel.spec.hyperparameters for submodel in submodels]
    for submodel, one in zip(submodels, asked, strict=True):
        if submodel.draws:
            return f"{submodel.name} cannot train fused: it draws random numbers."
        if one.batch_split > 1 or one.accumulation_steps > 1:
            return f"{submodel.name} cannot train fused: its steps have several passes."
        if (one.batch_size, one.criterion, one.criterion_args) != (
            asked[0].batch_size, asked[0].criterion, asked[0].criterion_args,
        ):  # fmt: skip
            return f"{submodels[0].name} and {submodel.name} differ in batch size or criterion."
        if submodel.device != submodels[0].device:
            return f"{submodels[0].name} and {submodel.name} are on different devices."
    return None


def _states(members: Sequence[SubModel]) -> list[State]:
    return [state_of(member.module, member.criterion) for member in members]


def _pairs(members: Sequence[SubModel], batches: dict[str, list[Tensor]]) -> list[tuple[Tensor, Tensor]]:
    """Inputs and targets of each member, copied anew: a network may write into them."""
    return [member.eager.batch(member.leases[0].use(), batches[member.name][0]) for member in members]


def _finished(member: SubModel, learned: Learned | Exception) -> Stepped | Exception:
    if isinstance(learned, Exception):
        return learned
    try:
        return member.finish(learned)
    except Exception as error:
        return error
