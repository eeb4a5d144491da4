"""The queue: the line for all devices, the hybrids that train, and how shared submissions become hybrids."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from unifiednn_core.base.clock import Clock
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.service.line import Line, Outlook
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.roles import Role
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.pooling import Pooling
from unifiednn_core.spec.sharing import PERMISSION
from unifiednn_core.store import Store
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.schema import HybridRow, RunRow, SubModelRow
from unifiednn_core.views.estimates import Estimate
from unifiednn_core.views.hybrid_rows import hybrid_view, plain_reason, shown_names
from unifiednn_core.views.hybrids import HybridFigures, HybridMember, LineEntry, ListedHybrid
from unifiednn_core.views.people import view_of
from unifiednn_core.views.runs import SHOWN_TURNS


class QueueService:
    """Shows the line and the hybrids; sets how shared submissions become hybrids."""

    def __init__(self, guard: Guard, store: Store, clock: Clock, line: Line):
        self.guard = guard
        self._store, self._clock, self._line = store, clock, line

    @permission(Role.VIEWER, audited=False)
    def line(self) -> tuple[LineEntry, ...]:
        """All that waits for a device, in order; a submitter gets only their own entries, with their places."""
        actor, outlook = self.guard.actor, self._line.now()
        waiting = self._store.workers.waiting()
        return tuple(
            _entry(run, parts, place, outlook, names_people=not actor.sees_only_own and actor.sees_files)
            for place, (run, rows) in enumerate(waiting, start=1)
            if not actor.sees_only_own or {run.submitter, *(row.owner for row in rows)} == {actor.id}
            for parts in ([[row] for row in rows] if run.shared else [rows])
        )

    @permission(Role.VIEWER, audited=False)
    def ends(self) -> Mapping[str, Estimate]:
        """When the runs that train now end, by run; unknown ones are left out. A submitter gets only their own."""
        actor, outlook = self.guard.actor, self._line.now()
        going: dict[str, tuple[RunRow, list[SubModelRow]]] = {}
        for _, members in self._store.hybrids.listed():
            for run, row in members:
                going.setdefault(run.id, (run, []))[1].append(row)
        found = {}
        for run, rows in going.values():
            foreign = actor.sees_only_own and {run.submitter, *(row.owner for row in rows)} != {actor.id}
            _, ends = outlook.of(f"{run.id}/{row.name}" for row in rows)
            if ends is not None and not foreign:
                found[run.id] = ends
        return found

    @permission(Role.VIEWER, audited=False)
    def seen(self) -> Mapping[str, tuple[float, bool]]:
        """By run, when this person last saw its failures, and whether they were dismissed then."""
        return self._store.seen.of(self.guard.actor.id)

    @permission(Role.VIEWER, Own.SHARE, audited=False)
    def see(self, run_id: str, *, dismiss: bool = False) -> None:
        """Record that this person has seen the failures of a run; dismissed ones are shown in its page alone."""
        self._store.seen.note(self.guard.actor.id, run_id, dismissed=dismiss)

    @permission(Role.OPERATOR, about="{run} to place {place}")
    def move(self, run: str, place: int) -> int:
        """Move a waiting run to a place in the line, from 1, and return the place; the order of all others stays.

        A place behind the last one is the last one. Raises `NotFound`, and `BadInput` for a run that does not wait.
        """
        _, new = self._store.workers.move(run, place)
        self._line.forget()
        return new

    @permission(Role.OPERATOR, audited=False)
    def hybrids(self) -> tuple[ListedHybrid, ...]:
        """Every hybrid that holds a device, with its members, in order of devices."""
        listed, outlook = self._store.hybrids.listed(), self._line.now()
        memory = self._store.telemetry.memory_now()
        everybody = self._store.hybrids.members([row.id for row, _ in listed])  # those that have ended keep their place
        found = []
        for row, going in listed:
            one = self._listed(row, everybody[row.id], outlook, memory.get(row.id))
            still = {(run.id, part.name) for run, part in going}
            kept = tuple(member for member in one.members if (member.run_id, member.name) in still)
            found.append(replace(one, members=kept))
        return tuple(sorted(found, key=lambda one: (one.device, one.hybrid_id)))

    @permission(Role.OPERATOR, audited=False)
    def hybrid(self, hybrid_id: str) -> HybridFigures:
        """One hybrid, also one that has ended, with its turns and memory; raises `NotFound`."""
        row, members = self._store.hybrids.get(hybrid_id)
        history = self._store.telemetry.of_hybrid(hybrid_id, row.memory_source, last_turns=SHOWN_TURNS)
        size_bytes = history.memory[-1][1] if history.memory else None
        listed = self._listed(row, members, self._line.now(), size_bytes)
        return HybridFigures(hybrid=listed, view=hybrid_view(row, listed, members, history, self._clock.utc_s()))

    @permission(Role.OPERATOR, audited=False)
    def pooling(self) -> Pooling:
        """How shared submissions become hybrids."""
        return self._store.hybrids.pooling()

    @permission(Role.OPERATOR, about="{pooling.mode}")
    def set_pooling(self, pooling: Pooling) -> None:
        """Set how shared submissions become hybrids from now on; raises `BadInput` for an unknown policy.

        Hybrids that train stay as they are.
        """
        asked = pooling.hybrid.policy
        policy_named(asked.name, asked.parameters)
        self._store.hybrids.set_pooling(pooling, self.guard.actor.label)
        self._line.forget()

    def _listed(
        self, hybrid: HybridRow, members: Sequence[Resident], outlook: Outlook, memory_bytes: int | None
    ) -> ListedHybrid:
        beat_s = hybrid.heartbeat_at_s
        asked, names = hybrid.settings.get("policy", {}), shown_names(members)
        return ListedHybrid(
            hybrid_id=hybrid.id,
            shared=hybrid.shared,
            mode=hybrid.mode,
            device=hybrid.device or "",
            also=tuple(hybrid.also),
            policy=str(asked.get("name", "fcfs")),
            now_reason=hybrid.now_reason and plain_reason(hybrid.now_reason, names),
            since_s=hybrid.launched_at_s,
            memory_bytes=memory_bytes,
            peak_memory_bytes=hybrid.peak_memory_bytes,
            heartbeat_age_s=None if beat_s is None else max(0.0, self._clock.utc_s() - beat_s),
            members=tuple(_member(place, member, names, outlook) for place, member in enumerate(members)),
        )


def _member(place: int, member: Resident, names: Mapping[str, str], outlook: Outlook) -> HybridMember:
    run, row = member
    return view_of(
        HybridMember,
        row,
        run_id=run.id,
        run_name=run.name,
        shown=names[f"{run.id}/{row.name}"],
        number=place,
        state=State(row.state),
        holds_device=row.lane is not None,
        ends_in_s=None if State(row.state) in ENDED else outlook.ends_in_s.get(f"{run.id}/{row.name}"),
    )


def _entry(run: RunRow, parts: Sequence[SubModelRow], place: int, outlook: Outlook, *, names_people: bool) -> LineEntry:
    still = [row for row in parts if State(row.state) not in ENDED] or list(parts)
    keys = [f"{run.id}/{row.name}" for row in still]
    forbidden = outlook.fleet.forbidden.get(run.id)
    if forbidden is not None and forbidden.startswith(PERMISSION) and not names_people:
        forbidden = PERMISSION
    starts_in_s, ends_in_s = outlook.of(keys)
    return LineEntry(
        run_id=run.id,
        name=run.name,
        mode=run.mode,
        submodels=tuple(row.name for row in still),
        owner=still[0].owner if names_people else "",
        place=place,
        asked=run.device,
        submitted_at_s=run.created_at_s,
        waits_for=forbidden or next((outlook.waits[key] for key in keys if key in outlook.waits), None),
        starts_in_s=starts_in_s,
        ends_in_s=ends_in_s,
    )
