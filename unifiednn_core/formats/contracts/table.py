"""The contracts of all operators that a graph may call, by their names in exported graphs."""

from collections.abc import Mapping, Sequence

from unifiednn_core.base.errors import ContractBroken
from unifiednn_core.formats.contracts import (
    elementwise,
    factories,
    indexing,
    losses,
    normalisation,
    products,
    reductions,
    sequences,
    shapes,
    sizes,
    spectra,
    windows,
)
from unifiednn_core.formats.contracts.contract import Broken, Contract
from unifiednn_core.formats.contracts.general import bind, check_general

FAMILIES = (
    elementwise,
    reductions,
    shapes,
    factories,
    products,
    windows,
    normalisation,
    sequences,
    indexing,
    losses,
    spectra,
)
ATEN: Mapping[str, Contract] = {name: one for family in FAMILIES for name, one in family.CONTRACTS.items()}
CONTRACTS: Mapping[str, Contract] = {**ATEN, **sizes.CONTRACTS}


def check_call(target: str, args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Check the call of an operator; returns whether the shape of its result depends on values.

    Raises `ContractBroken`, and `KeyError` for an operator without a contract.
    """
    contract = CONTRACTS[target]
    try:
        if target not in ATEN:
            sizes.check(args, kwargs)
            return False
        arguments = bind(target, args, kwargs)
        check_general(target, arguments, target in spectra.ALSO_COMPLEX)
        for rule in contract.rules:
            rule.check(arguments)
        return contract.depends_on_values(arguments)
    except Broken as problem:
        raise ContractBroken(target.removeprefix("torch.ops.aten."), str(problem)) from None
