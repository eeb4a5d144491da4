"""The networks of the placement bench, narrowed: balanced, within every cap, with the bits of one device."""

from dataclasses import replace

import pytest

from tools.bench.networks import NETWORKS
from tools.bench.placement import MOST_OF_BOUND, NETS, measure, pipeline_s
from unifiednn_core.techniques.placement.costs import MachineRates

RATES = MachineRates()
NARROW = {
    "ResNet50": replace(NETS["ResNet50"], args={**NETS["ResNet50"].args, "width": 8}, shape=(2, 3, 32, 32)),
    "VGG16+CBAM": replace(
        NETS["VGG16+CBAM"], args={**NETWORKS["vgg16_cbam"].narrow, "width": 16}, shape=(4, 3, 64, 64)
    ),
    "Transformer LM": replace(NETS["Transformer LM"], shape=(2, 35)),
    "XLM-R": replace(NETS["XLM-R"], args=NETWORKS["xlm_roberta"].narrow, shape=(8, 56)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "XLM-R" else pytest.mark.long) for name in NARROW]
)
def test_a_network_of_the_paper_is_placed_within_its_caps_with_its_bits(name: str) -> None:
    rows = measure({name: NARROW[name]}, RATES, shares=(0.4, 0.6, 0.8), effort=10_000)
    assert [(row.devices, row.cap_share is None) for row in rows] == [(2, True), (2, False), (4, True), (4, False)]
    for row in rows:
        assert row.same_bits and 1 - 1e-9 <= row.of_bound <= MOST_OF_BOUND and row.balance >= 1 - 1e-9
        assert row.cap_share is None or (row.cap_share < 1 and row.peak_of_cap is not None and row.peak_of_cap <= 1)
    assert {row.used for row in rows if row.cap_share is not None} != {1}


def test_a_pipeline_is_as_fast_as_its_slowest_stage_in_the_long_run() -> None:
    assert pipeline_s([1.0, 1.0, 1.0, 1.0], 1) == 4.0
    assert pipeline_s([1.0, 2.0, 1.0], 5) == 4.0 + 4 * 2.0
