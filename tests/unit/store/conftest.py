"""All tests of the store that open one run on both kinds of database."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import pytest

from tests.databases import BOTH, POSTGRESQL, NewUrl


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames and "only_sqlite" not in metafunc.fixturenames:
        metafunc.parametrize("kind", BOTH, indirect=True, scope="module")


@pytest.fixture
def only_sqlite() -> None:
    """For what only SQLite does."""


@pytest.fixture(scope="module")
def new_url(kind: str, request: pytest.FixtureRequest) -> NewUrl:
    """Gives URLs of new databases, which end with their context."""
    if kind == POSTGRESQL:
        new: NewUrl = request.getfixturevalue("postgresql").new
        return new

    @contextmanager
    def sqlite() -> Iterator[str]:
        with TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/store.db"

    return sqlite
