"""Shared hybrids: the sub-models of two people in one, from the line to the end, through moves, pauses and deaths."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import event

from tests.clock import SimulatedClock
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import ME, berth, states
from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import HybridSettings
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.events import Code
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.schema import HybridRow
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import FIRST_WAIT_S, FUTILE, LONGEST_WAIT_S

SETTINGS = HybridSettings()
OF_ANN, OF_BOB = [("ann", "a"), ("ann", "b")], [("bob", "c")]
KEYS = ["ann/a", "ann/b", "bob/c"]


def add_both(store: Store) -> None:
    """Queue a run of two sub-models of Ann's, and one of Bob's with one."""
    add_run(store, "ann", 1, shared=True, owners=("ann", "ann"))
    add_run(store, "bob", 2, shared=True, owners=("bob",), names=("c",))


def work(store: Store, hybrid_id: str) -> None:
    """What a worker does at a tick: it lets newcomers in, and those go that are to leave."""
    hybrid, members = store.hybrids.get(hybrid_id)
    if hybrid.worker_pid is None:
        store.workers.register(hybrid_id, ME, launched_at_s=5.0)
        begun = set()
    else:
        begun = {member.key for member in members if State(member.row.state) not in (State.QUEUED,)}
    leaves = dict(store.hybrids.open_members(hybrid_id))
    for member in members:
        if member.key not in leaves:
            continue
        if leaves[member.key]:
            store.workers.left(hybrid_id, member.key)
        elif member.key not in begun:
            store.workers.begin(hybrid_id, {member.key: {"steps_done": member.row.checkpoint_step or 0}})
            if State(member.row.state) is State.QUEUED:
                store.runs.transition(member.run.id, member.row.name, Event.BEGIN)


@pytest.fixture
def training(store: Store) -> Store:
    """A store in which hybrid "h" trains all three."""
    add_both(store)
    assert store.workers.open_shared("h", [*OF_ANN, *OF_BOB], berth(), SETTINGS)
    work(store, "h")
    return store


def placed(store: Store) -> dict[str, str | None]:
    rows = [row for run in ("ann", "bob") for row in store.runs.get(run)[1]]
    return {row.name: row.hybrid_id for row in rows}


def test_from_the_line_to_the_end(store: Store, clock: SimulatedClock) -> None:
    add_both(store)
    assert [(run.id, [row.name for row in rows]) for run, rows in store.workers.waiting()] == [
        ("ann", ["a", "b"]),
        ("bob", ["c"]),
    ]
    assert store.workers.open_shared("h", OF_ANN, berth(), SETTINGS)
    assert (states(store, "ann"), states(store, "bob")) == (["starting", "queued", "queued"], ["queued", "queued"])
    assert [run.id for run, _ in store.workers.waiting()] == ["bob"]
    assert not store.workers.open_shared("i", OF_BOB, berth(), SETTINGS), "the device is held"
    work(store, "h")
    assert states(store, "ann") == ["running"] * 3
    clock.advance(7)
    assert not store.workers.join("h", OF_BOB, beside=OF_ANN[:1]), "it was decided for other members"
    assert store.workers.join("h", OF_BOB, beside=OF_ANN)
    assert not store.workers.join("h", OF_BOB, beside=OF_ANN), "it is placed"
    bob = store.runs.get("bob")[0]
    assert (bob.state, bob.launched_at_s, bob.started_at_s) == ("starting", 1007.0, None)
    clock.advance(1)
    work(store, "h")
    assert (states(store, "bob"), store.runs.get("bob")[0].started_at_s) == (["running"] * 2, 1008.0)
    assert sorted(member.key for member in store.hybrids.get("h")[1]) == KEYS
    for run, name in (*OF_ANN, *OF_BOB):
        assert not store.workers.close("h")
        store.runs.transition(run, name, Event.COMPLETE)
    assert (states(store, "ann"), states(store, "bob")) == (["completed"] * 3, ["completed"] * 2)
    assert not store.workers.join("h", OF_BOB, beside=[]), "nobody else is in there, and it is about to end"
    assert store.workers.close("h")
    assert (store.workers.held(), store.hybrids.listed()) == ([], [])
    assert not store.workers.join("h", OF_BOB, beside=OF_ANN) and not store.workers.restart("h")


def test_who_leaves_waits_for_a_place_and_keeps_what_it_trained(training: Store) -> None:
    training.runs.record_checkpoint("bob", "c", name="c", step=4, size_bytes=1)
    training.workers.ask_to_leave("h", OF_BOB, "cuda:0 was free")
    assert dict(training.hybrids.open_members("h"))["bob/c"] and states(training, "bob") == ["running"] * 2
    work(training, "h")
    assert (states(training, "bob"), placed(training)) == (["queued"] * 2, {"a": "h", "b": "h", "c": None})
    told = training.telemetry.history("bob", None).events[-2]
    assert (told.code, told.fields["device"], told.fields["reason"]) == (Code.LEFT, "cpu", "cuda:0 was free")
    assert training.workers.open_shared("i", OF_BOB, berth("cuda:0"), SETTINGS)
    work(training, "i")
    run, [row] = training.runs.get("bob")
    assert (run.state, row.attempt, row.steps_done, row.device_kind) == ("running", 2, 4, "kind of cuda:0")
    training.workers.left("h", "bob/c")  # told twice
    assert placed(training)["c"] == "i"


@pytest.mark.parametrize("target", [None, "a"])
def test_a_pause_is_to_leave_and_a_resume_to_wait_again(training: Store, target: str | None) -> None:
    training.commands.issue("ann", target, Verb.PAUSE)
    training.commands.settle_unclaimed()
    assert states(training, "ann")[0 if target is None else 1] == "pausing"
    work(training, "h")
    expected = ["paused", "queued", "queued"] if target is None else ["running", "paused", "running"]
    assert (states(training, "ann"), training.commands.open("ann")) == (expected, [])
    assert [run.id for run, _ in training.workers.waiting()] == [], "a paused run waits for nothing"
    assert states(training, "bob") == ["running"] * 2
    training.commands.issue("ann", target, Verb.RESUME)
    assert training.commands.open("ann") == [], "it waits again from now on"
    assert [len(rows) for _, rows in training.workers.waiting()] == [2 if target is None else 1]


def test_what_was_paused_alone_stays_paused_when_its_run_goes_on(training: Store) -> None:
    training.commands.issue("ann", "a", Verb.PAUSE)
    work(training, "h")
    training.commands.issue("ann", None, Verb.PAUSE)
    work(training, "h")
    training.commands.issue("ann", None, Verb.RESUME)
    assert states(training, "ann") == ["queued", "paused", "queued"]
    training.commands.issue("ann", "b", Verb.PAUSE)
    assert states(training, "ann") == ["paused"] * 3, "all of it rests"
    training.commands.issue("ann", None, Verb.RESUME)
    assert states(training, "ann") == ["queued"] * 3


def test_one_that_waits_is_paused_at_once_while_another_of_its_run_trains(store: Store) -> None:
    add_both(store)
    store.workers.open_shared("h", OF_ANN[:1], berth(), SETTINGS)
    work(store, "h")
    store.commands.issue("ann", "b", Verb.PAUSE)
    assert (states(store, "ann"), store.commands.open("ann")) == (["running", "running", "paused"], [])


def test_a_death_queues_the_runs_of_all_and_the_same_hybrid_goes_on(training: Store, clock: SimulatedClock) -> None:
    training.workers.lose("h", "It died.", "Resume it.")
    assert (states(training, "ann"), states(training, "bob")) == (["queued"] * 3, ["queued"] * 2)
    assert set(placed(training).values()) == {"h"} and training.workers.waiting() == []
    assert training.workers.restart("h") and not training.workers.restart("h")
    assert states(training, "bob")[0] == "starting"
    work(training, "h")
    assert (states(training, "ann"), training.runs.get("bob")[1][0].attempt) == (["running"] * 3, 2)
    training.workers.lose("h", "It died.", "Resume it.")
    assert not training.workers.restart("h"), "it backs off"
    clock.advance(FIRST_WAIT_S)
    assert training.workers.restart("h")


def test_a_dead_hybrid_whose_device_is_gone_sends_its_members_back_to_the_line(training: Store) -> None:
    training.workers.lose("h", "It died.", "Resume it.")
    training.workers.give_back("h")
    assert set(placed(training).values()) == {None}
    assert [run.id for run, _ in training.workers.waiting()] == ["ann", "bob"]
    assert not training.workers.restart("h") and training.hybrids.listed() == []


def test_futile_deaths_interrupt_the_runs_of_all_until_a_person_resumes(training: Store, clock: SimulatedClock) -> None:
    for _ in range(FUTILE - 1):
        training.workers.lose("h", "It died.", "Resume it.")
        clock.advance(LONGEST_WAIT_S)
        assert training.workers.restart("h")
        work(training, "h")
    training.runs.transition("ann", "a", Event.FAIL)
    training.workers.lose("h", "It died.", "Resume it.")
    assert states(training, "bob") == ["interrupted"] * 2
    assert states(training, "ann") == ["interrupted", "failed", "interrupted"], "what was interrupted can be resumed"
    cause = training.runs.get("bob")[0].cause or ""
    assert cause.startswith(f"{FUTILE} workers in a row died") and training.hybrids.listed() == []
    for run in ("ann", "bob"):
        training.commands.issue(run, None, Verb.RESUME)
    assert [(run.id, len(rows)) for run, rows in training.workers.waiting()] == [("ann", 1), ("bob", 1)]
    assert training.workers.open_shared("i", OF_BOB, berth(), SETTINGS)


def test_who_was_to_move_moves_although_the_worker_died_first(training: Store) -> None:
    training.workers.ask_to_leave("h", OF_BOB, "cuda:0 was free")
    training.workers.lose("h", "It died.", "Resume it.")
    assert (placed(training)["c"], states(training, "bob")) == (None, ["queued"] * 2)
    assert [run.id for run, _ in training.workers.waiting()] == ["bob"]


def test_a_stop_goes_with_its_sub_models_into_the_next_hybrid(training: Store) -> None:
    training.workers.ask_to_leave("h", OF_ANN[1:], "cuda:0 was free")
    work(training, "h")
    training.commands.issue("ann", None, Verb.STOP)
    assert (states(training, "ann"), placed(training)) == (["stopping"] * 3, {"a": "h", "b": None, "c": "h"})
    training.workers.open_shared("i", OF_ANN[1:], berth("cuda:0"), SETTINGS)
    for hybrid_id, name in (("h", "a"), ("i", "b")):
        assert [command.verb for command in training.commands.open_in(hybrid_id)] == [Verb.STOP]
        training.runs.transition("ann", name, Event.HALT)
    assert (states(training, "ann"), training.commands.open("ann")) == (["stopped"] * 3, [])


# -- any order of events


OPERATIONS = st.one_of(
    st.tuples(st.just("place"), st.sampled_from(("cpu", "cuda:0")), st.integers(1, 3)),
    st.tuples(
        st.sampled_from(("work", "restart", "lose", "close", "back", "finish", "fail", "move")),
        st.sampled_from(("cpu", "cuda:0")),
        st.integers(0, 2),
    ),
    st.tuples(
        st.sampled_from((Verb.PAUSE, Verb.RESUME, Verb.STOP, Verb.RETRY)),
        st.sampled_from((("ann", None), ("ann", "a"), ("ann", "b"), ("bob", None), ("bob", "c"))),
        st.just(0),
    ),
    st.tuples(st.just("settle"), st.just(""), st.just(0)),
)


class Fleet:
    """A store, and what supervisors, workers and people do to it."""

    def __init__(self, store: Store, clock: SimulatedClock):
        self.store, self.clock, self.made = store, clock, 0

    def on(self, device: str) -> tuple[HybridRow, list[Resident]] | None:
        return next((entry for entry in self.store.hybrids.listed() if entry[0].device == device), None)

    def place(self, device: str, most: int) -> None:
        waiting = [(run.id, row.name) for run, rows in self.store.workers.waiting() for row in rows][:most]
        there = self.on(device)
        if there is not None:
            beside = [(run.id, row.name) for run, row in there[1]]
            self.store.workers.join(there[0].id, waiting, beside=beside)
            return
        self.made += 1
        self.store.workers.open_shared(f"h{self.made}", waiting, berth(device), SETTINGS)

    def act(self, operation: tuple[str, object, int]) -> None:
        what, where, number = operation
        self.clock.advance(LONGEST_WAIT_S)
        workers, runs = self.store.workers, self.store.runs
        if isinstance(where, tuple):
            with suppress(IllegalTransition, BadInput):
                self.store.commands.issue(where[0], where[1], Verb(what))
            return
        if what == "settle":
            self.store.commands.settle_unclaimed()
        elif what == "place":
            self.place(str(where), number)
        elif (there := self.on(str(where))) is not None:
            hybrid, members = there
            own = members[number % len(members)] if members else None
            match what:
                case "work" if hybrid.heartbeat_at_s is not None:
                    work(self.store, hybrid.id)
                case "restart":
                    workers.restart(hybrid.id)
                case "lose":
                    workers.lose(
                        hybrid.id, "It died.", "Resume it.", died_at=None if own is None else f"{own.key}:step 7"
                    )
                case "close":
                    workers.close(hybrid.id)
                case "back" if hybrid.heartbeat_at_s is None:
                    workers.give_back(hybrid.id)
                case "move" if own is not None:
                    workers.ask_to_leave(hybrid.id, [(own.run.id, own.row.name)], "it is better elsewhere")
                case "finish" | "fail" if own is not None and hybrid.worker_pid is not None:
                    state = State(own.row.state)
                    if state in (State.RUNNING, State.STOPPING):
                        ends = Event.HALT if state is State.STOPPING else Event.COMPLETE
                        runs.transition(own.run.id, own.row.name, Event.FAIL if what == "fail" else ends)

    def check(self) -> None:
        """Raise unless rows of runs, sub-models and hybrids agree."""
        held = self.store.workers.held()
        assert len({hybrid.device for hybrid in held}) == len(held), "one hybrid on a device"
        live = {hybrid.id for hybrid in held}
        going = {hybrid.id for hybrid, _ in self.store.hybrids.listed()}
        for run_id in ("ann", "bob"):
            run, rows = self.store.runs.get(run_id)
            still = [row for row in rows if State(row.state) not in ENDED]
            here = [row for row in still if row.hybrid_id in live]
            assert (State(run.state) in ENDED) == (not still), "a run ends with its sub-models"
            assert {row.hybrid_id for row in still} <= {None, *going}, "an open sub-model is in no hybrid that ended"
            if run.state in ("queued", "paused"):
                assert not here
            if run.state in ("starting", "running", "pausing"):
                assert here
            for row in still:
                assert row.state != "paused" or row.hybrid_id is None
                assert row.leaving is None or row.hybrid_id in going, "who leaves has a hybrid that lets it go"

    def finish(self) -> None:
        """Let people resume all, and supervisors and workers do their work, until all has ended; in 20 rounds."""
        for _ in range(20):
            for target in (("ann", None), ("bob", None), ("ann", "a"), ("ann", "b"), ("bob", "c")):
                self.act((Verb.RESUME, target, 0))
            self.act(("settle", "", 0))
            for device in ("cpu", "cuda:0"):
                for what in ("restart", "work", "finish", "close", "place", "work"):
                    self.act((what, device, 3))
                self.check()
            if all(State(self.store.runs.get(run)[0].state) in ENDED for run in ("ann", "bob")):
                return
        raise AssertionError([states(self.store, run) for run in ("ann", "bob")])


@given(st.lists(OPERATIONS, max_size=15))
@example([("place", "cpu", 3), ("work", "cpu", 0), ("lose", "cpu", 0), ("move", "cpu", 0)])
def test_after_any_order_of_events_all_rows_agree_and_everything_can_end(
    operations: list[tuple[str, object, int]],
) -> None:
    with TemporaryDirectory() as folder:
        clock = SimulatedClock(1000.0)
        store = Store(Path(folder) / "store.db", clock)
        engine = store._database._engine
        event.listen(engine, "connect", lambda link, _: link.execute("PRAGMA synchronous = OFF"))  # no power cuts here
        engine.dispose()
        add_both(store)
        fleet = Fleet(store, clock)
        for operation in operations:
            fleet.act(operation)
            fleet.check()
        fleet.finish()
        for run in ("ann", "bob"):
            assert store.commands.open(run) == [], "every command was answered"
        store.close()


def test_turns_count_from_the_start_of_each_run_and_memory_is_its_own(store: Store, clock: SimulatedClock) -> None:
    add_both(store)
    store.workers.open_shared("h", OF_ANN, berth(), SETTINGS)
    store.hybrids.begin("h")  # at 1000
    clock.advance(2)
    work(store, "h")
    assert store.workers.join("h", OF_BOB, beside=OF_ANN)
    clock.advance(8)
    work(store, "h")
    turn = {"attempt": 1, "steps": 3, "reason": "", "lane": 1, "start_s": 11.0, "end_s": 14.0}
    weights = {"ann/a": 3, "ann/b": 4, "bob/c": 50}
    strata = [{"at_s": 12.0, "source": "PSS", "total_bytes": 999, "strata": {"context": 7, "weights": weights}}]
    columns = {key: {"turn_since_s": 20.0, "lane": 2, "turn_reason": ""} for key in KEYS}
    memory = [{"at_s": 12.0, "source": "PSS", "size_bytes": 999}]
    turns = [{"submodel": key, **turn} for key in KEYS]
    store.telemetry.write("h", TelemetryRows(slices=turns, strata=strata, memory=memory, submodels=columns))
    for run, earlier_s, own in (("ann", 2.0, {"a": 3, "b": 4}), ("bob", 10.0, {"c": 50})):
        history = store.telemetry.history(run, "PSS")
        assert {(one.start_s, one.end_s) for one in history.slices} == {(11.0 - earlier_s, 14.0 - earlier_s)}
        assert {row.turn_since_s for row in store.runs.get(run)[1]} == {20.0 - earlier_s}
        [point] = history.strata
        assert (point.at_s, point.total_bytes, point.strata) == (12.0 - earlier_s, sum(own.values()), {"weights": own})
        assert history.memory == [], "what the process holds is everybody's"
    assert store.telemetry.last_turns("h") == dict.fromkeys(KEYS, 14.0)
