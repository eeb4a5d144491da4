import io
import os
import pickle
import re
import signal
import socket
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.sandbox import hostile
from unifiednn_core.errors import BadInput
from unifiednn_core.intake.exported import Exported
from unifiednn_core.intake.remedies import SANDBOX_SETTING
from unifiednn_core.packing.comparing import differences
from unifiednn_core.packing.request import Example, Source
from unifiednn_core.packing.source import network_of
from unifiednn_core.sandbox import bubblewrap, converter, landlock, probe
from unifiednn_core.sandbox.limits import Limits
from unifiednn_core.sandbox.request import Conversion, ConversionRequest

EXAMPLE = Example(shape=(1, 6, 6))
FAST = Limits(memory_bytes=2 * 1024**3, cpu_s=60, wall_s=120.0, result_bytes=64 * 1024**2, log_bytes=64 * 1024)


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SANDBOX_SETTING, "on")
    monkeypatch.setattr(sys, "path", list(sys.path))
    hostile.require_walls()
    yield
    sys.modules.pop("good", None)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def convert(path: Path, out: Path, limits: Limits = FAST, **request: Any) -> Conversion:
    asked = ConversionRequest.model_validate({"path": path, "example": EXAMPLE, "factory": "build"} | request)
    return converter.convert(asked, out, limits)


def without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as where bubblewrap is not installed."""
    if bubblewrap.program() is None:
        pytest.skip("bubblewrap is not installed: there is but one kind of walls")
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    found = probe.find.__wrapped__()
    if not landlock.version():
        pytest.skip("the kernel has no Landlock")
    assert found.reason == ""
    monkeypatch.setattr(probe, "find", lambda: found)


def refusal(path: Path, out: Path, limits: Limits = FAST, **request: Any) -> str:
    """Everything that the findings say; nothing is left behind."""
    with pytest.raises(BadInput) as caught:
        convert(path, out, limits, **request)
    assert list(out.iterdir()) == []
    return " | ".join(f"{finding.title}: {finding}" for finding in caught.value.findings)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[dict[str, object], list[socket.socket]]]:
    """Real things to get at: a canary, a home with a database, servers that listen."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("secret")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (home / "unifiednn.sqlite3").write_text("secret")
    (tmp_path / "canary").write_text("alive")
    servers = [
        socket.socket(family, kind)
        for family, kind in (
            (socket.AF_INET, socket.SOCK_STREAM),
            (socket.AF_INET, socket.SOCK_DGRAM),
            (socket.AF_UNIX, socket.SOCK_STREAM),
            (socket.AF_UNIX, socket.SOCK_STREAM),
        )
    ]
    tcp, udp, unix, abstract = servers
    for server in (tcp, udp):
        server.bind(("127.0.0.1", 0))
    unix.bind(str(home / "door"))
    abstract.bind("\0" + str(tmp_path))
    for server in servers:
        server.setblocking(False)
    tcp.listen()
    unix.listen()
    abstract.listen()
    found: dict[str, object] = {"canary": str(tmp_path / "canary"), "home": str(home), "unix": str(home / "door")}
    found |= {"link": str(tmp_path / "link"), "abstract": "\0" + str(tmp_path)}
    yield {**found, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}, servers
    for server in servers:
        server.close()


