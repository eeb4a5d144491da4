"""A network trains in a hybrid with the bits of plain torch, in every format that can hold it."""

import pytest

from tests.contract import format_table
from tests.contract.format_networks import CASES
from unifiednn_core.formats.registry import FORMATS

MARKS = {"autoencoder": (), "transformer": (pytest.mark.slow,), "lstm": (pytest.mark.slow,)}
OF_TORCH_ALONE = {"autoencoder", "transformer"}
"""Networks of torch's layers alone, which a pickled network may hold."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, (pytest.mark.long,))) for name in CASES])
def test_a_network_trains_with_the_bits_of_plain_torch_in_every_format_that_can_hold_it(name: str) -> None:
    case = CASES[name]
    found = dict(zip([known.name for known in FORMATS], format_table.row(case), strict=True))
    taken = {known for known, text in found.items() if text in (format_table.EQUAL, format_table.FUSED)}
    expected = {"pt2"}
    expected |= {"state_dict", "safetensors"} if case.architecture else set()
    expected |= {"huggingface"} if case.config else set()
    expected |= {"module"} if name in OF_TORCH_ALONE else set()
    assert expected <= taken, found
