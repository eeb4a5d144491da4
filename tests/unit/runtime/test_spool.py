"""What workers ask of the process that watches their host: nothing is lost, and no answer is taken for another one."""

import pytest

from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import spool
from unifiednn_core.runtime.porter import Porter
from unifiednn_core.store.depot import Depot


def answer_all(home: Home) -> int:
    """Answer as the carrier does; returns how many questions there were."""
    asked = spool.questions(home.spool("h"))
    for name in asked:
        spool.tell(home.spool("h"), name, {})
    return len(asked)


def test_a_question_stays_until_its_answer_is_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = spool.Question(home.spool("h"), {"do": "bring"})

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(spool, "_write", full_disk)
        with pytest.raises(OSError, match="No space"):
            answer_all(home)
    assert answer_all(home) == 1 and asked.answer() == {}
    assert answer_all(home) == 0


def test_a_question_that_was_taken_back_gets_no_answer(home: Home) -> None:
    asked = spool.Question(home.spool("h"), {"do": "bring"})
    [name] = spool.questions(home.spool("h"))
    asked.forget()
    spool.tell(home.spool("h"), name, {})
    assert not list(home.spool("h").iterdir())


def test_what_came_for_an_earlier_attempt_is_asked_for_again(home: Home) -> None:
    """It left before it began, trained elsewhere, and comes back: its checkpoints here are old."""
    porter = Porter(Depot(home, None, None), "h")  # type: ignore[arg-type]
    assert not porter.has_brought("r/a", 1) and answer_all(home) == 1
    assert not porter.has_brought("r/a", 2)
    assert answer_all(home) == 1 and porter.has_brought("r/a", 2)