@pytest.mark.parametrize("isolated", [True, pytest.param(False, marks=pytest.mark.long)], ids=["all", "kernel alone"])
def test_code_that_tries_everything_gets_nothing_and_still_converts(
    tmp_path: Path,
    out: Path,
    places: tuple[dict[str, object], list[socket.socket]],
    monkeypatch: pytest.MonkeyPatch,
    isolated: bool,
) -> None:
    if not isolated:
        without_bubblewrap(monkeypatch)
    aims, (tcp, udp, unix, abstract) = places
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    canary = Path(str(aims["canary"]))
    before = canary.stat()
    ended: list[int] = []
    old = signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    try:
        done = convert(hostile.curious(tmp_path, aims), out, arguments={"width": 3})
    finally:
        signal.signal(signal.SIGTERM, old)

    tried = re.search(r"TRIED (\d+) GOT THROUGH (\[.*?\]) ENVIRONMENT (\[.*?\]) OPEN (\d+)", done.log)
    assert tried is not None, done.log
    assert int(tried[1]) >= 70
    assert (tried[2], tried[3]) == ("[]", "[]")
    assert int(tried[4]) <= 6  # its input, its output, what it writes, and the file that is being read
    assert ended == []
    after = canary.stat()
    assert canary.read_text() == "alive"
    assert (before.st_mode, before.st_uid, before.st_mtime_ns) == (after.st_mode, after.st_uid, after.st_mtime_ns)
    for server, take in (
        (tcp, tcp.accept),
        (udp, lambda: udp.recv(9)),
        (unix, unix.accept),
        (abstract, abstract.accept),
    ):
        with pytest.raises(BlockingIOError):
            take()
        assert server.fileno() >= 0
    assert list(out.iterdir()) == [done.path]

    with torch.random.fork_rng(devices=[]):
        eager = network_of(Source(path=hostile.good(tmp_path), factory="build", arguments={"width": 3}))
    assert differences(eager, Exported().read(done.path, None), EXAMPLE) == []


def test_a_forged_result_is_looked_at_like_a_strangers_file(tmp_path: Path, out: Path) -> None:
    archive = tmp_path / "forged.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("forged/archive_format", "pt2")
        file.writestr("forged/models/model.json", '{"hostile": true}')
    path = hostile.forging(tmp_path, archive.read_bytes(), b'{"done": true}')
    said = refusal(path, out)
    assert "forging.pt2" in said or "Not a network" in said


def test_nothing_is_run_while_the_sandbox_is_off(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SANDBOX_SETTING)
    assert not converter.state().usable
    assert f"Set {SANDBOX_SETTING}=on" in refusal(hostile.good(tmp_path), out)


def test_nothing_is_run_where_no_walls_can_be_had(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        probe, "find", lambda: probe.Found(reason="No sandbox can be had on this machine: no Landlock.")
    )
    said = refusal(hostile.saying(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')"), out)
    assert "no Landlock" in said
    assert "unifiednn pack" in said
    assert not (tmp_path / "ran").exists()


def test_files_that_are_not_there_and_results_that_are_are_findings(tmp_path: Path, out: Path) -> None:
    good = hostile.good(tmp_path)
    assert "There is no file" in refusal(tmp_path / "missing.py", out)
    assert "There is no file" in refusal(good, out, companion=tmp_path / "missing.py")
    mine = out / "good.pt2"
    mine.write_text("mine")
    with pytest.raises(BadInput, match="exists already"):
        convert(good, out)
    assert mine.read_text() == "mine"


def _torchscript(folder: Path) -> tuple[Path, dict[str, Any]]:
    path = folder / "scripted.pt"
    network = network_of(Source(path=hostile.good(folder), factory="build"))
    torch.jit.save(torch.jit.script(network), path)  # type: ignore[no-untyped-call]
    return path, {"factory": ""}


def _pickle(folder: Path) -> tuple[Path, dict[str, Any]]:
    path, code = folder / "whole.pt", hostile.good(folder)
    torch.save(network_of(Source(path=code, factory="build")), path)
    return path, {"factory": "", "companion": code}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", [_torchscript, _pickle])
def test_torchscript_and_pickles_convert_to_the_same_bits(
    tmp_path: Path, out: Path, kind: Callable[[Path], tuple[Path, dict[str, Any]]]
) -> None:
    with torch.random.fork_rng(devices=[]):
        path, request = kind(tmp_path)
        del sys.modules["good"]
        eager = network_of(Source(path=hostile.good(tmp_path), factory="build"))
    done = convert(path, out, **request)
    assert differences(eager, Exported().read(done.path, None), EXAMPLE) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("while True: pass", "processor time"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "processor time"),
        ("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(3600)", "ran for more than"),
        ("import signal, threading\nsignal.pthread_kill(threading.get_ident(), signal.SIGSTOP)", "ran for more than"),
        ("import threading\nthreading.Thread(target=print).start()", "can't start new thread"),
        ("import os\nos.open('/etc/passwd', os.O_PATH)", "Operation not permitted"),
        ("import os\nos.memfd_create('x')", "Operation not permitted"),
        ("import atexit, os\natexit.register(os._exit, 9)", "with code 9"),
        ("import time\ntime.sleep(3600)", "ran for more than"),
        ("import os, sys\nwhile True: os.write(1, b'x' * 4096)", "printed more than"),
        ("import os\nos._exit(0)", "ended its process before"),
        ("import os\nos._exit(7)", "with code 7"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("import ctypes\nctypes.string_at(0)", "crashed its process"),
        ("open('/etc/passwd')", "Errno"),
        ("open('/tmp/unifiednn-test', 'w')", "Operation not permitted"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 9))", "Operation not permitted"),
        ("import subprocess\nsubprocess.run(['/bin/true'])", "Operation not permitted"),
        ("bytearray(8 * 1024**3)", "MemoryError"),
        ("kept = []\nwhile True: kept.append(bytearray(64 * 1024**2))", "MemoryError"),
        ("import json, os, sys\nwhile True: os.write(json.loads(sys.argv[1])['result'], b'x' * 2**20)", "too large"),
        ("raise ValueError('\\x1b[31mred\\x1b[0m')", "\\x1b[31mred"),
        ("build = 3", "no class or function 'build'"),
    ],
)
def test_what_happened_is_said(tmp_path: Path, out: Path, code: str, says: str) -> None:
    wall_s = 25.0 if says == "ran for more than" else 250.0  # a busy machine gives processor time late
    limits = Limits(memory_bytes=1024**3, cpu_s=12, wall_s=wall_s, result_bytes=8 * 1024**2, log_bytes=64 * 1024)
    assert says in refusal(hostile.saying(tmp_path, code), out, limits)


