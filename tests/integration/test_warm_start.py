"""Workers that a template forks: the same bits as cold ones, and cold ones wherever a fork would be no good."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.product import EPOCHS, Product
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.machine import forks
from unifiednn_core.machine.forks import Template
from unifiednn_core.runtime import confinement, launchers
from unifiednn_core.runtime.launchers import LocalLauncher, training_environment
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.schema import HYBRID

pytestmark = pytest.mark.new_interpreters
ECHO = "tests.integration.fork_facts:echo"
TOLD = "tests.integration.fork_facts:tell"


@pytest.fixture
def product(unforked: Product) -> Iterator[Product]:
    yield unforked
    confinement._tried.cache_clear()


def test_a_forked_worker_trains_the_same_bits_and_is_what_a_worker_is(
    product: Product, warm: Template, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "do not tell")
    product.start()
    worker = psutil.Process(product.training())
    assert worker.ppid() == warm.pid
    assert worker.name() == "unifiednn"
    shown = " ".join(worker.cmdline())
    assert shown.startswith("unifiednn_core.runtime.worker") and "do not tell" not in shown
    assert os.getsid(worker.pid) == worker.pid
    if not confinement.trial(product.service.home):
        for namespace in ("net", "user", "mnt", "ipc", "uts"):
            assert (
                Path(f"/proc/{worker.pid}/ns/{namespace}").readlink() != Path(f"/proc/self/ns/{namespace}").readlink()
            )
    assert "NoNewPrivs:\t1" in Path(f"/proc/{worker.pid}/status").read_text()
    assert not any("nvidia" in str(handle.readlink()) for handle in Path(f"/proc/{warm.pid}/fd").iterdir())
    worker.terminate()
    assert product.finish().state is State.COMPLETED
    assert product.view.recoveries == 1
    facts = product.service.runs.document(product.run_id)
    assert facts["start"] == "warm" and facts["start_s"] > 0
    assert product.hashes() == {name: alone(name) for name in EPOCHS}
    assert warm.pid is not None  # it goes on


@pytest.mark.slow
def test_a_killed_forked_worker_is_seen_and_a_killed_template_leaves_it_alone(
    product: Product, warm: Template, alone: Any
) -> None:
    product.start()
    worker, killed = product.training(), warm.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: warm.pid is None)
    assert psutil.Process(worker).is_running()
    os.kill(worker, signal.SIGKILL)
    product.until(lambda: product.view.recoveries == 1, "the recovery")
    assert product.finish().state is State.COMPLETED
    assert product.hashes() == {name: alone(name) for name in EPOCHS}
    wait_until(warm.ready)  # a new one has come
    assert warm.pid not in (None, killed)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_a_forked_worker_trains_on_a_gpu_that_the_template_never_touched(product: Product, warm: Template) -> None:
    product.options(device="cuda:0")
    product.service.store.runs.update(product.run_id, device="cuda:0")
    product.start()
    assert product.finish().state is State.COMPLETED
    assert product.service.runs.document(product.run_id)["start"] == "warm"
    assert not any("nvidia" in str(handle.readlink()) for handle in Path(f"/proc/{warm.pid}/fd").iterdir())


def exit_code_of(launcher: LocalLauncher, run_id: str) -> int | None:
    wait_until(lambda: launcher.exit_code(run_id) is not None)
    return launcher.exit_code(run_id)


def test_the_exit_code_of_a_fork_is_told(home: Home, warm: Template) -> None:
    launcher = LocalLauncher(home)
    pid = launcher.start("no-such-run", 1, HYBRID)
    assert psutil.Process(pid).ppid() == warm.pid
    assert exit_code_of(launcher, "no-such-run") == 1  # the store has no such run
    launcher.close()


def test_a_fork_that_nobody_tells_to_begin_ends(home: Home, warm: Template) -> None:
    log = home.root / "log"
    with log.open("wb") as written:
        channel = warm.connect(launchers._FORKED, str(home.root), "r", {}, "/", handles=(written.fileno(),), stays=True)
    with channel:
        channel.settimeout(30)
        word, pid = channel.recv(100).decode().split()
        assert word == "joined"
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(pid)).wait(60)
    assert log.read_bytes() == b""


@pytest.mark.slow
@pytest.mark.parametrize("why", ["namespaces", "joining", "program"])
def test_where_a_fork_cannot_be_confined_the_worker_starts_cold_and_the_log_says_so(
    home: Home, warm: Template, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, why: str
) -> None:
    if reason := confinement.trial(home):
        pytest.skip(reason)
    if why == "namespaces":
        monkeypatch.setattr(confinement, "_HOLD", ["/bin/false"])
    elif why == "joining":
        right = confinement.namespaces

        @contextmanager
        def wrong(home: Home, run_id: str) -> Iterator[list[int]]:
            with right(home, run_id) as handles:
                yield handles[::-1]

        monkeypatch.setattr(confinement, "namespaces", wrong)
    else:
        monkeypatch.setattr(forks, "sealed_interpreter", lambda: None)
    cold = []

    def start(command: list[str], *_: object, **__: object) -> tuple[subprocess.Popen[bytes], int]:
        cold.append(command[1:3])
        process = subprocess.Popen(["/bin/true"])
        return process, process.pid

    monkeypatch.setattr(confinement, "start", start)
    launcher = LocalLauncher(home)
    with caplog.at_level(logging.WARNING):
        launcher.start("r-1", 1, HYBRID)
    assert "r-1 starts cold" in caplog.text
    assert cold == [["-m", "unifiednn_core.runtime.worker"]]
    assert exit_code_of(launcher, "r-1") == 0
    launcher.close()


def test_a_template_with_a_thread_forks_no_worker() -> None:
    restless, calm = Template(("tests.integration.restless",)), Template(())
    for other, answer in ((restless, b"!the template has 2 threads"), (calm, b"x")):
        with other.connect(ECHO, stays=True) as channel:
            with suppress(BrokenPipeError):
                channel.sendall(b"x")
            assert channel.recv(100) == answer
        other.stop()


def test_a_fork_has_the_settings_of_a_worker_and_nothing_of_the_template(
    home: Home, warm: Template, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "for workers")
    asked = training_environment(3)
    told = []
    for number in range(2):
        with (home.root / f"log-{number}").open("wb") as log:
            channel = warm.connect(TOLD, asked, str(home.root), handles=(log.fileno(),), stays=True)
        with channel:
            said = channel.makefile("rb").read()
            told.append(json.loads(said.rpartition(b"\n")[0]))
        assert (home.root / f"log-{number}").read_text() == "a line\n"
    for facts in told:
        assert facts["environment"] == facts["environment of the process"] == asked
        assert facts["folder"] == str(home.root)
        assert facts["handles"] == 5  # three of every process, the channel, and the list itself
        assert facts["signals"] == ["SIG_DFL", "SIG_DFL"]
        assert (facts["threads"], facts["uses a GPU"]) == (1, False)
    first, second = (facts["random"] for facts in told)
    assert all(one != other for one, other in zip(first, second, strict=True))
    assert "SECRET_TOKEN" not in Path(f"/proc/{warm.pid}/environ").read_text()


@pytest.mark.slow
def test_settings_that_shape_libraries_start_workers_cold(warm: Template, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert not warm.ready()
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    assert warm.ready()


@pytest.mark.slow
def test_a_retired_template_ends_with_its_last_job_and_the_next_use_starts_another() -> None:
    one = Template(())
    assert not one.ready()  # nobody has used it
    with one.connect(ECHO) as channel, one.connect(ECHO, stays=True) as staying:
        retired = one.pid
        one.retire()
        assert one.pid is None
        channel.sendall(b"x")
        assert channel.recv(10) == b"x"  # its job goes on
        channel.shutdown(socket.SHUT_WR)
        assert channel.recv(10) == b"\n0"
        staying.sendall(b"y")
        assert staying.recv(10) == b"y"
    assert one.ready()  # it waits
    assert one.pid not in (None, retired)
    wait_until(lambda: psutil.Process(retired).status() == psutil.STATUS_ZOMBIE)  # its parent looks at the next start
    one.stop()
    assert one.pid is None


def test_the_template_in_memory_cannot_be_changed_by_a_fork(warm: Template) -> None:
    if forks.sealed_interpreter() is None:
        pytest.skip("the interpreter belongs to somebody else")
    program = Path(f"/proc/{warm.pid}/exe")
    assert not program.samefile(sys.executable)
    with pytest.raises(PermissionError):
        os.pwrite(forks.sealed_interpreter() or -1, b"x", 0)
    assert Path("/proc/self/exe").samefile(Path(sys.executable).resolve())  # what a fork could reach otherwise


def test_a_template_that_hangs_does_not_hold_up_its_caller() -> None:
    template = Template(())
    template.start()
    wait_until(template.ready)
    pid = template.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    stopping = threading.Thread(target=template.stop, daemon=True)
    try:
        stopping.start()
        stopping.join(60)
        assert not stopping.is_alive(), "a server could not end"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        stopping.join(60)
