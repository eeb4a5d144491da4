"""The page `docs/FORMATS.md` says what is true; a few rows here, all of them in the long run."""

import pytest

from tests.contract import format_table
from tests.contract.format_networks import CASES
from unifiednn_core.formats.registry import FORMATS

WRITE = "docs/FORMATS.md is not what is found today: python -m tests.contract.format_table --write"


def rows_of_the_page() -> dict[str, list[str]]:
    lines = [line for line in format_table.PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)}


@pytest.mark.parametrize(
    "name", ["autoencoder", *(pytest.param(name, marks=pytest.mark.slow) for name in ("transformer", "lstm"))]
)
def test_a_row_of_the_page_is_what_training_finds(name: str) -> None:
    cells = format_table.row(CASES[name])
    assert format_table.EQUAL in cells
    said = [cell.partition(" (")[0] for cell in rows_of_the_page()[CASES[name].title]]
    assert said == [format_table.short(cell) for cell in cells], WRITE


def test_the_page_has_every_network_and_every_format() -> None:
    page, rows = format_table.PAGE.read_text(encoding="utf-8"), rows_of_the_page()
    assert page.startswith(format_table.HEAD), WRITE
    assert page.endswith(format_table.FOOT), WRITE
    assert rows["network"] == [known.name for known in FORMATS], WRITE
    assert {case.title for case in CASES.values()} <= rows.keys(), WRITE


@pytest.mark.long
def test_the_whole_page_is_what_training_finds() -> None:
    found = format_table.page({name: format_table.row(case) for name, case in CASES.items()})
    assert format_table.PAGE.read_text(encoding="utf-8") == found, WRITE
