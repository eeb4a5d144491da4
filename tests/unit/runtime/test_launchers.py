import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from unifiednn_core.base.paths import Home
from unifiednn_core.machine import allocator
from unifiednn_core.runtime import launchers
from unifiednn_core.runtime.launchers import WorkMark, last_mark, opened_log


def test_a_mark_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from unifiednn_core.runtime.launchers import WorkMark\n"
        "at_work = WorkMark(Path(sys.argv[1]))\n"
        "for step in range(1, 8):\n"
        "    at_work.set(1, 'lenet', f'step {step}')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "runs" / "r" / "at_work"
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=dict(os.environ), check=False)
    assert done.returncode == -signal.SIGKILL
    assert last_mark(path) == "lenet:step 7"


def test_an_idle_worker_has_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "at_work"
    assert last_mark(path) is None
    at_work = WorkMark(path)
    assert last_mark(path) is None
    at_work.set(1, "a" * 500, "step 1")
    assert last_mark(path) == "a" * 256
    at_work.set(1, "b", "loading")
    assert last_mark(path) == "b:loading"
    for operator in ("aten.convolution.default", "aten.div.Tensor"):
        at_work.operator(1, operator)
        assert last_mark(path) == f"b:loading in {operator}"
    at_work.set(3, "c", "step 4")
    assert last_mark(path) == "b:loading in aten.div.Tensor\nc:step 4"
    at_work.set(1, "b", "")
    assert last_mark(path) == "c:step 4"
    at_work.clear()
    assert last_mark(path) is None


def test_a_worker_gets_its_own_allocator_and_a_baseline_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, dict[str, str]] = {}

    def start(command: list[str], home: Home, run_id: str, **how: Any) -> tuple[Any, int]:
        started[run_id] = how["env"]
        return SimpleNamespace(poll=lambda: 0), 1

    monkeypatch.setattr(launchers.confinement, "start", start)
    monkeypatch.setattr(allocator, "library", lambda: Path("/lib/libmimalloc.so.3"))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    launcher = launchers.LocalLauncher(Home(tmp_path))
    for mode in ("hybrid", "concurrent", "sequential"):
        launcher.start(mode, 1, mode)
    assert started["hybrid"]["LD_PRELOAD"] == "/lib/libmimalloc.so.3"
    assert "LD_PRELOAD" not in started["concurrent"] | started["sequential"]
    assert "LD_PRELOAD" not in launchers.training_environment(1), "of each script"


def test_a_worker_gets_no_credentials_of_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWOL", "stays")
    environment = launchers.training_environment(1)
    assert "secret" not in environment.values() and environment["AWOL"] == "stays"


def test_what_a_worker_put_in_place_of_its_files_is_neither_read_nor_written(tmp_path: Path) -> None:
    (tmp_path / "others").write_text("a key")
    for trap in ("link", "pipe"):
        folder = tmp_path / trap
        folder.mkdir()
        for name in ("worker.log", "at_work"):
            (folder / name).symlink_to(tmp_path / "others") if trap == "link" else os.mkfifo(folder / name)
        assert last_mark(folder / "at_work") is None
        for text in (b"one", b"two"):
            with opened_log(folder, "worker.log") as log:
                log.write(text)
        assert (folder / "worker.log").read_bytes() == b"onetwo"
    assert (tmp_path / "others").read_text() == "a key"
