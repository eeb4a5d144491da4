"""Updates of a page take turns; a page that somebody opens waits for nobody."""

import threading
from types import SimpleNamespace

import pytest

from pages._ui import frame


@pytest.mark.parametrize("updates", [["a fragment"], None])
def test_one_update_at_a_time(monkeypatch, updates):
    monkeypatch.setattr(frame, "PATIENCE_S", 60.0)
    monkeypatch.setattr(frame, "get_script_run_ctx", lambda: SimpleNamespace(fragment_ids_this_run=updates))
    entered, leave = threading.Semaphore(0), threading.Event()

    def draw(_lives: bool) -> None:
        entered.release()
        leave.wait(60)

    viewers = [threading.Thread(target=frame._in_turn(draw), args=(True,)) for _ in range(2)]
    for viewer in viewers:
        viewer.start()
    assert entered.acquire(timeout=60)
    if updates is None:
        assert entered.acquire(timeout=60), "both draw at once"
    else:
        assert not entered.acquire(timeout=0.2)
    leave.set()
    for viewer in viewers:
        viewer.join()


def test_an_update_that_fails_or_takes_long_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(frame, "PATIENCE_S", 0.01)
    monkeypatch.setattr(frame, "get_script_run_ctx", lambda: SimpleNamespace(fragment_ids_this_run=["a"]))
    drawn: list[bool] = []

    def slow(_lives: bool) -> None:
        other = threading.Thread(target=frame._in_turn(drawn.append), args=(True,))
        other.start()
        other.join()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        frame._in_turn(slow)(True)
    assert drawn == [True] and frame._TURN.acquire(blocking=False)
    frame._TURN.release()
