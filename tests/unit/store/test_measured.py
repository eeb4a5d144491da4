from concurrent.futures import ThreadPoolExecutor

from tests.clock import SimulatedClock
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store
from unifiednn_core.store.schema import MeasuredMemoryRow


def row(store: Store, key: str) -> MeasuredMemoryRow:
    with store._database.read() as session:
        return session.get_one(MeasuredMemoryRow, key)


def test_the_greatest_figure_is_kept_with_its_source_and_all_are_counted(store: Store, clock: SimulatedClock) -> None:
    clock.advance(5)
    for size_bytes, source in ((100, "first"), (300, "greatest"), (200, "last")):
        store.measured.remember("lenet", size_bytes, source)
        clock.advance(1)
    found = row(store, "lenet")
    assert (found.size_bytes, found.source, found.times, found.at_s) == (300, "greatest", 3, clock.utc_s() - 1)


def test_only_what_was_measured_is_recalled(store: Store) -> None:
    store.measured.remember("a", 1, "test")
    store.measured.remember("b", 2, "test")
    assert store.measured.recall(["a", "unknown"]) == {"a": 1}
    assert store.measured.recall([]) == {}


def test_nothing_is_no_measurement(store: Store) -> None:
    store.measured.remember("", 7, "test")
    store.measured.remember("a", 0, "test")
    assert store.measured.recall(["", "a"]) == {}


def test_many_workers_can_tell_at_once_and_another_process_reads_it(home: Home, store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda size_bytes: store.measured.remember("k", size_bytes, "test"), range(1, 21)))
    assert (row(store, "k").size_bytes, row(store, "k").times) == (20, 20)
    assert Store.open(home).measured.recall(["k"]) == {"k": 20}
