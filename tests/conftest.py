import gc
import os
import random
import shutil
import signal
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from unifiednn_core.base import trouble
from unifiednn_core.base.paths import Home
from unifiednn_core.preflight import client
from unifiednn_core.store import Store

# A background shell makes its children ignore Ctrl-C; the processes that tests start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The shell may point to a real home: tests must not write there.
_HOME = tempfile.TemporaryDirectory(prefix="unifiednn-tests-")
os.environ["UNIFIEDNN_HOME"] = _HOME.name

FORKED = ("tests.integration.forking", "unifiednn_core.compare.vanilla")
"""What the template of tests loads beside what the product's does."""

# No deadline: it is a wall-clock assert, which fails on a busy machine. `make test-long` uses the profile "nightly".
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25, derandomize=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=200)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run files, and the tests in them, in another order")


@pytest.hookimpl(tryfirst=True)  # pytest brings tests with one parameter of a module's fixture together afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("shuffle")
    if seed is not None:
        order = random.Random(seed)
        files = {item.path: order.random() for item in items}
        items.sort(key=lambda item: (files[item.path], str(item.path), order.random()))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all that was imported."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _log_of_its_own() -> None:
    """Log errors again that an earlier test logged within the last minute."""
    trouble._told_at_s.clear()


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables: to make them takes longer than most tests."""
    new = Home(tmp_path_factory.mktemp("empty") / "home")
    Store.open(new).close()
    return new.database


@pytest.fixture
def home(tmp_path: Path, empty: Path) -> Home:
    home = Home(tmp_path / "home").create()
    shutil.copy(empty, home.database)
    return home


@pytest.fixture(scope="session", autouse=True)
def _one_template() -> Iterator[None]:
    """All tests of this process share one template, which starts with the first use."""
    client.template._modules += FORKED
    yield
    client.stop()
