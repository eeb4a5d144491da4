"""The line is looked at by one at a time; everybody else gets the last answer."""

import threading
from typing import Any

import pytest

from tests.clock import SimulatedClock
from unifiednn_core.service import line
from unifiednn_core.service.line import KEPT_S, Line


def test_only_the_first_caller_waits_for_a_new_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    answers = iter(("old", "new"))

    def made(*_: Any) -> str:
        answer = next(answers)
        if answer == "new":
            begun.set()
            assert go_on.wait(60)
        return answer

    monkeypatch.setattr(line, "outlook_of", made)
    clock = SimulatedClock()
    looked: Any = Line(lambda: None, clock)  # type: ignore[arg-type, return-value]
    assert looked.now() == "old"
    clock.advance(KEPT_S + 1)
    maker = threading.Thread(target=looked.now, daemon=True)
    maker.start()
    assert begun.wait(60)
    found: list[str] = []
    other = threading.Thread(target=lambda: found.append(looked.now()), daemon=True)
    other.start()
    other.join(60)
    assert found == ["old"], "it does not wait"
    go_on.set()
    maker.join(60)
    assert looked.now() == "new"
