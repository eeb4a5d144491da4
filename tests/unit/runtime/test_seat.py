import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from unifiednn_core.runtime.seat import Seat, Terminations


def never(code: int) -> NoReturn:
    raise AssertionError(f"left with {code}")


def until_rest(seat: Seat) -> None:
    while seat.taken:
        time.sleep(0.001)


def test_the_engine_trains_in_the_calling_thread_and_the_rest_beside_it() -> None:
    threads: list[str] = []
    seat = Seat(lambda: threads.append(threading.current_thread().name))

    def attend() -> int:
        threads.append(threading.current_thread().name)
        until_rest(seat)
        seat.take()  # somebody joined
        until_rest(seat)
        return 7

    seat.take()
    assert seat.serve(attend, never) == 7
    assert sorted(threads) == sorted([threading.current_thread().name] * 2 + ["telemetry_0"])


def test_an_engine_that_fails_rests() -> None:
    seat = Seat(lambda: 1 // 0)

    def attend() -> int:
        until_rest(seat)
        return 1

    seat.take()
    assert seat.serve(attend, never) == 1


def test_who_attends_does_not_wait_for_a_step_that_never_ends() -> None:
    left, go_on = [], threading.Event()
    seat = Seat(lambda: go_on.wait(60))

    def leave(code: int) -> NoReturn:
        left.append(code)
        go_on.set()  # where a real one would end the process
        raise SystemExit(code)

    seat.take()
    with pytest.raises(SystemExit):
        seat.serve(lambda: 143, leave)
    assert left == [143]


def test_an_error_of_who_attends_is_raised() -> None:
    seat = Seat(lambda: None)

    def attend() -> int:
        until_rest(seat)
        raise ValueError("no store")

    seat.take()
    with pytest.raises(ValueError, match="no store"):
        seat.serve(attend, never)


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    handler, wakeup = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    yield
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_termination_is_heard_and_never_forgotten() -> None:
    terminations = Terminations()
    assert not terminations.heard
    os.kill(os.getpid(), signal.SIGTERM)
    assert terminations.heard
    assert terminations.heard
    terminations.close()
