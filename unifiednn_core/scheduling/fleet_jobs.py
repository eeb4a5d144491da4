"""What the sub-models of a simulated fleet still have to do: really, and as placement expects it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from unifiednn_core.scheduling.line import FleetView, Placed, Waiting
from unifiednn_core.scheduling.simulator import SimulatedJob

NEVER_S = 1e9
"""Duration of those whose seconds are unknown."""
_USUAL_S = 60.0  # where nothing is known of anybody
_EPOCHS = 10  # of a job of which only the seconds are known


@dataclass(slots=True)
class FleetMember:
    """A sub-model in a simulated hybrid."""

    entry: Waiting
    key: str
    job: SimulatedJob
    moved_at_s: float | None
    expected: float | None
    """Seconds that placement expects for one that is really left; None if it knows none."""
    joined: bool = False
    leaving: bool = False

    def seen(self, left_s: float | None) -> Placed:
        """What placement sees of it; `left_s` are really left, by default those of its job."""
        return Placed(
            key=self.key,
            run_id=self.entry.run_id,
            devices=self.entry.devices,
            people=self.entry.people,
            need=self.entry.need,
            left_s=self.expected_s(_left_s(self.job) if left_s is None else left_s),
            moved_at_s=self.moved_at_s,
            leaving=self.leaving,
        )

    def expected_s(self, left_s: float) -> float | None:
        """What placement expects of what is really left."""
        return None if self.expected is None else left_s * self.expected


class FleetJobs:
    """The jobs behind keys. Where none is given, what placement expects is true."""

    def __init__(self, view: FleetView, jobs: Mapping[str, SimulatedJob]):
        placed = (member.left_s for hybrid in view.hybrids for member in hybrid.members)
        known_s = [left_s for left_s in (*placed, *(entry.left_s for entry in view.waiting)) if left_s]
        self._usual_s = sum(known_s) / len(known_s) if known_s else _USUAL_S
        self._jobs = dict(jobs)
        self._unknown: set[str] = set()

    def knows(self, key: str) -> bool:
        """Whether it is known how long this one trains."""
        return key not in self._unknown

    def member(self, entry: Waiting, key: str, moved_at_s: float | None) -> FleetMember:
        """One of an entry that is placed."""
        whole_s = sum(_left_s(self._job(entry, one)) for one in entry.keys)
        expected = None if entry.left_s is None else entry.left_s / whole_s if whole_s > 0 else 1.0
        return FleetMember(entry, key, self._job(entry, key), moved_at_s, expected)

    def keep(self, jobs: Iterable[SimulatedJob]) -> None:
        """Note what is left of jobs."""
        self._jobs.update({job.name: job for job in jobs})

    def entry(self, members: Sequence[FleetMember]) -> Waiting:
        """What waits for a place again, of one entry."""
        lefts_s = [member.expected_s(_left_s(self._jobs[member.key])) for member in members]
        known_s = [left_s for left_s in lefts_s if left_s is not None]
        keys = tuple(member.key for member in members)
        return replace(members[0].entry, keys=keys, left_s=sum(known_s) if len(known_s) == len(members) else None)

    def _job(self, entry: Waiting, key: str) -> SimulatedJob:
        known = self._jobs.get(key)
        if known is None:
            left_s = self._usual_s if entry.left_s is None else max(entry.left_s / len(entry.keys), 1e-3)
            steps = max(1, round(left_s / _EPOCHS))
            epochs = _EPOCHS if entry.left_s is not None else ceil(NEVER_S / left_s) * _EPOCHS
            step_s = left_s / (steps * _EPOCHS)
            known = SimulatedJob(name=key, epochs=epochs, steps_per_epoch=steps, seconds_per_step=step_s)
            self._jobs[key] = known
            if entry.left_s is None:
                self._unknown.add(key)
        return known


def _left_s(job: SimulatedJob) -> float:
    """Seconds of service left."""
    return (job.epochs * job.steps_per_epoch - job.steps_done) * job.seconds_per_step
