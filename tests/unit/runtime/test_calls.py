"""What a worker on a node may ask the store: each call counts once, for its own hybrid alone."""

import ast
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import unifiednn_core
from tests.unit.store.test_store import add_run
from tests.unit.store.test_workers import berth
from unifiednn_core.base.errors import Fenced, IllegalTransition, NotFound
from unifiednn_core.runtime.calls import NOW, READS, REGISTER, WRITES, Call, Desk, checked, opened
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.telemetry import TelemetryRows
from unifiednn_core.store.workers import WorkerIdentity

WORKER = (7, 1.5, "boot-of-the-node")
WORKER_FILES = ("runtime/*.py", "compare/runner.py", "compare/scripts.py")
NOT_IN_WORKERS = {"supervisor", "certifier", "removal", "housekeeping", "placing", "webhooks", "device_watch"} | {
    *("driver", "attempt", "calls", "cluster", "admission", "remote_store", "launchers")
}
STEP = {"submodel": "a", "attempt": 1, "step": 1, "steps": 1, "epoch": 0.1, "loss": math.nan, "accuracy": None}


@pytest.fixture
def desk(store: Store) -> Desk:
    """The desk of the first attempt on a hybrid, whose worker has registered."""
    add_run(store, "r")
    add_run(store, "other")
    assert store.workers.claim("r", berth())
    desk = Desk(store, "r", 1)
    assert asked(desk, REGISTER, *WORKER) == 1
    asked(desk, "workers.begin", "r", {"a": {"steps_done": 0, "epochs_done": 0}}, number=1)
    return desk


def asked(desk: Desk, name: str, *arguments: Any, number: int = 0, **named: Any) -> Any:
    """What a call gives after its way there and back."""
    return opened(desk.answer(Call.decoded(Call(name, list(arguments), named, number).encoded())))


def steps(store: Store) -> int:
    return len(store.telemetry.history("r", None).steps)


def test_a_repeated_call_is_answered_again_and_counts_once(store: Store, desk: Desk) -> None:
    for _ in range(2):
        asked(desk, "telemetry.write", "r", TelemetryRows(steps=[STEP]), number=2)
        assert steps(store) == 1
    store.commands.issue("r", "a", Verb.PRIORITY, {"priority": 5})
    [command] = asked(desk, "commands.open_in", "r")
    first = asked(desk, "commands.carry_out", command.id, number=3)
    assert asked(desk, "commands.carry_out", command.id, number=3) == first is True


def test_a_call_that_fails_has_no_effect_and_raises_in_the_worker(store: Store, desk: Desk) -> None:
    with pytest.raises(IllegalTransition):
        asked(desk, "runs.transition", "r", "a", Event.HOLD, number=2)
    bad = TelemetryRows(steps=[STEP], events=[{"code": None}])
    with pytest.raises(Exception, match="events"):
        asked(desk, "telemetry.write", "r", bad, number=2)
    assert steps(store) == 0
    asked(desk, "telemetry.write", "r", TelemetryRows(steps=[STEP]), number=2)
    assert steps(store) == 1


def test_what_an_earlier_attempt_still_reports_is_refused(store: Store, desk: Desk) -> None:
    store.workers.lose("r", "it died", "")
    assert store.workers.claim("r", berth())
    assert asked(Desk(store, "r", 2), REGISTER, *WORKER) == 2
    with pytest.raises(Fenced):
        asked(desk, "telemetry.write", "r", TelemetryRows(steps=[STEP]), number=2)
    assert asked(desk, REGISTER, *WORKER) is None
    assert steps(store) == 0


def test_a_registration_whose_answer_was_lost_is_the_same_attempt(store: Store, desk: Desk) -> None:
    assert asked(desk, REGISTER, *WORKER) == 1
    assert store.hybrids.get("r")[0].attempt == 1


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("hybrids.get", ["other"]),
        ("runs.get", ["other"]),
        ("runs.fail_submodel", ["other", "a", "forged", ""]),
        ("telemetry.write", ["other", TelemetryRows()]),
        ("workers.give_back", ["other"]),
    ],
)
def test_a_worker_reaches_no_other_hybrid(desk: Desk, name: str, arguments: list[Any]) -> None:
    with pytest.raises(Fenced):
        asked(desk, name, *arguments, number=2)


