"""Holds a packed network against the code that it came from: equal bits in training, or it is not handed out."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from unifiednn_core.intake.base import Definition
from unifiednn_core.packing.exporting import example_input
from unifiednn_core.packing.request import Example
from unifiednn_core.weights import state_sha256

LEARNING_RATE = 0.01
SEED = 0
ROUNDING = 1e-4


def differences(network: nn.Module, definition: Definition, example: Example) -> list[str]:
    """What the packed network does otherwise than `network`, which is trained on the way.

    Training has to give equal bits, evaluation the same numbers but for rounding.
    """
    packed = definition.build()
    with torch.random.fork_rng(devices=[]):
        return [what for what, equal in _compared(network.train(), packed.train(), example) if not equal]


def _compared(network: nn.Module, packed: nn.Module, example: Example) -> Iterator[tuple[str, bool]]:
    yield "the initial weights", state_sha256(network.state_dict()) == state_sha256(packed.state_dict())
    for batch in (example.batch, example.batch + 1):
        inputs = example_input(example, batch)
        yield f"the output of a batch of {batch}", _equal(_step(network, inputs), _step(packed, inputs))
        equal = state_sha256(network.state_dict()) == state_sha256(packed.state_dict())
        yield f"the weights after a training step with a batch of {batch}", equal
    inputs = example_input(example)
    with torch.no_grad():
        first, second = network.eval()(inputs), packed.eval()(inputs)
    # torch takes other kernels for some layers of Python code in evaluation, which round differently.
    yield "the output in evaluation", torch.allclose(first, second, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)


def _step(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(SEED)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    outputs: Tensor = network(inputs)
    outputs.float().square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return outputs.detach()


def _equal(first: Tensor, second: Tensor) -> bool:
    return state_sha256({"output": first}) == state_sha256({"output": second})
