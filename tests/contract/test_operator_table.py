"""Every operator that a graph may use has a contract, and `docs/OPERATORS.md` says what it is."""

from tests.contract import operator_table
from unifiednn_core.formats import operators
from unifiednn_core.formats.contracts.contract import Contract
from unifiednn_core.formats.contracts.table import CONTRACTS, FAMILIES

WRITE = "docs/OPERATORS.md is not what the contracts say: python -m tests.contract.operator_table --write"


def test_the_page_says_what_the_contracts_are() -> None:
    assert operator_table.PAGE.read_text(encoding="utf-8") == operator_table.page(), WRITE


def test_an_operator_is_allowed_by_its_contract_alone() -> None:
    assert CONTRACTS.keys() | operators.ASSERTIONS == operators.ALLOWED
    assert len(CONTRACTS) > 300
    assert all(isinstance(contract, Contract) for contract in CONTRACTS.values())
    assert sum(len(family.CONTRACTS) for family in FAMILIES) == len(CONTRACTS) - len(operators.SIZES)  # none twice


def test_the_page_has_a_row_for_every_operator() -> None:
    named = operator_table.PAGE.read_text(encoding="utf-8").split("`")
    short = {name.removeprefix("torch.ops.aten.").removeprefix("_operator.") for name in operators.ALLOWED}
    assert short - set(named) == set()
