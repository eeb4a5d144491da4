"""Which memory a tensor covers, against sets of addresses."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from unifiednn_core.formats.contracts.general import overlap_in_part, overlaps_itself, span

STORAGE = torch.zeros(4096)
_DIMS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 13)), max_size=3)


@st.composite
def views(draw: st.DrawFn) -> Tensor:
    """Any view of one storage."""
    dims = draw(_DIMS)
    return STORAGE.as_strided([size for size, _ in dims], [stride for _, stride in dims], draw(st.integers(0, 20)))


@st.composite
def two_alike(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Two parts of one contiguous tensor, as networks slice them."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    whole = STORAGE[: torch.Size(shape).numel()].view(shape)

    def part() -> Tensor:
        taken = whole
        for dim, size in enumerate(shape):
            begin = draw(st.integers(0, size - 1))
            length, step = draw(st.integers(1, size - begin)), draw(st.integers(1, 2))
            taken = taken.narrow(dim, begin, length)[(slice(None),) * dim + (slice(None, None, step),)]
        return taken

    return part(), part()


def addresses(tensor: Tensor) -> list[int]:
    places = product(*map(range, tensor.shape))
    return [tensor.storage_offset() + sum(map(int.__mul__, at, tensor.stride())) for at in places]


@given(views())
def test_a_view_that_is_taken_for_free_of_overlaps_has_none(view: Tensor) -> None:
    found = addresses(view)
    if not overlaps_itself(view):
        assert len(set(found)) == len(found)
    if found:
        assert span(view) == (min(found), max(found) + 1)


@given(st.one_of(st.tuples(views(), views()), two_alike()))
def test_two_views_that_are_taken_for_apart_are_apart_or_the_same(pair: tuple[Tensor, Tensor]) -> None:
    one, two = map(addresses, pair)
    if not overlap_in_part(*pair):
        assert one == two or not set(one) & set(two)


@pytest.mark.parametrize(
    "parts",
    [
        lambda x: (x[:, :3], x[:, 3:]),
        lambda x: (x[:, ::2], x[:, 1::2]),
        lambda x: (x[1:], x[:1]),
        lambda x: x.t().chunk(2),
        lambda x: (x, x),
        lambda x: (x[:2], x[2:]),
    ],
)
def test_the_parts_that_networks_write_to_are_apart(parts: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
    one, two = parts(torch.zeros(4, 6))
    assert not overlap_in_part(one, two)
    assert not overlap_in_part(two, one)
    assert not overlaps_itself(one)


def test_what_is_shared_in_part_is_found() -> None:
    x = torch.zeros(6)
    assert overlap_in_part(x[1:], x[:-1])
    assert overlap_in_part(x.view(2, 3), x.view(3, 2))
    assert overlaps_itself(x[:1].expand(3))
    assert overlaps_itself(x.unfold(0, 3, 1))
