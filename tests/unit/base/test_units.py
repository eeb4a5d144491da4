import pytest
from hypothesis import given
from hypothesis import strategies as st

from unifiednn_core.base.units import GIB, MIB, duration_text, memory_bytes, memory_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, "not available"),
        (0, "0.0 KiB"),
        (1536, "1.5 KiB"),
        (650 * 1024**2, "650 MiB"),
        (5 * 1024**2 + 1024**2 // 2, "5.5 MiB"),
        (10 * 1024**3, "10.0 GiB"),
    ],
)
def test_memory_is_told_in_binary_units(size_bytes: int | None, text: str) -> None:
    assert memory_text(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "not available"),
        (4.24, "4.2 s"),
        (59.99, "1 min 00 s"),
        (187, "3 min 07 s"),
        (3599.9, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (93_600, "1 d 02 h"),
    ],
)
def test_durations_are_told_in_the_units_people_use(seconds: float | None, text: str) -> None:
    assert duration_text(seconds) == text


@given(st.floats(0, 59 * 86_400))
def test_no_duration_is_told_with_sixty_of_anything(seconds: float) -> None:
    assert " 60 " not in f" {duration_text(seconds)} "
    assert not duration_text(seconds).startswith("60")


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4GiB", 4 * GIB),
        ("1.5 mib", MIB * 3 // 2),
        ("4096", 4096),
        (" 2 TiB ", 2048 * GIB),
        ("0", 0),
        ("4GB", None),
        ("-1", None),
        ("", None),
        ("GiB", None),
        ("²", None),
        ("1e9", None),
        ("4GiB x", None),
        ("9" * 400, None),
    ],
)
def test_sizes_are_read_in_binary_units(text: str, size_bytes: int | None) -> None:
    assert memory_bytes(text) == size_bytes


@given(st.integers(0, 10**15 - 1))
def test_a_number_of_bytes_is_read_exactly(size_bytes: int) -> None:
    assert memory_bytes(str(size_bytes)) == size_bytes
