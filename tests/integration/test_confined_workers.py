"""Workers in bubblewrap: what they cannot reach, with a control, and that they train, die and go on as before.

Where bubblewrap does not work, the fallback alone is tried.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.integration import attempts
from tests.integration.product import EPOCHS, Product
from unifiednn_core.base.paths import SANDBOX_SETTING, Home
from unifiednn_core.formats import registry as formats
from unifiednn_core.machine.allocator import of_workers
from unifiednn_core.machine.forks import Template
from unifiednn_core.machine.host import rollup
from unifiednn_core.preflight.estimate import context_key
from unifiednn_core.runtime import confinement
from unifiednn_core.scheduling import registry as policies
from unifiednn_core.service.doctor import protections_of
from unifiednn_core.spec.lifecycle import State

RUN, OTHER = "r-1", "r-2"
FORGO = """
from unifiednn_core.runtime import confinement
confinement.forgo_privileges()
print(open("/proc/self/status").read())
"""


def require_sandbox(home: Home) -> None:
    if reason := confinement.trial(home):
        [told] = [one for one in protections_of(home) if one.name == "workers"]
        assert not told.holds and told.remedy
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    yield
    confinement._tried.cache_clear()


def test_many_who_ask_at_once_get_one_answer(home: Home) -> None:
    """The supervisor and pages do; one who spoilt the trial of another would leave workers unconfined."""
    expected = confinement.trial(home)
    for _ in range(3):
        confinement._tried.cache_clear()
        with ThreadPoolExecutor(8) as many:
            assert set(many.map(lambda _: confinement.trial(home), range(8))) == {expected}


@pytest.fixture
def probe(home: Home, tmp_path: Path, warm: Template) -> Iterator[Callable[..., dict[str, Any]]]:
    """Tries what a worker may and may not, `started` in bubblewrap or `forked` into it, or `free`."""
    require_sandbox(home)
    for run in (RUN, OTHER):
        home.run(run).mkdir()
    stored, upload, other = home.file("ab" * 32), home.quarantine / "upload", home.run(OTHER) / "model"
    for path in (stored, upload, other):
        path.parent.mkdir(exist_ok=True)
        path.write_text("secret")
    user = tmp_path / "user"
    user.mkdir()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as local,
    ):
        for door, name in ((abstract, "\0" + str(tmp_path)), (local, str(tmp_path / "door"))):
            door.bind(name)
            door.listen()
        place = {"server": os.getpid(), "port": server.getsockname()[1], "abstract": str(tmp_path), "user": str(user)}
        place |= {"socket": str(tmp_path / "door"), "other": str(other), "upload": str(upload), "stored": str(stored)}
        place |= {"program": confinement.__file__, "python": psutil.__file__, "run": str(home.run(RUN))}
        place |= {"database": str(home.database), "checks": str(home.checks)}
        place |= {"template": warm.pid, "scratch": str(tmp_path / "scratch")}
        place |= {"application": str(Path(__file__).parents[2] / ".streamlit" / "config.toml")}

        def run(way: str) -> dict[str, Any]:
            if way == "forked":
                return fork_and_try(home, place, warm)
            command = [sys.executable, "-c", Path(attempts.__file__).read_text(), json.dumps(place)]
            if way == "started":
                command = confinement.confined(command, home, RUN)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)  # type: ignore[no-any-return]

        yield run


@pytest.mark.parametrize("way", ["started", "forked"])
def test_a_worker_has_what_it_needs_and_nothing_else(
    probe: Callable[..., dict[str, Any]], tmp_path: Path, way: str
) -> None:
    found = probe(way)
    assert not (tmp_path / "scratch").exists()
    assert found["through"] == []
    assert found["had"] == found["needed"]
    assert (found["privileges"], found["no_new"]) == ([0] * 5, "1")
    assert found["folder"] == str(Path.cwd())
    assert found["handles"] == ["0", "1", "2", "3"]  # and the list itself
    control = probe("free")
    assert control["through"] == control["attempts"]  # each attempt would be noticed


def test_the_process_that_is_told_is_the_worker_and_its_end_is_told(home: Home) -> None:
    require_sandbox(home)
    home.run(RUN).mkdir()
    tell = [sys.executable, "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read(); sys.exit(3)"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    for ends, code in ((lambda pid: None, 3), (lambda pid: os.kill(pid, signal.SIGKILL), 128 + signal.SIGKILL)):
        process, pid = confinement.start(tell, home, RUN, **pipes)
        with process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == pid != process.pid
            assert psutil.Process(pid).ppid() == process.pid
            ends(pid)
        assert process.returncode == code


def test_a_worker_outlives_who_started_it(home: Home) -> None:
    require_sandbox(home)
    home.run(RUN).mkdir()
    process, pid = confinement.start(["/bin/sleep", "100"], home, RUN, start_new_session=True)
    process.kill()  # bubblewrap itself; the death of the server is even less to the worker
    process.wait()
    assert psutil.Process(pid).is_running()
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("way", ["off", "missing", "broken"])
def test_without_bubblewrap_workers_run_as_before_and_it_is_told(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    python = sys.executable
    if way == "off":
        monkeypatch.setenv(SANDBOX_SETTING, "off")
    else:
        monkeypatch.setenv("PATH", str(tmp_path))
    if way == "broken":
        (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
    [told] = [one for one in protections_of(home) if one.name == "workers"]
    assert not told.holds and told.remedy
    assert {"off": SANDBOX_SETTING, "missing": "not installed", "broken": "No permissions"}[way] in told.found
    process, pid = confinement.start([python, "-c", FORGO], home, RUN, stdout=subprocess.PIPE, text=True)
    assert pid == process.pid
    assert "NoNewPrivs:\t1" in process.communicate()[0]  # type: ignore[operator]


def fork_and_try(home: Home, place: dict[str, Any], warm: Template) -> dict[str, Any]:
    found = home.run(RUN) / "found"
    environment = confinement.environment_inside(os.environ)
    with found.open("wb") as log, confinement.namespaces(home, RUN) as walls:
        handles = (log.fileno(), *walls)
        call = "tests.integration.attempts:in_fork"
        with warm.connect(
            call, json.dumps(place), environment, str(Path.cwd()), handles=handles, stays=True
        ) as channel:
            assert b"".join(iter(lambda: channel.recv(1000), b"")) == b"\n0"
    return json.loads(found.read_text())  # type: ignore[no-any-return]


def test_plug_ins_of_every_kind_are_shown() -> None:
    assert set(confinement.PLUGINS) == {policies.ENTRY_POINTS, formats.ENTRY_POINTS}


@pytest.fixture
def demo(unforked: Product) -> Product:
    require_sandbox(unforked.home)
    unforked.start()
    return unforked


@pytest.mark.slow
@pytest.mark.new_interpreters
def test_a_confined_worker_that_is_killed_goes_on_with_the_same_bits(demo: Product, alone: Callable[..., str]) -> None:
    worker = demo.training()
    for namespace in ("net", "user", "mnt", "ipc"):
        assert Path(f"/proc/{worker}/ns/{namespace}").readlink() != Path(f"/proc/self/ns/{namespace}").readlink()
    assert "NoNewPrivs:\t1" in Path(f"/proc/{worker}/status").read_text()
    assert rollup(worker) is not None  # its memory can be measured from outside
    os.kill(worker, signal.SIGKILL)
    assert demo.finish().state is State.COMPLETED
    assert demo.view.recoveries == 1
    assert demo.hashes() == {name: alone(name) for name in EPOCHS}
    context = context_key("cpu", torch.__version__, of_workers())
    assert demo.service.store.measured.recall([context]), "one that starts cold tells what its context needs"
