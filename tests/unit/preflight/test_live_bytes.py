import torch
from torch import nn

from tests.unit.formats import kit
from unifiednn_core.techniques.live_bytes import LiveBytes


def test_a_storage_counts_once_and_until_its_last_view_is_gone() -> None:
    with LiveBytes() as live:
        whole = torch.zeros(1000)
        row, block = whole[10:], whole.view(10, 100)
        assert live.current_bytes == 4000
        del whole, row
        assert live.current_bytes == 4000
        del block
        assert live.current_bytes == 0
    assert max(live.timeline) == 4000


def test_what_autograd_keeps_lives_until_the_gradient_is_there() -> None:
    with LiveBytes() as live:
        weight = torch.ones(100, requires_grad=True)
        loss = (weight * 2).exp().sum()
        assert live.current_bytes == 400 + 400 + 4  # exp keeps its result, the product is gone
        loss.backward()
        assert live.current_bytes == 400 + 4 + 400  # the gradient instead
        del loss
        weight.grad = None
        assert live.current_bytes == 400


def test_a_storage_that_grows_counts_with_its_new_size() -> None:
    with LiveBytes() as live:
        grown = torch.empty(0)
        grown.resize_(25)
        assert live.current_bytes == 100
        torch.ones(50, out=grown.resize_(0))
        assert live.current_bytes == 200


def test_a_storage_counts_as_the_blocks_that_an_allocator_hands_out() -> None:
    live = LiveBytes(block_bytes=512)
    held = [torch.zeros(1), torch.zeros(129)]
    assert live.track(held) == 512 + 1024
    assert live.track(held) == 0
    held.clear()
    assert live.current_bytes == 0


def test_tied_weights_count_once() -> None:
    network = kit.network("attention")
    own = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in network.parameters()}
    assert LiveBytes().track(network.parameters()) == sum(own.values())
    assert LiveBytes().track(network.state_dict().values()) == sum(own.values())


def test_it_changes_no_bit_of_what_it_watches() -> None:
    def trained(watched: bool) -> list[torch.Tensor]:
        network, inputs = kit.network("residual"), kit.batch("residual", 6)
        optimizer = torch.optim.Adam(network.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            if watched:
                with LiveBytes():
                    nn.functional.cross_entropy(network(inputs), torch.arange(6) % 3).backward()
                    optimizer.step()
            else:
                nn.functional.cross_entropy(network(inputs), torch.arange(6) % 3).backward()
                optimizer.step()
        return [tensor.clone() for tensor in network.state_dict().values()]

    assert all(torch.equal(a, b) for a, b in zip(trained(False), trained(True), strict=True))
