import multiprocessing
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.clock import SimulatedClock
from tests.unit.store.claiming import claim
from tests.unit.store.test_store import add_run
from unifiednn_core.base.paths import Home
from unifiednn_core.engine.meters import CheckpointTimer
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.hybrids import Place
from unifiednn_core.store.workers import (
    FUTILE,
    LONGEST_WAIT_S,
    SAME_STEP,
    Berth,
    WorkerIdentity,
    first_period,
    restart_wait_s,
)
from unifiednn_core.views.event_text import event_text

ME = WorkerIdentity(1, 1.0, "boot")


def states(store: Store, run_id: str) -> list[str]:
    run, parts = store.runs.get(run_id)
    return [run.state, *(part.state for part in parts)]


def claim_next(store: Store, device: str = "cpu", claimer: WorkerIdentity | None = None) -> str | None:
    """Place the first private run that waits and asks for this device; returns its id."""
    line = (run.id for run, _ in store.workers.waiting() if run.device == device)
    return next((run_id for run_id in line if store.workers.claim(run_id, berth(device), claimer)), None)


def berth(device: str = "cpu") -> Berth:
    return Berth(device=device, kind=f"kind of {device}", threads=1)


def take_up(store: Store, run_id: str, worker: WorkerIdentity = ME) -> int | None:
    assert claim_next(store) == run_id
    attempt = store.workers.register(run_id, worker)
    store.runs.transition(run_id, None, Event.BEGIN)
    return attempt


def test_a_device_takes_one_run_at_a_time_in_order_of_arrival(store: Store) -> None:
    add_run(store, "second", created_at_s=2)
    add_run(store, "first", created_at_s=1)
    add_run(store, "elsewhere", created_at_s=0, device="cuda:0")
    assert claim_next(store) == "first"
    assert claim_next(store) is None
    assert claim_next(store, "cuda:0") == "elsewhere"
    for event in (Event.BEGIN, Event.COMPLETE):
        store.runs.transition("first", None, event)
    assert claim_next(store) == "second"


def test_a_run_holds_all_devices_that_it_claims(store: Store) -> None:
    for place, name in enumerate(("both", "other", "third")):
        add_run(store, name, created_at_s=place)
    both = replace(berth("cuda:0"), also=("cuda:1",))
    assert store.workers.claim("both", both)
    assert not store.workers.claim("other", berth("cuda:1"))
    assert not store.workers.claim("other", replace(berth("cuda:2"), also=("cuda:0",)))
    assert store.workers.claim("third", berth("cuda:2"))
    for event in (Event.BEGIN, Event.COMPLETE):
        store.runs.transition("both", None, event)
    assert store.workers.claim("other", berth("cuda:1"))


def test_a_paused_run_gives_its_device_and_its_worker_back(store: Store) -> None:
    add_run(store, "a", created_at_s=1)
    add_run(store, "b", created_at_s=2)
    take_up(store, "a")
    store.runs.transition("a", "a", Event.BEGIN)
    for event in (Event.PAUSE, Event.HOLD):
        store.runs.transition("a", None, event)
    assert states(store, "a") == ["paused", "queued", "queued"]
    assert store.hybrids.get("a")[0].worker_pid is None
    assert claim_next(store) == "b"


