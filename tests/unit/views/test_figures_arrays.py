import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.views.reading import unpack
from unifiednn_core.views.figures.arrays import single, thin

values = st.floats(-1e6, 1e6, width=32)


def test_a_loss_beyond_float32_becomes_infinite_and_not_an_error():
    assert np.isinf(unpack(single([1e300]))).all() and len(unpack(single([]))) == 0


@given(st.lists(values, min_size=1, max_size=400), st.integers(4, 60))
def test_thinning_keeps_ends_extremes_order_and_the_limit(ys, limit):
    xs = list(map(float, range(len(ys))))
    kept_x, kept_y = thin(xs, ys, limit)
    assert len(kept_x) == len(kept_y) <= max(limit, min(len(ys), limit))
    assert (np.diff(kept_x) > 0).all()
    assert (kept_x[0], kept_x[-1]) == (xs[0], xs[-1])
    assert (kept_y.min(), kept_y.max()) == (min(ys), max(ys))
    assert [ys[int(x)] for x in kept_x] == kept_y.tolist()


@given(st.lists(values, max_size=60))
def test_short_curves_are_not_touched(ys):
    kept_x, kept_y = thin(range(len(ys)), ys, 60)
    assert kept_x.tolist() == list(range(len(ys)))
    assert kept_y.tolist() == ys


def test_a_spike_between_not_a_numbers_survives():
    ys = [float("nan")] * 5_000
    ys[2_345] = 7.0
    _, kept = thin(range(5_000), ys, 100)
    assert 7.0 in kept
