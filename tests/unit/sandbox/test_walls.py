"""The walls by themselves, in small processes without torch: what they hold, what is said where they cannot be had."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unifiednn_core.intake.remedies import SANDBOX_SETTING
from unifiednn_core.sandbox import bubblewrap, converter, landlock, probe

PLACE = Path(__file__).parent
ROOT = PLACE.parents[2]
NOBODY = 65_534
X86 = platform.machine() == "x86_64"

needs_landlock = pytest.mark.skipif(not landlock.version(), reason="the kernel has no Landlock")


def python(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PLACE / script), *arguments]
    return subprocess.run(
        command, env={"PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("user", [0, NOBODY], ids=["own user", "nobody"])
def test_seccomp_alone_lets_no_system_call_answer_but_the_listed_ones(user: int) -> None:
    if user and os.getuid() != 0:
        pytest.skip("only root can become another user")
    done = python("sweep.py", str(user))
    found = json.loads(done.stdout)
    assert found["swept"] > 400
    assert found["answered"] == []
    assert found["arguments that got through"] == []
    assert found["oom_score_adj"] == "1000"
    assert user == 0 or found["owner of its memory"] == 0  # nobody may trace it, no core is dumped


@pytest.mark.skipif(not X86, reason="calls of 32 bits are those of x86")
def test_a_system_call_of_another_machine_ends_the_process() -> None:
    assert python("sweep.py", "0", "int80").returncode in (-signal.SIGSYS, -signal.SIGSEGV)


def test_a_process_behind_walls_ends_with_the_one_that_started_it() -> None:
    start = f"import subprocess, sys; subprocess.run([sys.executable, {str(PLACE / 'sweep.py')!r}, '0', 'stay'])"
    parent = subprocess.Popen(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, env={"PYTHONPATH": str(ROOT)}, text=True
    )
    assert parent.stdout is not None
    child = Path("/proc", parent.stdout.readline().strip())
    assert child.is_dir()
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 30
    while child.is_dir() and "State:\tZ" not in child.joinpath("status").read_text():
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kept_back", "fake", "says"),
    [
        ("landlock", False, "the kernel has no Landlock"),
        ("seccomp", False, "A wall could not be put up"),
        ("landlock", True, "with bubblewrap, code got through (read a file"),
    ],
)
def test_foreign_code_is_refused_where_the_walls_do_not_hold(
    tmp_path: Path, kept_back: str, fake: bool, says: str
) -> None:
    """The kernel itself keeps a wall back, and what is called bubblewrap isolates nothing."""
    ran, folder = tmp_path / "ran", tmp_path / "bin"
    folder.mkdir()
    (tmp_path / "net.py").write_text(f"open({str(ran)!r}, 'w')")
    if fake:
        (folder / "bwrap").write_text('#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\nshift\nexec "$@"\n')
        (folder / "bwrap").chmod(0o700)
    done = python("keep_back.py", kept_back, str(tmp_path), PATH=str(folder), **{SANDBOX_SETTING: "on"})
    told = json.loads(done.stdout)
    assert (told["enabled"], told["walls"], told["title"]) == (True, [], "Needs the sandbox")
    assert says in told["reason"]
    assert told["reason"] == told["message"]
    assert "unifiednn pack" in told["remedy"]
    assert not ran.exists()


@needs_landlock
def test_bubblewrap_that_does_not_isolate_is_not_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o700)
    monkeypatch.setattr(bubblewrap, "program", lambda: str(fake))
    found = probe.find.__wrapped__()
    assert found.bubblewrap is None
    assert "seccomp" in found.walls


@pytest.mark.parametrize("setting", [None, "", "off", "0", "no", "maybe"])
def test_the_sandbox_is_off_unless_it_is_turned_on(monkeypatch: pytest.MonkeyPatch, setting: str | None) -> None:
    monkeypatch.delenv(SANDBOX_SETTING, raising=False)
    if setting is not None:
        monkeypatch.setenv(SANDBOX_SETTING, setting)
    monkeypatch.setattr(probe, "find", lambda: pytest.fail("nothing is tried while it is off"))
    state = converter.state()
    assert (state.enabled, state.usable, state.walls) == (False, False, ())
    assert f"Set {SANDBOX_SETTING}=on" in state.reason