@pytest.mark.parametrize("shared", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["private", "shared"])
def test_of_many_supervisors_one_gets_the_run(home: Home, shared: bool) -> None:
    store = Store.open(home)
    add_run(store, "only", shared=shared)
    context = multiprocessing.get_context("spawn")
    start, won = context.Event(), context.Queue()
    processes = [context.Process(target=claim, args=(str(home.root), start, won, f"h{place}")) for place in range(4)]
    for process in processes:
        process.start()
    start.set()
    results = [won.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert sorted(results) == [False, False, False, True]
    [(hybrid, members)] = store.hybrids.listed()
    assert (hybrid.device, [member.row.name for member in members]) == ("cpu", ["a", "b"])


def test_one_worker_alone_can_register(store: Store) -> None:
    add_run(store, "r")
    assert store.workers.register("r", ME) is None, "nobody claimed it"
    claim_next(store)
    store.workers.launched("r", ME)
    for other in (replace(ME, pid=2), replace(ME, started_at_s=9.0), replace(ME, boot_id="of another host")):
        assert store.workers.register("r", other) is None
    assert store.workers.register("r", ME) == 1


def test_a_run_whose_worker_died_is_queued_again_at_once(store: Store) -> None:
    add_run(store, "r")
    assert take_up(store, "r") == 1
    store.runs.transition("r", "a", Event.BEGIN)
    store.runs.transition("r", "a", Event.COMPLETE)
    store.workers.lose("r", "It died.", "Again.")
    store.workers.lose("r", "It died.", "Again.")  # a second supervisor saw it, too
    assert states(store, "r") == ["queued", "completed", "queued"]
    assert [event_text(e) for e in store.telemetry.history("r", None).events if e.kind == "recovery"] == [
        "It died. It continues from its last checkpoints."
    ]
    assert take_up(store, "r", WorkerIdentity(2, 2.0, "boot")) == 2


def test_a_run_that_asks_waits_for_a_person(store: Store) -> None:
    add_run(store, "r", recovery="ask")
    take_up(store, "r")
    store.workers.lose("r", "It died.", "Resume it.")
    run, _ = store.runs.get("r")
    assert states(store, "r") == ["interrupted"] * 3
    assert (run.cause, run.remedy) == ("It died.", "Resume it.")
    assert claim_next(store) is None
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


def die(store: Store, clock: SimulatedClock, died_at: str | None) -> None:
    clock.advance(LONGEST_WAIT_S)
    take_up(store, "r")
    store.workers.lose("r", "It died.", "Again.", died_at=died_at)


def test_who_takes_the_worker_down_at_the_same_step_again_and_again_fails_alone(
    store: Store, clock: SimulatedClock
) -> None:
    add_run(store, "r")
    for _ in range(SAME_STEP):
        assert states(store, "r") == ["queued"] * 3
        die(store, clock, "b:step 7")
    assert states(store, "r") == ["queued", "queued", "failed"]
    assert "died at step 7 of b" in (store.runs.get("r")[1][1].cause or "")


def test_the_second_death_at_the_same_operator_is_enough_whatever_the_others_did_meanwhile(
    store: Store, clock: SimulatedClock
) -> None:
    add_run(store, "r")
    marks = ("b:step 7", "b:step 7 in aten.div.Tensor_mode", "b:step 7 in aten.div.Tensor_mode")
    for number, mark in enumerate(marks, start=1):
        assert states(store, "r") == ["queued"] * 3
        die(store, clock, mark)
        assert store.hybrids.get("r")[0].deaths_there == (number if number < 3 else 0)
        store.runs.record_checkpoint("r", "a", name="c", step=number, size_bytes=1)
        assert store.hybrids.get("r")[0].deaths == 0
    assert states(store, "r") == ["queued", "queued", "failed"]
    part = store.runs.get("r")[1][1]
    assert part.cause == "3 workers in a row died at step 7 of b, in the operator aten.div.Tensor_mode. Last: It died."
    assert "aten.div.Tensor_mode" in (part.remedy or "")


@pytest.mark.parametrize(
    "past",
    [
        lambda store: store.runs.record_checkpoint("r", "b", name="c", step=7, size_bytes=1),
        lambda store: store.runs.transition("r", "b", Event.COMPLETE),
    ],
)
def test_a_place_is_forgotten_once_its_sub_model_is_past_it(
    store: Store, clock: SimulatedClock, past: Callable[[Store], object]
) -> None:
    add_run(store, "r")
    die(store, clock, "b:step 7")
    store.runs.record_checkpoint("r", "b", name="c", step=6, size_bytes=1)
    assert store.hybrids.get("r")[0].died_at == "b:step 7"
    take_up(store, "r")
    store.runs.transition("r", "b", Event.BEGIN)
    past(store)
    assert store.hybrids.get("r")[0].died_at is None


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("b:step 7", Place("b", "step 7")),
        ("b:evaluation after step 7 in aten.add.Tensor", Place("b", "evaluation after step 7", "aten.add.Tensor")),
        ("b:loading", Place("b", "loading")),
        ("b" * 300, None),
        ("", None),
        (None, None),
    ],
)
def test_a_mark_is_read_as_it_was_written(text: str | None, mark: Place | None) -> None:
    assert Place.all_of(text) == (() if mark is None else (mark,))
    assert mark is None or (str(mark), mark.step) == (text, 0 if mark.doing == "loading" else 7)