def test_a_command_for_another_run_stays_open(store: Store, desk: Desk) -> None:
    assert store.workers.claim("other", berth(device="cpu:1"))
    store.commands.issue("other", "a", Verb.PRIORITY, {"priority": 5})
    [command] = store.commands.open("other")
    with pytest.raises(Fenced):
        asked(desk, "commands.carry_out", command.id, number=2)
    assert store.commands.open("other")


@pytest.mark.parametrize("name", ["people.give_role", "runs.__class__", "calls.answer", "hybrids", "", "webhooks.all"])
def test_nothing_else_can_be_called(desk: Desk, name: str) -> None:
    with pytest.raises(NotFound):
        asked(desk, name, number=2)


@pytest.mark.parametrize(
    "frame", [b"", b"{}", b"[1]", b"\xff", b'["runs.get", 1, {}, 0]', b'["runs.get", [], [], "x"]']
)
def test_a_frame_that_is_no_call_is_answered(desk: Desk, frame: bytes) -> None:
    with pytest.raises(NotFound):
        opened(desk.answer(Call.decoded(frame)))


def test_arguments_of_another_type_are_refused(desk: Desk) -> None:
    with pytest.raises(Exception, match="valid"):
        asked(desk, "runs.transition", "r", "a", "no such event", number=2)


def test_the_clock_is_the_servers(store: Store, desk: Desk) -> None:
    assert asked(desk, NOW) == store.clock.utc_s()


def calls_in(tree: ast.AST) -> Iterator[str]:
    """Calls of a store's parts: `store.runs.get(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            holder = node.value.value
            if (isinstance(holder, ast.Name) and holder.id == "store") or (
                isinstance(holder, ast.Attribute) and holder.attr in ("store", "_store")
            ):
                yield f"{node.value.attr}.{node.attr}"


def test_all_that_workers_ask_the_store_can_be_asked_from_a_node(store: Store) -> None:
    root = Path(unifiednn_core.__file__).parent
    files = [path for pattern in WORKER_FILES for path in root.glob(pattern) if path.stem not in NOT_IN_WORKERS]
    used = {name for path in files for name in calls_in(ast.parse(path.read_text()))}
    assert len(used) > 25
    assert used - {REGISTER, "clock.utc_s"} <= READS | WRITES
    for name in READS | WRITES:
        part, _, method = name.partition(".")
        checked(getattr(getattr(store, part), method).__func__)  # its annotations can be checked
    assert WorkerIdentity(*WORKER)


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("telemetry.write", ["r", TelemetryRows(submodels={"other/a": {"steps_done": 7}})], {}),
        ("telemetry.write", ["r", TelemetryRows(submodels={"a": {"owner": "mallory"}})], {}),
        ("telemetry.write", ["r", TelemetryRows(hybrid={"device": "cuda:0"})], {}),
        ("telemetry.write", ["r", TelemetryRows(steps=[{**STEP, "submodel": "other/a"}])], {}),
        ("telemetry.write", ["r", TelemetryRows(memory=[{"hybrid_id": "other", "at_s": 0.0}])], {}),
        ("workers.begin", ["r", {"other/a": {"steps_done": 0}}], {}),
        ("workers.left", ["r", "other/a"], {}),
        ("hybrids.update", ["r"], {"threads": 64}),
        ("runs.update", ["r"], {"spec": {}}),
        ("runs.record_export", ["r", "a", Event.COMPLETE], {"model": {"owner": "mallory"}}),
    ],
)
def test_a_worker_sets_only_what_workers_report(
    desk: Desk, name: str, arguments: list[Any], named: dict[str, Any]
) -> None:
    with pytest.raises(Fenced):
        asked(desk, name, *arguments, number=2, **named)
