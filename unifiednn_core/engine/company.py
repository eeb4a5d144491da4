"""Who may step beside the policy's choice in this engine, by the rules of `scheduling.company`."""

from collections.abc import Callable, Mapping

from unifiednn_core.engine.job import Job, Turn
from unifiednn_core.engine.meters import TurnMeter
from unifiednn_core.engine.roster import Roster
from unifiednn_core.scheduling.company import Member, Rates, obstacle, working_limit


class Company:
    """Admits company, makes room for the policy's choice, and parts those whose company does not pay."""

    def __init__(
        self,
        roster: Roster,
        rates: Rates,
        meter: TurnMeter,
        *,
        working_bytes: Callable[[str], int | None],
        margin_bytes: int | None,
        alone_until: Mapping[str, int],
    ):
        """`working_bytes` forecasts gradients and temporary memory of the steps of a sub-model.

        Company may add `margin_bytes` to the largest. Sub-models in `alone_until` have no company up to that step.
        """
        self._roster, self._rates, self._meter = roster, rates, meter
        self._forecast, self._margin_bytes, self._alone_until = working_bytes, margin_bytes, alone_until

    def may_join(self, job: Job, now_s: float) -> bool:
        """Whether a sub-model may step beside those at work."""
        roster = self._roster
        group = roster.group | {job.name}
        if any(self.is_suspect(roster.jobs[name]) for name in group) or self._rates.rests(group, now_s):
            return False
        if any(self.is_unmeasured(turn.job) for turn in roster.turns.values()):
            return False  # only its speed alone tells later whether company pays
        at_work = [self._member(turn.job) for turn in roster.turns.values()]
        return obstacle(self._member(job), at_work, self._limit_bytes) is None

    def reason(self, job: Job) -> str:
        """Why it may, as a sentence for the operator."""
        beside, gain = " and ".join(sorted(self._roster.group)), self._rates.gain(self._roster.group | {job.name})
        told = "" if gain is None else f" Together they make {gain:.1f} times the progress of one alone."
        return f"There is room for {job.name} beside {beside}.{told}"

    def make_room(self, job: Job) -> bool:
        """Send away those who cannot stay beside the policy's choice; whether there is room for it already."""
        if not self._roster.turns:
            return True
        room, beside = True, [self._member(job)]
        for turn in sorted(self._roster.turns.values(), key=lambda turn: turn.lane):
            found = obstacle(self._member(turn.job), beside, self._limit_bytes)
            if found is None and not self.is_suspect(job):
                beside.append(self._member(turn.job))
            else:
                turn.leaves, room = found or f"{job.name} trains alone for now.", False
        return room

    def judge(self, turn: Turn, now_s: float) -> None:
        """Part those at work if their company does not pay: the one that came last leaves."""
        roster, first, news = self._roster, self._roster.first, turn.job.timer.tell()
        if len(roster.group) < 2 or first is None or not news:
            return
        newest = max((turn for turn in roster.turns.values() if turn is not first), key=lambda turn: turn.start_s)
        found = self._rates.objection(roster.group, self._member(first.job), self._member(newest.job))
        if found is not None and newest.stays:
            self._rates.rest(roster.group, now_s)
            newest.leaves = found

    def is_unmeasured(self, job: Job) -> bool:
        """Whether the speed of a sub-model alone has to be measured; a CPU tells it in company, too."""
        return not self._rates.cpu_tells and job.timer.seconds_per_step is None

    def is_suspect(self, job: Job) -> bool:
        """Whether an earlier worker died near here, and nobody else should be suspected at a second death."""
        return job.submodel.steps_done < self._alone_until.get(job.name, 0)

    def working_bytes(self, job: Job) -> int | None:
        """Gradients and temporary memory of its steps. What was measured replaces the forecast where it is more."""
        forecast = self._forecast(job.name)
        if job.name in self._roster.turns:  # its measurement may still go on
            return forecast
        measured = self._meter.transient_bytes(job.name, job.submodel.footprint)
        return max((size for size in (forecast, measured) if size is not None), default=None)

    @property
    def _limit_bytes(self) -> int:
        forecasts = [self._forecast(name) for name in self._roster.jobs]
        return working_limit([size for size in forecasts if size is not None], self._margin_bytes)

    def _member(self, job: Job) -> Member:
        return Member(
            name=job.name,
            priority=job.priority,
            working_bytes=self.working_bytes(job),
            shares_randomness=job.submodel.shares_randomness,
        )
