import threading

from unifiednn_core.runtime.watchdog import LONGEST_COUNTED_S, Watchdog


def test_only_one_and_the_same_step_that_takes_too_long_makes_it_bark() -> None:
    step: list[tuple[str, float] | None] = [None]
    barked: list[str] = []
    dog = Watchdog(lambda: step[0], 3.0, barked.append)
    for began in range(20):  # many short ones
        step[0] = ("a", float(began))
        dog.look(1.0)
    assert barked == []
    step[0] = None
    dog.look(100.0)
    step[0] = ("b", 50.0)
    for _ in range(4):
        dog.look(1.0)
    assert barked == []
    dog.look(1.0)
    assert barked == ["b"]


def test_a_process_that_was_held_up_as_a_whole_is_not_a_long_step() -> None:
    barked: list[str] = []
    dog = Watchdog(lambda: ("a", 1.0), 2 * LONGEST_COUNTED_S + 1, barked.append)
    dog.look(1.0)
    for _ in range(2):
        dog.look(3600.0)
    assert barked == []


def test_it_watches_by_itself() -> None:
    barked = threading.Event()
    Watchdog(lambda: ("a", 1.0), 0.05, lambda name: barked.set()).start()
    assert barked.wait(30)
