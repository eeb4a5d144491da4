"""Exports a network with a dynamic batch, or says why that fails, in which line, and what to write instead."""

import inspect
import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from warnings import catch_warnings

import torch
from torch import Tensor, fx, nn
from torch.export import Dim, ExportedProgram, export

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.calling import arguments_of, call, plain_outputs, stored
from unifiednn_core.preflight.pack.request import Example, ExampleInput

DATA_DEPENDENT = (
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
    (
        r"'size' failed to unpack[\s\S]*FakeTensor|pack_padded_sequence",
        "A size in the network depends on the values of its input, as in pack_padded_sequence.",
        "Run the recurrent layer over the padded sequence, and choose its steps with gather or a mask.",
    ),
    DATA_DEPENDENT,
    (
        r"Constraints violated \(L\['\w+'\]\.size\(\)\[(?P<place>\d+)\]\)",
        "The network works for only one size of dimension {place}.",
        "Recurrent layers take sequences of one length: remove --free there.",
    ),
    (
        r"specialized it to be a constant|Constraints violated",
        "The network works for only one batch size.",
        "Take sizes from the input (x.shape[0] and not len(x), x.flatten(1), -1 in reshape), not from numbers. "
        "Choose samples with torch.where or a factor of 0 or 1, not with a mask as index.",
    ),
    (
        r"(?i)backed by numpy|\.numpy\(\)|FakeTensor.*numpy|Cannot access data pointer",
        "The network leaves torch, for instance through NumPy.",
        "Write that part of forward with torch's own functions.",
    ),
)
_NO_GPU = r"(?i)no CUDA GPUs|not compiled with CUDA|NVIDIA driver|torch\.cuda\.is_available\(\) is False|CUDA error"
_ON_CPU = (
    'Make the network on the CPU: write `"cuda" if torch.cuda.is_available() else "cpu"` for the device, '
    "and the device of the input in forward. The server moves the network to its GPU."
)


def of_call(error: Exception, network: nn.Module, example: Example, name: str) -> BadInput:
    """What to do where forward does not take the example."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
    taken = " and ".join(f"{[example.batch, *given.shape]} of {given.dtype}" for given in example.inputs)
    message = f"The network does not take a batch {taken}: {text}{place_of(error)}."
    remedy = needs_gpu(error) or "Give the shape of one sample with --input, without the batch, and its type."
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        parameters = inspect.signature(network.forward).parameters.values()
        names = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
        given = {one.name or names[0]: f"{','.join(map(str, one.shape))}:{one.dtype}" for one in example.inputs}
        options = " ".join(f"--input {one}={given.get(one, 'SIZES:DTYPE')}" for one in names)
        remedy = (
            f"Give every tensor that forward takes, by its name: {options}. "
            "What is no tensor with a row for each sample, such as a hidden state, a wrapper's forward makes itself."
        )
    return BadInput.of("Not a network to train", name, message, remedy)


def of_export(error: Exception, name: str) -> BadInput:
    """What to write instead of what torch.export cannot follow."""
    frames = traceback.extract_tb(error.__traceback__)
    text = f"{type(error).__name__}: {error}"
    searched = "\n".join([text, *(frame.filename for frame in frames[-12:])])
    message = f"torch cannot export the network: {text.splitlines()[0].rstrip('.')[:300]}."
    remedy = "Write forward with plain tensor operations that do not depend on values."
    for pattern, known_message, known_remedy in _FAILURES:
        if (match := re.search(pattern, searched)) is not None:
            message, remedy = known_message.format(**match.groupdict()), known_remedy
            break
    if last := _last(error):
        message += f" It is line {last.lineno} of {Path(last.filename).name}: `{last.line}`."
    return BadInput.of("Cannot be exported", name, message, remedy)


def needs_gpu(error: BaseException) -> str | None:
    """The remedy for code that failed because it found no GPU; None for other errors."""
    return _ON_CPU if re.search(_NO_GPU, str(error)) else None


def place_of(error: BaseException) -> str:
    """The line of the user's code that led to an error, to stand at the end of a sentence; empty if there is none."""
    last = _last(error)
    return f", line {last.lineno} of {Path(last.filename).name}" if last else ""


