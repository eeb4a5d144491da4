"""Activation compression leaves every bit, and less memory between forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.unit.techniques.networks import EXAMPLES, GRAPHS, convolutions, example
from unifiednn_core.spec.techniques import Compression
from unifiednn_core.techniques.build import NONE, built
from unifiednn_core.techniques.compression import Packing, Places, Two, _Cast, pack_bits, unpack_bits
from unifiednn_core.techniques.saved import SavedTensors
from unifiednn_core.testing.techniques import check_technique, take_step


@pytest.mark.parametrize("bfloat16", [False, True])
def test_the_contract(bfloat16):
    check_technique(Compression(bfloat16=bfloat16), [*EXAMPLES, *GRAPHS])


@given(st.integers(0, 3000), st.integers(0, 2**31))
@settings(deadline=None)
def test_bits_come_back(count, seed):
    mask = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.5
    packed = pack_bits(mask)
    assert packed.numel() == -(-count // 8) and torch.equal(unpack_bits(packed, mask.shape), mask)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("layout", ["rows", "channels last", "transposed", "gaps"])
def test_each_bit_of_what_is_packed_comes_back(dtype, layout):
    generator = torch.Generator().manual_seed(1)
    whole = torch.randint(-100, 100, (4, 6, 8, 10), generator=generator)
    saved = torch.where(torch.rand(whole.shape, generator=generator) < 0.7, torch.zeros_like(whole), whole).to(dtype)
    if dtype.is_floating_point:
        saved.view(-1)[::7] = torch.tensor(-0.0, dtype=dtype)
        saved.view(-1)[::11] = torch.tensor(float("nan"), dtype=dtype)
    saved = {
        "rows": lambda: saved,
        "channels last": lambda: saved.contiguous(memory_format=torch.channels_last),
        "transposed": lambda: saved.transpose(1, 3),
        "gaps": lambda: saved[:, ::2],
    }[layout]()
    with SavedTensors([Packing()], nn.Module()) as context:
        kept = context._pack(saved)
        back = context._unpack(kept)
    assert isinstance(kept.form.packed, (Places, Two, _Cast))
    assert back.shape == saved.shape and back.stride() == saved.stride() and back.dtype == dtype
    assert torch.equal(back.contiguous().view(torch.uint8), saved.contiguous().view(torch.uint8))


@pytest.mark.parametrize("graph", [False, True])
def test_two_fifths_of_what_a_network_with_relu_saves_go(graph):
    made = example(convolutions, graph=graph)
    alone, packed = (take_step(*made(), techniques).saved_bytes for techniques in (NONE, built([Compression()])))
    assert packed < 0.6 * alone
