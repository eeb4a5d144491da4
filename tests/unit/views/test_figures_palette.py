from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.views.figures.palette import sign

places = st.integers(0, 10_000)


@given(st.lists(places, min_size=2, unique=True))
def test_no_two_sub_models_share_a_letter(arrivals):
    letters = [sign(arrival).letter for arrival in arrivals]
    assert len(set(letters)) == len(letters)


def test_letters_go_on_after_z_as_spreadsheets_do():
    assert [sign(arrival).letter for arrival in (0, 25, 26, 51, 52, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
    ]