@pytest.mark.long
def test_a_forged_network_without_a_word_is_refused(tmp_path: Path, out: Path) -> None:
    good = convert(hostile.good(tmp_path), out).path
    payload = good.read_bytes()
    good.unlink()
    assert "Ended early" in refusal(hostile.forging(tmp_path, payload, None), out)
    (tmp_path / "forging.py").unlink()
    assert convert(hostile.forging(tmp_path, payload, b'{"done": true}'), out).report.kind == "model"


class Evil:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch /tmp/unifiednn-was-here",)


def _weights_of_nobody() -> bytes:
    buffer = io.BytesIO()
    torch.save(torch.nn.Linear(1, 1), buffer)
    return buffer.getvalue()


@pytest.mark.long
@pytest.mark.parametrize(
    ("payload", "answer", "says"),
    [
        (b"", b'{"done": true}', "forging.pt2"),
        (pickle.dumps(Evil()), b'{"done": true}', "forging.pt2"),
        (_weights_of_nobody(), b'{"done": true}', "is no exported network"),
        (b"", b"[" * 20_000, "Ended early"),
        (b"", b"\xff\x00" * 40_000, "Ended early"),
        (
            b"",
            b'{"done": false, "title": "\\u001b[2J", "message": "Harm!\\n\\nnet.pt2: done", "remedy": "curl evil"}',
            "\\x1b[2J",
        ),
    ],
)
def test_what_code_writes_in_our_place_is_not_believed(
    tmp_path: Path, out: Path, payload: bytes, answer: bytes, says: str
) -> None:
    path = hostile.forging(tmp_path, payload, answer)
    with pytest.raises(BadInput) as caught:
        convert(path, out)
    assert says in " | ".join(f"{finding.title}: {finding}" for finding in caught.value.findings)
    assert all("curl" not in finding.remedy for finding in caught.value.findings)
    assert "\n" not in str(caught.value.findings[0])
    assert not Path("/tmp/unifiednn-was-here").exists()
    assert list(out.iterdir()) == []
