"""Exports a network with a dynamic batch, or says why that fails and what to write instead."""

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.calling import arguments_of, call, plain_outputs
from unifiednn_core.preflight.pack.regions import without_regions
from unifiednn_core.preflight.pack.request import Example, ExampleInput
from unifiednn_core.preflight.pack.samples import stored

Mode = Literal["train", "eval"]
_READ_VALUES = frozenset({torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default})
_DATA_DEPENDENT = (
    r"(?i)data.dependent|GuardOnDataDependent|_local_scalar_dense|item\(\)|nonzero|\bu\d+\b",
    "What the network does depends on the values of its input (an `if`, `.item()`, a mask as index).",
    "Choose with torch.where instead of `if`, multiply by a mask instead of indexing with it, or use torch.cond.",
)
# Pattern of torch's message or of the files on the way to it, message, remedy. The first match is shown.
_FAILURES = (
    (
        r"nn/modules/transformer\.py|_detect_is_causal_mask",
        "TransformerEncoder looks at the values of its mask to find out whether it is causal.",
        "Pass is_causal=True (or False) together with the mask.",
    ),
    (
        r"nn/modules/(batchnorm|instancenorm)\.py",
        "A normalisation with momentum=None computes its momentum from the value of its counter.",
        "Give it a momentum, such as 0.1.",
    ),
    _DATA_DEPENDENT,
    (
        r"Constraints violated \(L\['\w+'\]\.size\(\)\[(?P<place>\d+)\]\)",
        "The network works for only one size of dimension {place}.",
        "Recurrent layers take sequences of one length: remove --free there.",
    ),
    (
        r"specialized it to be a constant|Constraints violated",
        "The network works for only one batch size.",
        "Take sizes from the input (x.shape[0] and not len(x), x.flatten(1), -1 in reshape), not from numbers.",
    ),
    (
        r"(?i)backed by numpy|\.numpy\(\)|FakeTensor.*numpy|Cannot access data pointer",
        "The network leaves torch, for instance through NumPy.",
        "Write that part of forward with torch's own functions.",
    ),
)


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
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                program = export(network, args, kwargs, dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # export fails in as many ways as Python can be written
            raise _explained(error, name) from error
    if any(node.target in _READ_VALUES for node in program.graph.nodes):
        raise _wrong(name, *_DATA_DEPENDENT[1:])
    return without_regions(program, name)


def _check_parts(network: nn.Module, name: str) -> None:
    devices = {str(tensor.device) for tensor in (*network.parameters(), *network.buffers())}
    if devices - {"cpu"}:
        raise _wrong(name, f"The network lies on {', '.join(sorted(devices))}.", "Make it on the CPU.")
    if any(isinstance(module, torch.jit.ScriptModule) for module in network.modules()):
        remedy = "Give the network as Python code, without torch.jit.script or torch.jit.trace."
        raise _wrong(name, "A part of the network is TorchScript.", remedy)
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
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
            taken = " and ".join(
                f"{[*tensor.shape]} of {given.dtype}" for tensor, given in zip(inputs, example.inputs, strict=True)
            )
            message = f"The network does not take a batch {taken}: {text}."
            remedy = "Give the shape of one sample with --input, without the batch, and its type."
            if isinstance(error, TypeError) and "required positional argument" in str(error):
                remedy = "Give every tensor that forward takes, by its name: --input src=35:int64 --input tgt=35:int64."
            raise _wrong(name, message, remedy) from error
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


def _explained(error: Exception, name: str) -> BadInput:
    """Why export failed, in which line of the user's code, and what to write instead."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f"{type(error).__name__}: {error}"
    searched = "\n".join([text, *(frame.filename for frame in frames[-12:])])
    message = f"torch cannot export the network: {text.splitlines()[0].rstrip('.')[:300]}."
    remedy = "Write forward with plain tensor operations that do not depend on values."
    for pattern, known_message, known_remedy in _FAILURES:
        if (match := re.search(pattern, searched)) is not None:
            message, remedy = known_message.format(**match.groupdict()), known_remedy
            break
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    not_users = (*libraries, str(Path(__file__).resolve().parents[2]), "<")
    users = [frame for frame in frames if not frame.filename.startswith(not_users)]
    if users and users[-1].line:
        message += f" It is line {users[-1].lineno}: `{users[-1].line}`."
    return BadInput.of("Cannot be exported", name, message, remedy)


def _wrong(name: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Not a network to train", name, message, remedy)
