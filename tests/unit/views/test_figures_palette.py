import itertools

from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.views.figures.palette import sign

places = st.integers(0, 10_000)


def contrast(one, other):
    """Contrast ratio of two colours after WCAG 2, from 1 to 21."""

    def luminance(colour):
        shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


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


def test_colour_and_dash_tell_56_sub_models_apart():
    looks = {(sign(arrival).colour, sign(arrival).dash) for arrival in range(56)}
    assert len(looks) == 56


@given(places)
def test_the_letter_of_a_badge_is_readable_on_its_colour(arrival):
    mark = sign(arrival)
    inks = {ink: contrast(mark.colour, ink) for ink in ("#000000", "#FFFFFF")}
    assert inks[mark.ink] == max(inks.values()) >= 4.5


def test_neighbours_in_order_of_arrival_look_different_in_both_ways():
    for one, other in itertools.pairwise(range(60)):
        assert sign(one).colour != sign(other).colour
        assert sign(one).dash != sign(other).dash


def test_contrast_of_black_on_white_is_21():
    assert round(contrast("#000000", "#FFFFFF"), 6) == 21
