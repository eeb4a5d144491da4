"""Answers that those who watch share."""

import threading
import time

import pytest

from tests.waiting import wait_until
from unifiednn_core.base.errors import NotFound
from unifiednn_core.service.recent import LINGER_S, Recent


class Asked:
    def __init__(self):
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return self.count


def test_an_answer_is_shared_until_it_is_too_old():
    now_s, ask = [0.0], Asked()
    recent = Recent(lambda: now_s[0])
    assert [recent.within(0.5, "run", ask) for _ in range(3)] == [1, 1, 1]
    now_s[0] = 0.6
    assert recent.within(0.5, "run", ask) == 2
    assert recent.within(0.5, "other", ask) == 3


def test_after_a_change_it_is_asked_anew():
    recent, ask = Recent(lambda: 0.0), Asked()
    recent.within(0.5, "run", ask)
    recent.forget()
    assert recent.within(0.5, "run", ask) == 2


def test_an_error_is_not_kept():
    recent, ask = Recent(lambda: 0.0), Asked()

    def fails() -> int:
        raise NotFound("There is no run 'r-1'.")

    with pytest.raises(NotFound):
        recent.within(0.5, "run", fails)
    assert recent.within(0.5, "run", ask) == 1


def test_nothing_is_kept_that_nobody_watches():
    now_s, ask = [0.0], Asked()
    recent = Recent(lambda: now_s[0])
    for key in range(50):
        recent.within(0.5, key, ask)
    now_s[0] = LINGER_S + 1
    recent.within(0.5, "other", ask)
    assert list(recent._answers) == ["other"]


def test_an_answer_that_took_long_serves_all_who_waited_for_it():
    ask, arrived, heard = Asked(), list[None](), list[int]()

    def now_s() -> float:
        arrived.append(None)
        return time.monotonic()

    recent = Recent(now_s)

    def slow() -> int:
        entered.wait(60)
        time.sleep(0.05)  # longer than the age below
        return ask()

    entered = threading.Event()
    threads = [threading.Thread(target=lambda: heard.append(recent.within(0.01, "run", slow))) for _ in range(6)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(arrived) == 6)  # each looks at the clock when it arrives
    entered.set()
    for thread in threads:
        thread.join()
    assert heard.count(1) == 6
