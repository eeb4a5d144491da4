"""What workers ask of the process that watches their host: nothing is lost, and no answer is taken for another one."""

import os
import time
from types import SimpleNamespace

import pytest

from unifiednn_core.base.errors import BlobsUnreachable
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import porter, spool
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


def test_a_transfer_may_take_any_time_while_the_carrier_lives(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, ends_s = [time.time()], time.time() + 24 * 3600.0

    def sleep(_: float) -> None:
        now_s[0] += 50.0
        if now_s[0] < ends_s:
            spool.show_life(home.spool("h"))
            os.utime(home.spool("h") / "alive", (now_s[0], now_s[0]))
        elif answers:
            answer_all(home)

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0], time=lambda: now_s[0])
    monkeypatch.setattr(spool, "time", clock)
    for answers in (True, False):
        asks = Porter(Depot(home, None, None), "h")  # type: ignore[arg-type]
        if answers:
            asks.bring("r/a")
            continue
        with pytest.raises(BlobsUnreachable, match="does not answer"):  # the control: nobody lives any more
            asks.bring("r/a")


def test_who_waits_for_what_a_newer_worker_took_away_gives_up(home: Home) -> None:
    spool.Question(home.spool("h"), {"do": "bring"})
    asked = spool.Question(home.spool("h"), {"do": "bring"})
    spool.empty(home.spool("h"))
    with pytest.raises(BlobsUnreachable, match="gone"):
        asked.wait()


def test_a_worker_that_starts_tries_again_while_the_store_of_files_is_away(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, replies = [0.0], iter([{"again": "away"}, {"again": "away"}, {}])

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        for name in spool.questions(home.spool("h")):
            spool.tell(home.spool("h"), name, next(replies, {"again": "away"}))

    monkeypatch.setattr(porter, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0]))
    monkeypatch.setattr(spool, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0], time=time.time))
    asks = Porter(Depot(home, None, None), "h")  # type: ignore[arg-type]
    asks.bring("r/a")
    assert next(replies, None) is None
    with pytest.raises(BlobsUnreachable, match="away"):
        asks.bring("r/a")
    assert now_s[0] > porter.BRING_S


def test_what_came_for_an_earlier_attempt_is_asked_for_again(home: Home) -> None:
    """It left before it began, trained elsewhere, and comes back: its checkpoints here are old."""
    asks = Porter(Depot(home, None, None), "h")  # type: ignore[arg-type]
    assert not asks.has_brought("r/a", 1) and answer_all(home) == 1
    assert not asks.has_brought("r/a", 2)
    assert answer_all(home) == 1 and asks.has_brought("r/a", 2)
