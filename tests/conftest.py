import gc
import os
import random
import shutil
import signal
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import hypothesis
import pytest

from tests.databases import KIND_SETTING, POSTGRESQL, SQLITE, Databases
from tests.places import object_store, place  # noqa: F401  (fixtures)
from unifiednn_core.base import trouble
from unifiednn_core.base.paths import BLOBS_SETTING, DATABASE_SETTING, Home
from unifiednn_core.preflight import client
from unifiednn_core.store import Store

# A background shell makes its children ignore Ctrl-C; the processes that tests start must not inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The shell may point to a real home, a real database or a real folder of files: tests must not write there.
for _setting in (DATABASE_SETTING, BLOBS_SETTING):
    os.environ.pop(_setting, None)
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


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Databases]:
    """A server for the tests of this process; without one a test that asks for it is skipped."""
    databases = Databases()
    yield databases
    databases.close()


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    """Database of the homes of a test."""
    return str(getattr(request, "param", os.environ.get(KIND_SETTING, SQLITE)))


@pytest.fixture(autouse=True)
def _log_of_its_own() -> None:
    """Log errors again that an earlier test logged within the last minute."""
    # Without `monkeypatch`, which would then be undone after `home`, and bring the database of a home back.
    trouble._told_at_s.clear()


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables: to make them takes longer than most tests."""
    new = Home(tmp_path_factory.mktemp("empty") / "home")
    Store(f"sqlite:///{new.create().database}").close()
    return new.database


@pytest.fixture
def home(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Home]:
    home = Home(tmp_path / "home").create()
    with ExitStack() as stack:
        if kind == POSTGRESQL:
            stack.enter_context(request.getfixturevalue("postgresql").chosen())
        else:
            shutil.copy(request.getfixturevalue("empty"), home.database)
        yield home


@pytest.fixture(scope="session", autouse=True)
def _one_template() -> Iterator[None]:
    """All tests of this process share one template, which starts with the first use."""
    client.template._modules += FORKED
    yield
    client.stop()
