import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from tests.waiting import wait_until
from unifiednn_core.runtime.main_thread import LONGEST_COUNTED_S, MainThreadTrainer, SigtermListener, Watchdog


def never(code: int) -> NoReturn:
    raise AssertionError(f"left with {code}")


def until_rest(trainer: MainThreadTrainer) -> None:
    wait_until(lambda: not trainer.is_training)


def test_the_engine_trains_in_the_calling_thread_and_the_rest_beside_it() -> None:
    threads: list[str] = []
    trainer = MainThreadTrainer(lambda: threads.append(threading.current_thread().name))

    def attend() -> int:
        threads.append(threading.current_thread().name)
        until_rest(trainer)
        trainer.start()  # a sub-model joined
        until_rest(trainer)
        return 7

    trainer.start()
    assert trainer.run(attend, never) == 7
    assert sorted(threads) == sorted([threading.current_thread().name] * 2 + ["telemetry_0"])


@pytest.mark.usefixtures("full_log")
def test_an_engine_that_fails_rests() -> None:
    trainer = MainThreadTrainer(lambda: 1 // 0)

    def attend() -> int:
        until_rest(trainer)
        return 1

    trainer.start()
    assert trainer.run(attend, never) == 1


@pytest.mark.parametrize("ends", [lambda: 143, lambda: 1 // 0])
def test_who_attends_does_not_wait_for_a_step_that_never_ends(ends: Callable[[], int]) -> None:
    left, go_on = [], threading.Event()
    trainer = MainThreadTrainer(lambda: go_on.wait(60))

    def leave(code: int) -> NoReturn:
        left.append(code)
        go_on.set()  # where a real one would end the process
        raise SystemExit(code)

    trainer.start()
    with pytest.raises(SystemExit):
        trainer.run(ends, leave)
    assert left in ([143], [1]), "nobody would hear of what trains on"


def test_an_error_of_who_attends_is_raised() -> None:
    trainer = MainThreadTrainer(lambda: None)

    def attend() -> int:
        until_rest(trainer)
        raise ValueError("no store")

    trainer.start()
    with pytest.raises(ValueError, match="no store"):
        trainer.run(attend, never)


@pytest.fixture
def signals_as_before() -> Iterator[None]:
    handler, wakeup = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    yield
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.usefixtures("signals_as_before")
def test_a_termination_is_heard_and_never_forgotten() -> None:
    listener = SigtermListener()
    assert not listener.heard
    os.kill(os.getpid(), signal.SIGTERM)
    assert listener.heard
    assert listener.heard
    listener.close()


def test_only_one_and_the_same_step_that_takes_too_long_is_reported() -> None:
    steps: dict[str, float] = {}
    stuck: list[str] = []
    dog = Watchdog(lambda: steps, 3.0, stuck.append)
    for began in range(20):  # many short ones
        steps["a"] = float(began)
        dog.look(1.0)
    assert stuck == []
    steps.clear()
    dog.look(100.0)
    steps["b"] = 50.0
    for began in range(4):  # beside a lane with short steps
        steps["a"] = float(began)
        dog.look(1.0)
    assert stuck == []
    dog.look(1.0)
    assert stuck == ["b"]


def test_a_process_that_was_held_up_as_a_whole_is_not_a_long_step() -> None:
    stuck: list[str] = []
    dog = Watchdog(lambda: {"a": 1.0}, 2 * LONGEST_COUNTED_S + 1, stuck.append)
    dog.look(1.0)
    for _ in range(2):
        dog.look(3600.0)
    assert stuck == []


def test_it_watches_by_itself() -> None:
    stuck = threading.Event()
    Watchdog(lambda: {"a": 1.0}, 0.05, lambda name: stuck.set()).start()
    assert stuck.wait(60)


@pytest.mark.usefixtures("full_log")
def test_an_error_while_reporting_a_stuck_step_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []
    done = threading.Event()

    def locked_twice(name: str) -> None:
        calls.append(name)
        if len(calls) < 3:
            raise OSError("the store is locked")
        done.set()

    Watchdog(lambda: {"a": 1.0}, 0.02, locked_twice).start()
    assert done.wait(60), "the thread died of the first error"
    assert "the store is locked" in caplog.text
