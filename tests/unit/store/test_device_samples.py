"""Samples of devices in the store: the last quarter of an hour, whoever writes them."""

from types import SimpleNamespace
from typing import Any

from tests.clock import SimulatedClock
from tests.unit.store.test_store import BERTH, add_run
from unifiednn_core.machine.device_samples import DeviceSample
from unifiednn_core.runtime.device_watch import DeviceWatch
from unifiednn_core.spec.devices import Device
from unifiednn_core.store import Store
from unifiednn_core.store.devices import KEPT_S, DeviceSampleRow, DeviceSamples
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

CPU = Device(name="cpu", type="cpu", host="h", index=0, kind="EPYC", total_bytes=100, threads=1)


def columns(utilisation: float | None, free_bytes: int | None = 25) -> dict[str, Any]:
    return {"device": "cpu", "total_bytes": 100, "free_bytes": free_bytes, "utilisation": utilisation}


def count(store: Store) -> int:
    with store._database.read() as session:
        return session.query(DeviceSampleRow).count()


def test_old_samples_go_and_series_are_means(store: Store, clock: SimulatedClock) -> None:
    for at in range(300):
        clock.advance(4)
        store.device_samples.write([columns(at % 2 / 1, None if at == 299 else 25)])
    assert count(store) <= (KEPT_S + 60) / 4 + 1, "a minute at most is not pruned yet"
    assert store.device_samples.newest()["cpu"].free_bytes is None
    points = store.device_samples.over_time(600.0, 10.0)["cpu"]
    assert 60 <= len(points) <= 61
    assert [point.at_s for point in points] == sorted(point.at_s for point in points)
    assert all(0.3 <= (point.utilisation or 0) <= 0.7 for point in points[1:-1])
    assert {point.used_share for point in points[:-1]} == {0.75}


def test_two_processes_write_one_series(store: Store, clock: SimulatedClock) -> None:
    other = DeviceSamples(store._database)
    for _ in range(10):
        clock.advance(2)
        store.device_samples.write([columns(0.5)])
        clock.advance(0.3)
        other.write([columns(0.9)])
    assert count(store) == 10


class Sampler:
    """Notes what it is asked for."""

    def sample(self, devices: Any, workers: Any, own_bytes: Any) -> tuple[DeviceSample, ...]:
        self.asked = [one.name for one in devices], set(workers), dict(own_bytes)
        return tuple(DeviceSample(device=one.name, free_bytes=1) for one in devices)


def test_the_watch_knows_our_workers_and_what_they_hold(store: Store, clock: SimulatedClock) -> None:
    sampler = Sampler()
    watch = DeviceWatch(store, sampler)  # type: ignore[arg-type]
    watch.sample()
    assert store.device_samples.newest() == {}, "there is no device yet"
    store.devices.write((CPU,))
    add_run(store, "r")
    store.workers.claim("r", BERTH)
    store.workers.register("r", WorkerIdentity(4711, 1.0, "boot"))
    store.hybrids.begin("r")
    memory = [
        {"at_s": at, "source": source, "size_bytes": size}
        for at, source, size in ((1.0, "PSS", 10), (2.0, "PSS", 20), (3.0, "other", 30))
    ]
    store.telemetry.write("r", TelemetryRows(memory=memory, hybrid={"memory_source": "PSS"}))
    watch.sample()
    assert sampler.asked == (["cpu"], {4711}, {"cpu": 20})
    assert store.device_samples.newest()["cpu"].free_bytes == 1


def test_a_watch_looks_seldom_while_nothing_trains_and_at_once_when_something_does(
    store: Store, monkeypatch: Any
) -> None:
    watch = DeviceWatch(store, Sampler())  # type: ignore[arg-type]
    passed, sampled = [0.0], []

    def wait(period_s: float) -> bool:
        passed[0] += period_s
        if passed[0] == 26:
            add_run(store, "r")
            store.workers.claim("r", BERTH)
        return passed[0] > 30

    monkeypatch.setattr(watch, "sample", lambda: sampled.append(passed[0]))
    monkeypatch.setattr(watch, "_stop", SimpleNamespace(wait=wait))
    watch._watch()
    assert sampled == [2, 12, 22, 26, 28, 30]


def test_a_watch_that_fails_goes_on(store: Store, monkeypatch: Any) -> None:
    monkeypatch.setattr("unifiednn_core.runtime.device_watch.PERIOD_S", 0.001)
    calls: list[int] = []
    watch = DeviceWatch(store, Sampler())  # type: ignore[arg-type]

    def failing() -> None:
        calls.append(1)
        if len(calls) == 3:
            watch._stop.set()
        raise OSError("the disk is full")

    monkeypatch.setattr(watch, "sample", failing)
    watch._watch()
    assert len(calls) == 3