def _last(error: BaseException) -> traceback.FrameSummary | None:
    """The last line on the way to the error that is neither of Python, nor of torch, nor ours."""
    stdlib, packages = sysconfig.get_path("stdlib"), ("site-packages", "dist-packages")
    ours, torchs = str(Path(__file__).resolve().parents[2]), str(Path(torch.__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        of_python = frame.filename.startswith(stdlib) and not any(one in frame.filename for one in packages)
        if frame.line and not of_python and not frame.filename.startswith((ours, torchs, "<")):
            return frame
    return None


Mode = Literal["train", "eval"]
_READ_VALUES = frozenset({torch.ops.aten.item.default, torch.ops.aten._local_scalar_dense.default})

_GRADIENTS = "wrap_with_set_grad_enabled"
_AUTOCAST = "wrap_with_autocast"
_REMEDIES = {
    _AUTOCAST: ("uses torch.autocast", "Leave it out of forward: the precision is that of the run."),
    "cond": ("uses torch.cond", "Compute both sides, and choose with torch.where."),
    "while_loop": ("uses while_loop", "Write a loop with a fixed number of turns."),
    "flex_attention": ("uses flex_attention", "Use torch.nn.functional.scaled_dot_product_attention."),
}


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
            raise of_export(error, name) from error
    if any(node.target in _READ_VALUES for node in program.graph.nodes):
        raise _wrong(name, *DATA_DEPENDENT[1:])
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
            raise of_call(error, network, example, name) from error
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


def without_regions(program: ExportedProgram, name: str) -> ExportedProgram:
    """Write out the regions of a program, such as `with torch.no_grad():`; raises `BadInput` on `name` for others.

    Export keeps a region as a graph of its own. Here its operators stand in the one graph, on detached operands: then
    they record no gradient, as in the code.
    """
    module = program.graph_module
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            _write_results_in_place(part.graph)
    if not any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in module.graph.nodes):
        return program
    writer = _Writer(module.graph, set(program.graph_signature.inputs_to_parameters), name)
    for node in [*module.graph.nodes]:
        if not isinstance(node.target, torch._ops.HigherOrderOperator):
            writer.follow(node)
            continue
        with module.graph.inserting_before(node):
            results = writer.region(module, node, node.args, gradients=True)
        for user in [*node.users]:
            result = results[user.args[1]]
            program.graph_signature.replace_all_uses(user.name, result.name)
            user.replace_all_uses_with(result)
            module.graph.erase_node(user)
        module.graph.erase_node(node)
    for node in [*module.graph.nodes]:
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return program


class _Writer:
    """Adds the operators of regions to a graph, and knows which values may have a gradient."""

    def __init__(self, graph: fx.Graph, parameters: set[str], name: str):
        self._graph, self._name = graph, name
        self._live = {node for node in graph.nodes if node.op == "placeholder" and node.name in parameters}
        self._written: dict[fx.Node, fx.Node] = {}
        """Result of an operator in place, and the value that it changed."""

    def follow(self, node: fx.Node) -> None:
        """Note whether the result of a node may have a gradient."""
        if self._live.intersection(node.all_input_nodes):
            self._live |= {node, *_changed(node)}

    def region(self, holder: fx.GraphModule, node: fx.Node, args: Sequence[Any], *, gradients: bool) -> list[fx.Node]:
        """Write out the region that `node` calls with `args`, inside one with or without `gradients`."""
        kind = str(node.target)
        if kind == _GRADIENTS:
            on, called, *operands = args
        elif kind == _AUTOCAST and args[2] is False:
            on, (called, *operands) = gradients, args[4:]
        else:
            raise self._refused(kind, node)
        inner = holder.get_submodule(called.target)
        if not isinstance(inner, fx.GraphModule):
            raise self._refused(kind, node)
        values: dict[fx.Node, fx.Node] = {}
        returned: Any = ()
        places = iter(operands)
        for part in inner.graph.nodes:
            if part.op == "placeholder":
                values[part] = next(places)
            elif part.op == "get_attr":
                values[part] = part
            elif part.op == "output":
                returned = part.args[0]
            elif isinstance(part.target, torch._ops.HigherOrderOperator):
                given = fx.map_arg(part.args, values.__getitem__)
                results = self.region(inner, part, given, gradients=on)
                values |= {user: results[user.args[1]] for user in part.users}
            elif part not in values:
                values[part] = self._copied(part, values, gradients=on)
        return [self._written.get(values[part], values[part]) for part in returned]

    def _copied(self, part: fx.Node, values: dict[fx.Node, fx.Node], *, gradients: bool) -> fx.Node:
        def operand(used: fx.Node) -> fx.Node:
            value = values[used]
            if gradients:
                return self._written.get(value, value)
            return self._detached(value) if value in self._live else value

        copied = self._graph.node_copy(part, operand)
        if gradients:
            self.follow(copied)
        for changed in _changed(part):
            self._written[copied] = self._written.get(values[changed], values[changed])
        return copied

    def _detached(self, value: fx.Node) -> fx.Node:
        detached = self._graph.call_function(torch.ops.aten.detach.default, (value,))
        detached.meta = {**value.meta, "val": value.meta["val"].detach()}
        return detached

    def _refused(self, kind: str, node: fx.Node) -> BadInput:
        what, remedy = _REMEDIES.get(kind, (f"uses {kind}, a graph in the graph", "Write it with plain operators."))
        place = re.findall(r"line (\d+).*\n\s*(.*)", str(node.meta.get("stack_trace", "")))
        line = f" It is line {place[-1][0]}: `{place[-1][1]}`." if place else ""
        return BadInput.of("Cannot be exported", self._name, f"The network {what}.{line}", remedy)


def _write_results_in_place(graph: fx.Graph) -> None:
    """Make `div(a, b, out=c)` `c.copy_(div(a, b))`: the operators that write into given memory are not taken."""
    for node in graph.nodes:
        plain = _without_out(node)
        if plain is None:
            continue
        out, kwargs = node.kwargs["out"], {name: value for name, value in node.kwargs.items() if name != "out"}
        with graph.inserting_before(node):
            result = graph.call_function(plain, node.args, kwargs)
            copied = graph.call_function(torch.ops.aten.copy_.default, (out, result))
        result.meta, copied.meta = dict(node.meta), dict(node.meta)
        node.replace_all_uses_with(copied)
        graph.erase_node(node)


def _without_out(node: fx.Node) -> torch._ops.OpOverload | None:
    """The operator that returns what this one writes into its argument `out`, of the same shape."""
    function, out = node.target, node.kwargs.get("out")
    if not isinstance(function, torch._ops.OpOverload) or not isinstance(out, fx.Node):
        return None
    if out.meta["val"].shape != node.meta["val"].shape or out.meta["val"].dtype != node.meta["val"].dtype:
        return None
    wanted = {name: kind for name, kind in _arguments(function).items() if name != "out"}
    packet = function.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((each for each in overloads if _arguments(each) == wanted), None)


def _arguments(function: torch._ops.OpOverload) -> dict[str, str]:
    return {argument.name: str(argument.type) for argument in function._schema.arguments}


def _changed(node: fx.Node) -> list[fx.Node]:
    """The value that a node changes in place and returns."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    schema = node.target._schema
    if not schema.arguments or len(schema.returns) != 1:
        return []
    first, given = schema.arguments[0].alias_info, node.args[0] if node.args else None
    return [given] if first is not None and first.is_write and isinstance(given, fx.Node) else []
