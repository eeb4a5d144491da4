"""Predictions against what real workers take; the resident size is what does not depend on who else runs here."""

import pytest

from tools.bench.prediction import BATCH_SIZES, NETWORKS, measure

pytestmark = pytest.mark.new_interpreters


@pytest.mark.parametrize(("network", "batch_size"), [("transformer", 128)])
def test_the_peak_of_a_run_is_predicted(network: str, batch_size: int) -> None:
    for found in measure([network], [batch_size]):
        assert found.holds, found


@pytest.mark.long
def test_the_peak_of_every_sample_network_is_predicted_at_every_batch_size() -> None:
    found = measure()
    assert len(found) == 2 * len(NETWORKS) * len(BATCH_SIZES)
    assert [entry for entry in found if not entry.holds] == []
