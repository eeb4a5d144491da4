"""Exports a network with a dynamic batch, or says why that fails and what to write instead."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any, Literal
from warnings import catch_warnings

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack import failures
from unifiednn_core.preflight.pack.calling import arguments_of, call, plain_outputs
from unifiednn_core.preflight.pack.regions import without_regions
from unifiednn_core.preflight.pack.request import Example, ExampleInput
from unifiednn_core.preflight.pack.samples import stored

Mode = Literal["train", "eval"]
_READ_VALUES = frozenset({torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default})


def example_inputs(example: Example, batch: int | None = None) -> tuple[Tensor, ...]:
    """A batch of each input, always the same; integers are 0 and 1, which every embedding has."""
    size = batch or example.batch
    generator = torch.Generator().manual_seed(0)
    held = [stored(example, given, size) for given in example.inputs]
    return tuple(
        _drawn(given, size, generator) if samples is None else samples
        for given, samples in zip(example.inputs, held, strict=True)
    )


def _drawn(given: ExampleInput, batch: int, generator: torch.Generator) -> Tensor:
    shape, dtype = (batch, *given.shape), getattr(torch, given.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def exported(network: nn.Module, example: Example, name: str, mode: Mode = "train") -> ExportedProgram:
    """Export a network in train or evaluation mode. Its buffers and the default RNG stay the same.

    Raises `BadInput` on `name` that says which line of code cannot be exported, and what to write instead.
    """
    network.train(mode == "train")
    _check_parts(network, name)
    with torch.random.fork_rng(devices=[]), _kept(network):
        _check_forward(network, example, name)
    args, kwargs = arguments_of(network, example, example_inputs(example))
    sizes = [{0: Dim("batch")} | dict.fromkeys(sorted(given.free), Dim.DYNAMIC) for given in example.inputs]
    by_place, by_name = arguments_of(network, example, sizes)
    dynamic = by_place or by_name
    with torch.random.fork_rng(devices=[]), _kept(network), plain_outputs(network):
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()), catch_warnings(action="ignore"):
                program = export(network, args, kwargs, dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # export fails in as many ways as Python can be written
            raise failures.of_export(error, name) from error
    if any(node.target in _READ_VALUES for node in program.graph.nodes):
        raise _wrong(name, *failures.DATA_DEPENDENT[1:])
    _drop_copies_onto_themselves(program)
    return without_regions(program, name)


def _drop_copies_onto_themselves(program: ExportedProgram) -> None:
    """Remove what export makes of `self.buffer = self.buffer.to(device)`, which changes nothing in the code."""
    graph = program.graph
    for node in [*graph.nodes]:
        if node.target is torch.ops.aten.copy_.default and not node.users and _is_same(*node.args[:2]):
            graph.erase_node(node)


def _is_same(buffer: Any, value: Any) -> bool:
    """Whether a value is the buffer itself, possibly through casts and moves that change nothing."""
    kept = buffer.meta["val"].dtype, buffer.meta["val"].device
    while value is not buffer and str(value.target).startswith("aten.to."):
        if (value.meta["val"].dtype, value.meta["val"].device) != kept:
            return False
        value = value.args[0]
    return value is buffer


@contextmanager
def unnoticed() -> Iterator[None]:
    """Hide from the code that it is exported: some libraries then choose other kernels, with other bits."""
    asked = ("is_compiling", "is_dynamo_compiling", "is_exporting")
    held = {name: getattr(torch.compiler, name) for name in asked}
    for name in asked:
        setattr(torch.compiler, name, lambda: False)
    try:
        yield
    finally:
        for name, function in held.items():
            setattr(torch.compiler, name, function)


def _check_parts(network: nn.Module, name: str) -> None:
    devices = {str(tensor.device) for tensor in (*network.parameters(), *network.buffers())}
    if devices - {"cpu"}:
        raise _wrong(name, f"The network lies on {', '.join(sorted(devices))}.", "Make it on the CPU.")
    if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
        remedy = "Give the network as Python code, without torch.jit.script or torch.jit.trace."
        raise _wrong(name, "A part of the network is TorchScript.", remedy)
    names = [name for name, _ in (*network.named_parameters(), *network.named_buffers())]
    if odd := [name for name in names if not re.fullmatch(r"[A-Za-z0-9_. -]+", name)]:
        message = f"The name '{odd[0][:80]}' of a weight cannot be stored."
        raise _wrong(name, message, "Rename the layer: letters, digits, '_', '-' and blanks are known.")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise _wrong(name, "The network has no trainable weight.", "Give a network whose weights can be trained.")


def _check_forward(network: nn.Module, example: Example, name: str) -> None:
    for batch in (example.batch, example.batch + 1):
        inputs = example_inputs(example, batch)
        try:
            with torch.no_grad():
                outputs = call(network, example, inputs)
        except BadInput:
            raise
        except Exception as error:
            raise failures.of_call(error, network, example, name) from error
        if not outputs:
            raise _wrong(name, "forward gives no tensor.", "Return the scores, or a loss.")
        shapes = {key: [*tensor.shape] for key, tensor in outputs.items()}
        if not any(shape in ([], [1]) or shape[0] == batch for shape in shapes.values()):
            message = f"For a batch of {batch} forward gives {', '.join(map(str, shapes.values()))}."
            raise _wrong(name, message, "Return a tensor with a row for each sample, or a loss that is one number.")


@contextmanager
def _kept(network: nn.Module) -> Iterator[None]:
    """Restore the buffers at the end: normalisation changes them in every forward pass."""
    held = [(buffer, buffer.detach().clone()) for buffer in network.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, values in held:
                buffer.copy_(values)


def _wrong(name: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Not a network to train", name, message, remedy)
