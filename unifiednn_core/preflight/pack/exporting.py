"""Exports a network in train mode with a dynamic batch, or says why that fails and what to write instead."""

import re
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.request import Example
from unifiednn_core.preflight.pack.samples import stored

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
        r"specialized it to be a constant|Constraints violated \((?P<size>\w+)\)",
        "The network works for only one {size}.",
        "Take sizes from the input (x.shape[0], x.flatten(1), -1 in reshape) instead of writing them as numbers. "
        "Recurrent layers take sequences of one length: remove --free there.",
    ),
    (
        r"(?i)backed by numpy|\.numpy\(\)|FakeTensor.*numpy|Cannot access data pointer",
        "The network leaves torch, for instance through NumPy.",
        "Write that part of forward with torch's own functions.",
    ),
)


def example_input(example: Example, batch: int | None = None) -> Tensor:
    """A batch of inputs, always the same; integers are 0 and 1, which every embedding has."""
    first = example.inputs[0]
    if (samples := stored(example, first, batch or example.batch)) is not None:
        return samples
    shape, dtype = (batch or example.batch, *first.shape), getattr(torch, first.dtype)
    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def exported(network: nn.Module, example: Example, name: str) -> ExportedProgram:
    """Export a network. Its buffers and the default RNG stay the same; its mode becomes train mode.

    Raises `BadInput` on `name` that says which line of code cannot be exported, and what to write instead.
    """
    network.train()
    _check_parts(network, name)
    sizes = {0: Dim("batch")} | {place: Dim(f"size{place}") for place in sorted(example.inputs[0].free)}
    with torch.random.fork_rng(devices=[]), _kept(network):
        _check_forward(network, example, name)
    with torch.random.fork_rng(devices=[]), _kept(network):
        try:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                program = export(network, (example_input(example),), dynamic_shapes=(sizes,), strict=False)
        except Exception as error:  # export fails in as many ways as Python can be written
            raise _explained(error, name) from error
    if any(node.target in _READ_VALUES for node in program.graph.nodes):
        raise _wrong(name, *_DATA_DEPENDENT[1:])
    return program


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
        inputs = example_input(example, batch)
        try:
            with torch.no_grad():
                outputs = network(inputs)
        except Exception as error:
            text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
            message = f"The network does not take a batch {list(inputs.shape)} of {example.inputs[0].dtype}: {text}."
            remedy = "Give the shape of one sample with --input, without the batch, and its type with --dtype."
            if isinstance(error, TypeError) and "required positional argument" in str(error):
                remedy = "Wrap it in a module whose forward takes one tensor and makes the other inputs itself."
            raise _wrong(name, message, remedy) from error
        if not isinstance(outputs, Tensor):
            message = f"forward gives a {type(outputs).__name__}; a network must return exactly one tensor."
            remedy = "Return only the scores: wrap it in a module whose forward picks them, such as `net(x)[0]`."
            raise _wrong(name, message, remedy)
        if outputs.dim() == 0 or len(outputs) != batch:
            message = f"For a batch of {batch} forward gives {list(outputs.shape)}; it must have a row per sample."
            raise _wrong(name, message, "Return one row for each sample; compute the loss outside of the network.")


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
            size = (match.groupdict().get("size") or "batch").replace("size", "size of dimension ")
            message = known_message.format(size="batch size" if size == "batch" else size)
            remedy = known_remedy
            break
    libraries = [sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")]
    not_users = (*libraries, str(Path(__file__).resolve().parents[2]), "<")
    users = [frame for frame in frames if not frame.filename.startswith(not_users)]
    if users and users[-1].line:
        message += f" It is line {users[-1].lineno}: `{users[-1].line}`."
    return BadInput.of("Cannot be exported", name, message, remedy)


def _wrong(name: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Not a network to train", name, message, remedy)
