import gc
import os
import signal
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client

# A background shell makes its children ignore Ctrl-C; the processes that tests start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: it is a wall-clock assert, which fails on a busy machine. `make test-long` uses the profile "nightly".
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=200)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all that was imported."""
    gc.freeze()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


@pytest.fixture(scope="session", autouse=True)
def _one_intake_process() -> Iterator[None]:
    """All tests of this process share one intake process, which starts with the first job."""
    yield
    client.stop()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Socket of a process that forks workers and servers."""
    path = tmp_path_factory.mktemp("zygote") / "socket"
    command = [sys.executable, "-m", "tests.integration.zygote", str(path)]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], env=environment, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path
        process.stdin.close()  # type: ignore[union-attr]
