import multiprocessing
import threading
from pathlib import Path

import pytest

from tests.unit.store.test_store import add_run
from unifiednn_core.clock import SimulatedClock
from unifiednn_core.home import Home
from unifiednn_core.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.workers import DEATHS_LIMIT, WorkerIdentity

ME = WorkerIdentity(1, 1.0, "boot")


def states(store: Store, run_id: str) -> list[str]:
    run, parts = store.runs.get(run_id)
    return [run.state, *(part.state for part in parts)]


def take_up(store: Store, run_id: str, worker: WorkerIdentity = ME) -> int | None:
    assert store.workers.claim_next("cpu") == run_id
    attempt = store.workers.register(run_id, worker)
    store.runs.transition(run_id, None, Event.BEGIN)
    return attempt


def test_a_device_takes_one_run_at_a_time_in_order_of_arrival(store: Store) -> None:
    add_run(store, "second", created_at_s=2)
    add_run(store, "first", created_at_s=1)
    add_run(store, "elsewhere", created_at_s=0, device="cuda:0")
    assert store.workers.claim_next("cpu") == "first"
    assert store.workers.claim_next("cpu") is None
    assert store.workers.claim_next("cuda:0") == "elsewhere"
    for event in (Event.BEGIN, Event.COMPLETE):
        store.runs.transition("first", None, event)
    assert store.workers.claim_next("cpu") == "second"


def test_a_paused_run_gives_its_device_and_its_worker_back(store: Store) -> None:
    add_run(store, "a", created_at_s=1)
    add_run(store, "b", created_at_s=2)
    take_up(store, "a")
    store.runs.transition("a", "a", Event.BEGIN)
    for event in (Event.PAUSE, Event.HOLD):
        store.runs.transition("a", None, event)
    assert states(store, "a") == ["paused", "queued", "queued"]
    assert store.runs.get("a")[0].worker_pid is None
    assert store.workers.claim_next("cpu") == "b"


def _claim(root: str, start: threading.Event, won: "multiprocessing.Queue[str | None]") -> None:
    store = Store.open(Home(Path(root)))
    start.wait()
    won.put(store.workers.claim_next("cpu"))


def test_of_many_supervisors_one_gets_the_run(home: Home) -> None:
    add_run(Store.open(home), "only")
    context = multiprocessing.get_context("spawn")
    start, won = context.Event(), context.Queue()
    processes = [context.Process(target=_claim, args=(str(home.root), start, won)) for _ in range(4)]
    for process in processes:
        process.start()
    start.set()
    results = [won.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(results, key=str) == [None, None, None, "only"]


def test_one_worker_alone_can_register(store: Store) -> None:
    add_run(store, "r")
    assert store.workers.register("r", ME) is None, "nobody claimed it"
    store.workers.claim_next("cpu")
    store.workers.launched("r", ME)
    assert store.workers.register("r", WorkerIdentity(2, 1.0, "boot")) is None
    assert store.workers.register("r", ME) == 1


def test_a_run_whose_worker_died_is_queued_again_at_once(store: Store) -> None:
    add_run(store, "r")
    assert take_up(store, "r") == 1
    store.runs.transition("r", "a", Event.BEGIN)
    store.runs.transition("r", "a", Event.COMPLETE)
    store.workers.lose("r", "It died.", "Again.")
    store.workers.lose("r", "It died.", "Again.")  # a second supervisor saw it, too
    assert states(store, "r") == ["queued", "completed", "queued"]
    assert [e.message for e in store.telemetry.history("r", None).events if e.kind == "recovery"] == [
        "It died. It goes on from its last checkpoints."
    ]
    assert take_up(store, "r", WorkerIdentity(2, 2.0, "boot")) == 2


def test_a_run_that_asks_waits_for_a_person(store: Store) -> None:
    add_run(store, "r", recovery="ask")
    take_up(store, "r")
    store.workers.lose("r", "It died.", "Resume it.")
    run, _ = store.runs.get("r")
    assert states(store, "r") == ["interrupted"] * 3
    assert (run.cause, run.remedy) == ("It died.", "Resume it.")
    assert store.workers.claim_next("cpu") is None
    store.runs.transition("r", None, Event.RESUME)
    assert states(store, "r") == ["queued"] * 3
    assert store.runs.get("r")[0].cause is None
    assert take_up(store, "r") == 2


def test_what_was_paused_is_still_paused_after_a_death(store: Store) -> None:
    add_run(store, "r")
    take_up(store, "r")
    for event in (Event.PAUSE, Event.HOLD):
        store.runs.transition("r", "a", event)
    store.workers.lose("r", "It died.", "Again.")
    assert states(store, "r") == ["queued", "paused", "queued"]


def die(store: Store, run_id: str, died_at: str | None) -> None:
    take_up(store, run_id)
    store.workers.lose(run_id, "It died.", "Again.", died_at=died_at)


def test_who_takes_the_worker_down_at_the_same_step_again_and_again_fails_alone(store: Store) -> None:
    add_run(store, "r")
    for _ in range(DEATHS_LIMIT):
        assert states(store, "r") == ["queued"] * 3
        die(store, "r", "b:step 7")
    assert states(store, "r") == ["queued", "queued", "failed"]
    assert "died at step 7 of b" in (store.runs.get("r")[1][1].cause or "")


def test_who_is_only_there_when_somebody_kills_the_worker_is_not_blamed(store: Store) -> None:
    add_run(store, "r")
    for step in range(3 * DEATHS_LIMIT):
        die(store, "r", f"b:step {step // (DEATHS_LIMIT - 1)}")
    assert states(store, "r") == ["queued"] * 3


def test_deaths_before_anybody_trains_end_in_a_question_not_in_a_loop(store: Store) -> None:
    add_run(store, "r")
    for _ in range(DEATHS_LIMIT):
        die(store, "r", None)
    assert states(store, "r") == ["interrupted"] * 3


@pytest.mark.parametrize("whole_run", [True, False])
def test_time_in_pauses_is_no_waiting(store: Store, clock: SimulatedClock, whole_run: bool) -> None:
    add_run(store, "r")
    take_up(store, "r")
    target = None if whole_run else "a"
    store.runs.transition("r", target, Event.PAUSE)
    store.runs.transition("r", target, Event.HOLD)
    clock.advance(10)
    store.runs.transition("r", target, Event.RESUME)
    clock.advance(5)
    _, (a, b) = store.runs.get("r")
    assert (a.paused_s, a.paused_since_s) == (10.0, None)
    assert (b.paused_s, b.paused_since_s) == (10.0 if whole_run else 0.0, None)
