"""Two step at once in less memory than the sum of their peaks: the bits and the limit hold, and the rule is needed."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from tests.integration.kit import Networks, Session, dataset, definition, submodel_spec, vanilla
from unifiednn_core.engine.events import Granted, Released
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.measure import measure
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.techniques.live_bytes import LiveBytes

TWO: Networks = [
    ("mlp", submodel_spec("one", epochs=15, batch_size=16)),
    ("mlp", submodel_spec("two", epochs=15, batch_size=16, seed=5)),
]
NAMES = ("one", "two")
ORDER_BYTES = 8 * 1024
"""At most, of the order of an epoch, which is counted and not watched."""
SMALL_BYTES = 256
"""Of losses and indices of a lane that is between two steps; 100 were seen."""


@cache
def need() -> MemoryNeed:
    """Of either of the two."""
    network, spec = TWO[0]
    trial = Trial(spec, definition(network), dataset(), dataset(20, seed=1))
    return measure(trial, dry_run(trial), "cpu", ["train", "test"])


def peak_bytes() -> int:
    return need().gradients_bytes + need().transient_bytes


def limit_bytes() -> int:
    """Room for one peak, and for what the other one needs in the middle of its backward."""
    return peak_bytes() + next(fall.bytes for fall in need().falls if fall.bytes < 0.8 * peak_bytes())


def room() -> MemoryRoom:
    return MemoryRoom(
        working_bytes=dict.fromkeys(NAMES, peak_bytes()),
        falls=dict.fromkeys(NAMES, need().falls),
        company_bytes=limit_bytes() - peak_bytes(),
    )


class Watched:
    """The living tensors of all steps; at its peak, each waits a moment for the other one to reach its own."""

    def __init__(self, patience_s: float) -> None:
        self.most_bytes, self._patience_s = 0, patience_s
        self._now: dict[str, int] = {}
        self._live: dict[str, LiveBytes] = {}
        self._rest: dict[str, int] = {}
        self._lock, self._both = threading.Lock(), threading.Barrier(2)
        self.session: Session

    @contextmanager
    def trace(self, lane: int, name: str, step: int) -> Iterator[None]:
        """Surround a step."""
        if name not in self._live:
            submodel = self.session.hybrid.submodel(name)
            live = self._live[name] = _Noting(self, name)
            live.track([*submodel.module.parameters(), *submodel.module.buffers()])
            for lease in submodel.leases:
                live.track(lease.use().entries.values())
            self._rest[name] = live.current_bytes
        with self._live[name]:
            yield

    def note(self, name: str, current_bytes: int) -> None:
        """Note what a sub-model needs now."""
        size = current_bytes - self._rest[name]
        with self._lock:
            self._now[name] = size
            self.most_bytes = max(self.most_bytes, sum(self._now.values()))
        if size > 0.95 * peak_bytes() and len(self.session.engine.at_work) == 2 and not self._both.broken:
            with suppress(threading.BrokenBarrierError):
                self._both.wait(self._patience_s)


class _Noting(LiveBytes):
    def __init__(self, watched: Watched, name: str) -> None:
        super().__init__()
        self._told, self._name = watched, name

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self._told.note(self._name, self.current_bytes)
        return result


def trained(memory: MemoryRoom, patience_s: float) -> tuple[Session, Watched]:
    watched = Watched(patience_s)
    watched.session = Session(TWO, FirstComeFirstServed(), lanes=2, memory=lambda: memory, trace=watched.trace)
    return watched.session.run(), watched


def in_company(found: Session) -> bool:
    return any(isinstance(report, Released) and report.lane == 2 and report.steps for report in found.reports)


def test_who_climbs_in_turn_keeps_the_limit_and_every_bit() -> None:
    assert 2 * peak_bytes() > limit_bytes()
    found, watched = trained(room(), 0.3)
    assert in_company(found)
    reasons = [report.reason for report in found.reports if isinstance(report, Granted) and report.lane == 2]
    assert all("Only one of them at a time is at the peak of its step." in reason for reason in reasons)
    assert peak_bytes() - ORDER_BYTES <= watched.most_bytes <= limit_bytes() + SMALL_BYTES
    assert found.hashes() == {spec.name: vanilla(network, spec)[0] for network, spec in TWO}


def test_without_falls_or_room_for_one_they_step_one_after_the_other() -> None:
    for falls in ({}, dict.fromkeys(NAMES, need().falls[:1])):
        few = MemoryRoom(working_bytes=room().working_bytes, falls=falls, company_bytes=1)
        assert not in_company(Session(TWO, FirstComeFirstServed(), lanes=2, memory=lambda few=few: few).run())
