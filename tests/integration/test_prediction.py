"""Predictions against what real workers take; the resident size is what does not depend on who else runs here."""

import pytest

from tools.bench.prediction import BATCH_SIZES, NETWORKS, measure

pytestmark = pytest.mark.new_interpreters


@pytest.mark.long  # tests/unit/preflight/test_need.py measures single steps
def test_the_peak_of_every_sample_network_is_predicted_at_every_batch_size() -> None:
    found = measure()
    assert len(found) == 2 * len(NETWORKS) * len(BATCH_SIZES)
    assert [entry for entry in found if not entry.holds] == []