def test_of_two_that_stepped_at_once_the_one_that_is_there_again_is_blamed(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    for others in range(SAME_STEP):
        assert states(store, "r") == ["queued"] * 3
        die(store, clock, f"a:step {others + 3}\nb:step 7")
    assert states(store, "r") == ["queued", "queued", "failed"]


def test_a_sub_model_is_not_blamed_for_kills_at_different_steps(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")
    for step in range(3 * SAME_STEP):
        die(store, clock, f"b:step {step // (SAME_STEP - 1)}")
        store.runs.record_checkpoint("r", "b", name="c", step=step + 1, size_bytes=1)
    assert states(store, "r") == ["queued"] * 3


@pytest.mark.parametrize("marks", [None, "a:step {}"])
def test_workers_that_die_without_a_new_checkpoint_interrupt_the_run(
    store: Store, clock: SimulatedClock, marks: str | None
) -> None:
    add_run(store, "r")
    for number in range(FUTILE):
        assert states(store, "r") == ["queued"] * 3
        die(store, clock, None if marks is None else marks.format(number))
    assert states(store, "r") == ["interrupted"] * 3
    assert f"{FUTILE} workers in a row died without a new checkpoint" in (store.runs.get("r")[0].cause or "")
    store.commands.issue("r", None, Verb.RESUME)
    store.commands.settle_unclaimed()
    for _ in range(FUTILE - 1):
        die(store, clock, None)
    assert states(store, "r") == ["queued"] * 3, "a resume by hand counts from zero"


def test_each_futile_death_doubles_the_wait_and_others_overtake(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r", 1)
    waits = []
    for _ in range(4):
        take_up(store, "r")
        store.workers.lose("r", "It died.", "Again.")
        resume_at_s = store.hybrids.get("r")[0].resume_at_s
        waits.append(None if resume_at_s is None else resume_at_s - clock.utc_s())
        if resume_at_s is not None:
            assert "because its last" in (store.runs.get("r")[0].waits_for or "")
            clock.advance(resume_at_s - clock.utc_s() - 0.1)
            assert claim_next(store) is None
            clock.advance(0.1)
    assert waits == [None, 0.5, 1.0, 2.0]
    assert take_up(store, "r") == 5
    store.workers.lose("r", "It died.", "Again.")
    add_run(store, "later", 2)
    assert claim_next(store) == "later"
    assert restart_wait_s(1000) == LONGEST_WAIT_S


def test_progress_counts_deaths_from_zero(store: Store, clock: SimulatedClock) -> None:
    add_run(store, "r")

    def deaths_after(progress: Callable[[], object]) -> int:
        die(store, clock, None)
        take_up_at = store.hybrids.get("r")[0].deaths
        assert take_up_at > 0
        progress()
        return store.hybrids.get("r")[0].deaths

    checkpoint = {"name": "c", "size_bytes": 1}
    assert deaths_after(lambda: store.runs.record_checkpoint("r", "a", step=3, **checkpoint)) == 0
    assert deaths_after(lambda: store.runs.record_checkpoint("r", "a", step=3, **checkpoint)) == 1, "no new one"
    assert deaths_after(lambda: store.workers.begin("r", {"a": {"steps_done": 5, "checkpoint_step": 5}})) == 0
    store.workers.lose("r", "The host restarted.", "Again.", counts=False)
    assert store.hybrids.get("r")[0].deaths == 0
    assert deaths_after(lambda: [store.runs.transition("r", "a", e) for e in (Event.BEGIN, Event.COMPLETE)]) == 0


@pytest.mark.parametrize("adapts", [True, False], ids=["sooner", "the whole period"])
def test_workers_that_live_much_shorter_than_a_period_make_progress(
    store: Store, clock: SimulatedClock, adapts: bool
) -> None:
    """Each dies after six seconds, and a checkpoint is due after thirty: only a sooner one is ever written."""
    add_run(store, "r")
    done, period = 0, CheckpointSpec(every_s=30.0)
    for _ in range(3 * FUTILE):
        clock.advance(LONGEST_WAIT_S)
        if claim_next(store) is None:
            break
        store.workers.register("r", ME)
        store.runs.transition("r", None, Event.BEGIN)
        deaths = store.hybrids.get("r")[0].deaths
        timer, step = CheckpointTimer(period, clock, first_period(deaths if adapts else 0)), done
        for _ in range(60):
            clock.advance(0.1)
            step += 1
            if timer.is_due(step - done):
                done = step
                store.runs.record_checkpoint("r", "a", name="c", step=done, size_bytes=1)
        store.workers.lose("r", "It died.", "Again.")
    assert (states(store, "r")[0], done > 500) == (("queued", True) if adapts else ("interrupted", False))


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
