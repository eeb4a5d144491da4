"""Which sub-models of a run may step together, and the gangs that they have formed."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from unifiednn_core.engine.events import Ganged
from unifiednn_core.engine.gang import Gang, common
from unifiednn_core.engine.job import Job
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.machine.budget import budget_of
from unifiednn_core.scheduling.company import MemoryRoom

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
