"""The page `docs/DATA.md` says what is true."""

import pytest

from tests.contract import data_table
from unifiednn_core.preflight import process

WRITE = "docs/DATA.md is not what is found today: python -m tests.contract.data_table --write"


def test_the_page_says_what_becomes_of_every_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_let_write", lambda allowed: None)
    assert data_table.PAGE.read_text(encoding="utf-8") == data_table.page([*map(data_table.row, data_table.FILES)]), (
        WRITE
    )
