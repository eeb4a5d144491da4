"""Every operator that a graph may use has a contract."""

from unifiednn_core.formats import operators
from unifiednn_core.formats.contracts.contract import Contract
from unifiednn_core.formats.contracts.table import CONTRACTS, FAMILIES


def test_an_operator_is_allowed_by_its_contract_alone() -> None:
    assert CONTRACTS.keys() | operators.ASSERTIONS == operators.ALLOWED
    assert len(CONTRACTS) > 300
    assert all(isinstance(contract, Contract) for contract in CONTRACTS.values())
    assert sum(len(family.CONTRACTS) for family in FAMILIES) == len(CONTRACTS) - len(operators.SIZES)  # none twice
