"""Compares a packed network with the code that it came from: training must give equal bits."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.pack.exporting import example_input
from unifiednn_core.preflight.pack.request import Example

LEARNING_RATE = 0.01
SEED = 0
ROUNDING = 1e-4
EVALUATION = "the output in evaluation"


def differences(network: nn.Module, definition: Definition, example: Example) -> list[str]:
    """Where the packed network differs from `network`, which is trained on the way.

    Training must give equal bits, evaluation equal numbers up to rounding, and evaluation must change no state.
    """
    packed = definition.build()
    with torch.random.fork_rng(devices=[]):
        return [what for what, equal in _compared(network.train(), packed.train(), example) if not equal]


def _compared(network: nn.Module, packed: nn.Module, example: Example) -> Iterator[tuple[str, bool]]:
    def equal_states() -> bool:
        return state_sha256(network.state_dict()) == state_sha256(packed.state_dict())

    yield "the initial weights", equal_states()
    for batch in (example.batch, example.batch + 1):
        inputs = example_input(example, batch)
        outputs = [state_sha256({"output": _step(module, inputs)}) for module in (network, packed)]
        yield f"the output of a batch of {batch}", outputs[0] == outputs[1]
        yield f"the weights after a training step with a batch of {batch}", equal_states()
    inputs = example_input(example)
    first, second = _evaluated(network, inputs), _evaluated(packed, inputs)
    # In evaluation torch uses other kernels for some layers of Python code, which round differently.
    yield EVALUATION, torch.allclose(first, second, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    yield "the buffers after an evaluation", equal_states()


@torch.no_grad()
def _evaluated(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(SEED)  # some networks draw random numbers in evaluation, too
    outputs: Tensor = network.eval()(inputs)
    return outputs


def _step(network: nn.Module, inputs: Tensor) -> Tensor:
    torch.manual_seed(SEED)
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    outputs: Tensor = network(inputs)
    outputs.float().square().mean().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return outputs.detach()
