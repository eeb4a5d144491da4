"""Saved tensors come back bit by bit, however a network saves them; what backward does not read is not kept."""

import gc
import weakref

import pytest
import torch
from torch import Tensor, nn

from tests.unit.techniques.networks import convolutions, example
from tests.unit.techniques.odd_networks import ODD, odd
from unifiednn_core.spec.techniques import Checkpointing, Compression, DropIT
from unifiednn_core.techniques import compression
from unifiednn_core.techniques.build import NONE, built
from unifiednn_core.techniques.compression import Packing
from unifiednn_core.techniques.saved import BackwardNeed, SavedTensors
from unifiednn_core.testing.techniques import check_technique, take_step


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("technique", [Compression(), DropIT(keep=1.0)], ids=["compression", "dropit"])
def test_odd_networks_keep_their_bits(kind, technique):
    check_technique(technique, [example(lambda: odd(kind))])


@pytest.mark.parametrize("first", [Compression(), DropIT(keep=1.0)], ids=["compression", "dropit"])
def test_what_segments_keep_is_packed_too(first):
    make = example(convolutions)
    plain, alone, both = (
        take_step(*make(), built(asked)) for asked in ([], [Checkpointing()], [first, Checkpointing()])
    )
    assert both.same_bits(plain) and both.saved_bytes <= alone.saved_bytes < plain.saved_bytes


@pytest.mark.parametrize("kind", ["pools", "convolutions"])
def test_no_backward_reads_what_is_not_kept(kind, monkeypatch):
    """Elements that nobody keeps are whatever lies in memory; here they are NaN."""
    make = example(convolutions if kind == "convolutions" else lambda: odd(kind))
    unread = []

    def unpack(self) -> Tensor:
        unread.append(self.count)
        return torch.full((self.count,), torch.nan, dtype=self.dtype)

    monkeypatch.setattr(compression._Nothing, "unpack", unpack)
    assert take_step(*make(), built([Compression()])).same_bits(take_step(*make())) and unread


def test_a_change_in_place_of_what_backward_needs_is_refused_as_torch_does():
    def changed(x: Tensor, techniques) -> None:
        with techniques.part(nn.Identity()):
            y = x * 1.5
            z = y.exp() * y
            y.add_(1)
            z.sum().backward()

    x = torch.randn(64, 64, requires_grad=True)
    for techniques in (NONE, built([Compression()])):
        with pytest.raises(RuntimeError, match=r"in ?place"):
            changed(x, techniques)


class Counting:
    """Takes everything, and counts."""

    shared = True

    def __init__(self):
        self.taken: list[tuple[int, BackwardNeed]] = []

    def pack(self, flat: Tensor, need: BackwardNeed):
        self.taken.append((flat.numel(), need))
        return Copied(flat.clone())


class Copied:
    complete = True

    def __init__(self, flat: Tensor):
        self.flat = flat

    def unpack(self) -> Tensor:
        return self.flat


def test_views_of_the_same_memory_are_packed_once_and_others_are_not_mixed_up():
    codec, x = Counting(), torch.randn(8, 4, 4, requires_grad=True)
    with SavedTensors([codec], nn.Identity()):
        y = x.exp()  # saves its result
        z = y * y.transpose(1, 2) + y.view(8, 16).sum(1).view(8, 1, 1) * y[:, :1]
        assert [count for count, _ in codec.taken].count(128) == 1
        for _ in range(20):  # addresses come again
            z = (z * 1.01).tanh()
        z.sum().backward()
    found, x.grad = x.grad, None
    y = x.exp()
    z = y * y.transpose(1, 2) + y.view(8, 16).sum(1).view(8, 1, 1) * y[:, :1]
    for _ in range(20):
        z = (z * 1.01).tanh()
    z.sum().backward()
    assert torch.equal(found, x.grad) and len(codec.taken) > 20


def test_weights_and_the_batch_are_left_alone():
    codec, layer, batch = Counting(), nn.Linear(16, 16), torch.randn(8, 16)
    with SavedTensors([codec], layer, [batch]):
        layer(batch).sum().backward()
    assert not codec.taken
    with SavedTensors([codec], nn.Identity()):  # the control
        layer(batch).sum().backward()
    assert codec.taken


def test_what_is_not_plain_memory_stays():
    sparse, x = torch.eye(32).to_sparse(), torch.randn(32, 32, requires_grad=True)
    codec = Counting()
    with SavedTensors([codec, Packing()], nn.Identity()):
        torch.sparse.mm(sparse, x).sum().backward()
        (torch.randn(32, 32, dtype=torch.complex64).conj().imag * x).sum().backward()
    assert not codec.taken


def test_packed_forms_go_with_backward():
    """The step's peak would else be higher than without packing."""
    network, inputs, targets = example(convolutions)()
    with SavedTensors([Packing()], network, [inputs]) as context:
        nn.functional.cross_entropy(network(inputs), targets).backward()
        forms = [of for _, known in context._known.values() for of in known.values()]
        assert forms and not any(form() for form in forms)


@pytest.mark.parametrize("finished", [False, True])
def test_a_part_leaves_nothing_behind(finished):
    """Saved results would else hold their own operator, and the context its own hooks."""
    gc.collect()
    gc.disable()
    try:
        network, inputs, targets = example(convolutions)()
        with built([Compression()]).part(network, [inputs]):
            loss = nn.functional.cross_entropy(network(inputs).exp(), targets)
            if finished:
                loss.backward()
        living = [weakref.ref(one.untyped_storage()) for one in (loss, inputs, targets)]
        del loss, inputs, targets
        assert not any(one() for one in living)
    finally:
        gc.enable()


def test_backward_may_run_twice():
    network, inputs, targets = example(convolutions)()
    with built([Compression()]).part(network, [inputs]):
        loss = nn.functional.cross_entropy(network(inputs), targets)
        loss.backward(retain_graph=True)
        once = [one.grad.clone() for one in network.parameters()]
        network.zero_grad()
        loss.backward()
    assert all(torch.equal(one.grad, before) for one, before in zip(network.parameters(), once, strict=True))
