import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tools.chaos.fork_server import ForkServerClient, fork_server
from tools.chaos.plan import Round
from tools.chaos.scene import ForkRequest, JournalEntry, Scene
from tools.machine import ToolFailed
from unifiednn_core.base.failpoints import Fault

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerClient]:
    with fork_server(tmp_path_factory.mktemp("forks") / "fork-server.log", loaded=()) as forks:
        yield forks


def start_server(forks: ForkServerClient, scene: Scene, fault: str = "") -> int:
    return forks.ask(ForkRequest(do="server", folder=str(scene.folder), fault=fault)) or 0


def test_forks_are_killed_reaped_and_written_down(forks: ForkServerClient, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    server = start_server(forks, scene)
    wait_until(scene.database.exists)
    assert os.getsid(server) == server
    assert forks.ask(ForkRequest(do="code", pid=server)) is None
    assert forks.ask(ForkRequest(do="kill", pid=server, signal=signal.SIGKILL)) == 1
    wait_until(lambda: forks.ask(ForkRequest(do="code", pid=server)) == -signal.SIGKILL)
    assert forks.ask(ForkRequest(do="kill", pid=server, signal=signal.SIGKILL)) == 0
    assert forks.ask(ForkRequest(do="kill", pid=os.getpid(), signal=signal.SIGKILL)) == 0
    entries = scene.journal.news()
    assert [(entry.what, entry.role, entry.pid) for entry in entries] == [
        ("started", "server", server),
        ("shot", "server", server),
        ("ended", "server", server),
    ]


def test_an_armed_fork_dies_of_its_fault_and_says_so_before(forks: ForkServerClient, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    server = start_server(forks, scene, "store.before_commit=sigkill@1")
    wait_until(lambda: forks.ask(ForkRequest(do="code", pid=server)) == -signal.SIGKILL)
    struck = [entry for entry in scene.journal.news() if entry.what == "struck"]
    assert [(entry.point, entry.action, entry.pid) for entry in struck] == [("store.before_commit", "sigkill", server)]


def test_no_child_outlives_a_fork_server_that_is_killed(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with fork_server(tmp_path / "fork-server.log", loaded=()) as forks:
        server = start_server(forks, scene)
        wait_until(scene.database.exists)
        parent = psutil.Process(server).parent()
        assert parent is not None
        parent.kill()
        wait_until(lambda: not alive(server))
        with pytest.raises(ToolFailed, match="Start the chaos test again"):
            start_server(forks, scene)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_get_what_was_planned_for_them_in_turn(forks: ForkServerClient, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.home.create()
    fault = Fault("store.before_commit", "sigkill")
    forks.plan((Round(card="first", fault=fault), Round(card="second", fresh=True, fault=fault)))
    codes: list[int | None] = []
    for _ in range(3):  # one after the other: nothing is committed where another one has made the tables
        pid = forks.ask(ForkRequest(do="worker", folder=str(tmp_path), run_id="none")) or 0
        wait_until(lambda pid=pid: forks.ask(ForkRequest(do="code", pid=pid)) is not None)
        codes.append(forks.ask(ForkRequest(do="code", pid=pid)))
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 1]  # the third was not armed, and there is no such run
    started = [entry for entry in scene.journal.news() if entry.what == "started"]
    assert [(entry.number, entry.fresh) for entry in started] == [(0, False), (1, True), (-1, False)]
    assert JournalEntry(what="over", role="test").pid == 0
