from concurrent.futures import ThreadPoolExecutor

from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store


def test_the_greatest_figure_is_kept(store: Store) -> None:
    for size_bytes in (100, 300, 200):
        store.measured.remember("lenet", size_bytes)
    assert store.measured.recall(["lenet"]) == {"lenet": 300}


def test_only_what_was_measured_is_recalled(store: Store) -> None:
    store.measured.remember("a", 1)
    store.measured.remember("b", 2)
    assert store.measured.recall(["a", "unknown"]) == {"a": 1}
    assert store.measured.recall([]) == {}


def test_nothing_is_no_measurement(store: Store) -> None:
    store.measured.remember("", 7)
    store.measured.remember("a", 0)
    assert store.measured.recall(["", "a"]) == {}


def test_many_workers_can_tell_at_once_and_another_process_reads_it(home: Home, store: Store) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda size_bytes: store.measured.remember("k", size_bytes), range(1, 21)))
    assert store.measured.recall(["k"]) == {"k": 20}
    assert Store.open(home).measured.recall(["k"]) == {"k": 20}
