"""The audit of the drill notices each kind of loss: here they are planted in a history without one."""

from collections import Counter

import pytest

from tools.chaos.audit import Command, History, Part, findings

LENET = ("run", "lenet-2")
PRIORITY, STOP = Command(*LENET, "priority", 3), Command(*LENET, "stop")
WHOLE = Part("lenet", {1: 0, 2: 4}, [(1, 4, 4), (1, 6, 2), (2, 8, 4)], "completed", 3, 2, 8, 8, "good")
"""Its first attempt got to step 6, the second went on from the checkpoint of step 4."""
REFERENCES = {("lenet", 2): "good"}


def found(
    part: Part = WHOLE,
    state: str = "completed",
    commands: tuple[tuple[Command, str | None], ...] = ((PRIORITY, "applied"),),
    answers: int = 1,
    asked: tuple[Command, ...] = (PRIORITY,),
) -> list[str]:
    history = History({"run": state}, {LENET: part}, commands, Counter({LENET: answers}))
    return list(findings(history, asked, REFERENCES))


def test_what_is_whole_has_no_findings() -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("windows", "what"),
    [
        ([(1, 4, 4), (2, 8, 4), (2, 7, 1)], "1 steps count twice or lie beyond the end, the first is 7"),
        ([(1, 4, 4), (2, 9, 5)], "1 steps count twice or lie beyond the end, the first is 9"),
        ([(1, 4, 4), (2, 8, 3)], "1 of 8 steps are missing, the first is 5"),
        ([(1, 6, 6), (2, 8, 4)], "4 of 8 steps are missing, the first is 1"),
    ],
    ids=["twice", "beyond the end", "missing", "a void window"],
)
def test_each_step_counts_once(windows: list[tuple[int, int, int]], what: str) -> None:
    assert found(WHOLE._replace(windows=windows)) == [f"{LENET}: {what}"]


def test_an_acknowledged_command_is_there() -> None:
    assert "is lost" in found(asked=(PRIORITY, PRIORITY))[0]
    assert "is lost" in found(commands=(), answers=0)[0]


def test_a_command_is_answered_once_and_does_what_it_says() -> None:
    assert "was never answered" in found(commands=((PRIORITY, None),), answers=0)[0]
    assert "1 commands were answered 2 times" in found(answers=2)[0]
    assert "the value is 4" in found(WHOLE._replace(priority=4))[0]


def test_weights_are_those_of_a_training_without_faults() -> None:
    for part in (WHOLE._replace(state_sha256="bad"), WHOLE._replace(state_sha256=None), WHOLE._replace(epochs=3)):
        assert "has weights" in found(part)[0]


@pytest.mark.parametrize("answer", ["applied", "done"])
def test_what_was_stopped_is_stopped_and_nothing_else(answer: str) -> None:
    stopped = WHOLE._replace(state="stopped", steps_done=4, windows=[(1, 4, 4)], state_sha256="other")
    stop = {"commands": ((STOP, answer),), "asked": (STOP,)}
    assert found(stopped, "stopped", **stop) == []
    assert "not as stopped" in found(WHOLE, **stop)[0]
    assert "not as completed" in found(stopped, commands=((STOP, "obsolete"),), asked=(STOP,))[0]


@pytest.mark.parametrize("state", ["failed", "interrupted", "running", "paused"])
def test_a_run_that_did_not_end_well_is_found(state: str) -> None:
    assert found(WHOLE._replace(state=state), state)[0] == f"run run was left as {state}"
