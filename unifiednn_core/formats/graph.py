"""Builds a plain `torch.fx` module from a checked `.pt2` file.

One graph serves training and evaluation, unless the file has one for each: the `training` flag of the module replaces
each training flag in the file, so `train()` and `eval()` work as usual. The device of the first input replaces devices
in the file, so `to(device)` works too.
"""

import copy
import operator
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats import operators
from unifiednn_core.formats.archive import DTYPES
from unifiednn_core.formats.exported_schema import NamedValue, Node, NodeArgument, OptionalTensor, SymArgument
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.formats.sanitize import CheckedGraph, ExportedNetwork
from unifiednn_core.formats.signature import Held, in_the_place_of

_COUNTER = "num_batches_tracked"
_OFF: dict[str, object] = {"as_bool": False, "as_float": 0.0, "as_int": 0}
_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


def build_module(network: ExportedNetwork) -> fx.GraphModule:
    """Make the module with the weights of the file, on the CPU, in train mode; raises `HostileFile`."""
    root = _root(network)
    graph = _Builder(network.training, _counters(network.training)).graph(_held(network))
    try:
        module = fx.GraphModule(root, graph, class_name="ExportedNetwork")
    except (KeyError, TypeError, AttributeError) as error:
        raise HostileFile(f"A tensor has an invalid name: {error}") from None
    return _guarded(module, network, _evaluation(network)).train()


def _evaluation(network: ExportedNetwork) -> fx.Graph | None:
    """Make the graph of evaluation, if the file has one."""
    if network.evaluation is None:
        return None
    outputs = in_the_place_of(*([port.name for port in graph.outputs] for graph in network.graphs))
    return _Builder(network.evaluation, None).graph(network.evaluation.held, outputs)


def _guarded(module: fx.GraphModule, network: ExportedNetwork, graph: fx.Graph | None) -> fx.GraphModule:
    """Make what fx built the module of a file: guarded, with its `graph` of evaluation, and so are its copies."""
    for entry in _held(network):
        if entry.role == "constant":  # fx makes every buffer a persistent one
            folder, _, leaf = entry.name.rpartition(".")
            parent = module.get_submodule(folder)
            parent.register_buffer(leaf, parent.get_buffer(leaf), persistent=False)
    _unite(module, {})
    evaluation = None
    if graph is not None:
        evaluation = fx.GraphModule(module, graph, class_name="ExportedEvaluation")
        for tensors in ("_parameters", "_buffers", "_modules"):  # one module with two graphs
            evaluation.__dict__[tensors] = module.__dict__[tensors]
    module.forward = GraphGuard(module, evaluation)

    def copied(memo: dict[int, Any]) -> fx.GraphModule:
        """Copy the graphs as they are now: their operators may have been replaced."""
        return _guarded(fx.GraphModule.__deepcopy__(module, memo), network, copy.deepcopy(graph))

    module.__dict__["__deepcopy__"] = copied
    return module


def _held(network: ExportedNetwork) -> list[Held]:
    """List the tensors of all graphs, each once."""
    return list({entry.name: entry for graph in reversed(network.graphs) for entry in graph.held}.values())


def operator_names(network: ExportedNetwork) -> tuple[str, ...]:
    """List the operators that compute, in order, by their short names."""
    counters = _counters(network.training)
    return tuple(
        node.target.split(".")[3]
        for node in network.training.nodes
        if node.target in operators.ATEN - operators.ASSERTIONS
        and not node.target.startswith("torch.ops.aten.sym_")
        and not _counts_batches(node, counters)
    )


class _Builder:
    """Turns the nodes of a file into the nodes of an `fx.Graph`.

    `counters` are the values that count batches; None for a graph of evaluation, whose flags stay as they are.
    """

    def __init__(self, source: CheckedGraph, counters: Set[str] | None):
        self._source = source
        self._counters = counters
        self._graph = fx.Graph()
        self._values: dict[str, fx.Node] = {}
        self._input: fx.Node
        self._training: fx.Node
        self._device: fx.Node | None = None

    def graph(self, held: Sequence[Held], outputs: Sequence[str | None] | None = None) -> fx.Graph:
        """Make the whole graph over the tensors `held`; it returns the `outputs`, by default all of them."""
        source = self._source
        inputs = {port.value: self._graph.placeholder(port.value) for port in source.inputs}
        self._input = next(iter(inputs.values()))
        for name, placeholder in inputs.items():
            self._define(name, placeholder)
        if self._counters is not None:
            self._training = self._graph.create_node("get_attr", "training", name="mode")
        own = {entry.name: entry.value for entry in source.held}
        for entry in held:
            tensor = self._graph.create_node("get_attr", entry.name)
            if entry.name in own:
                self._define(own[entry.name], tensor)
        for node in source.nodes:
            if node.target not in operators.ASSERTIONS:
                self._add(node)
        results = {port.name: self._value(port.value) for port in source.outputs}
        returned = [results.get(name or "") for name in (results if outputs is None else outputs)]
        self._graph.output(returned[0] if len(returned) == 1 else tuple(returned))
        return self._graph

    def _add(self, node: Node) -> None:
        function = operators.resolve(node.target)
        if isinstance(function, torch._ops.OpOverload):
            _check_names(node, [argument.name for argument in function._schema.arguments])
        arguments = [(entry, self._argument(node, entry.name, entry.arg)) for entry in node.inputs]
        positional = tuple(value for entry, value in arguments if entry.kind == 1)
        keywords = {entry.name: value for entry, value in arguments if entry.kind == 2}
        result = self._graph.call_function(function, positional, keywords)
        is_list = len(node.outputs) == 1 and node.outputs[0].kind == "as_tensors"
        names = [part.name for part in node.outputs[0].as_tensors] if is_list else [*map(_output_name, node.outputs)]
        for place, name in enumerate(names):
            single = len(names) == 1 and not is_list
            value = result if single else self._graph.call_function(operator.getitem, (result, place))
            if name is not None:
                self._define(name, value)

    def _define(self, name: str, value: fx.Node) -> None:
        if name in self._values:
            raise HostileFile(f"The graph defines '{name}' twice.")
        self._values[name] = value

    def _value(self, name: str) -> fx.Node:
        if name not in self._values:
            raise HostileFile(f"The graph uses '{name}' before it is computed.")
        return self._values[name]

    def _argument(self, node: Node, name: str, argument: NodeArgument) -> Any:
        if self._counters is not None and _depends_on_mode(node, name, argument, self._counters):
            if node.target == operators.ATTENTION:
                return self._graph.call_function(operator.mul, (argument.as_float, self._training))
            return self._training
        if name == "cudnn_enabled":  # the file has the setting of the exporter; eager modules use that of their machine
            return torch.backends.cudnn.enabled
        value = argument.value
        match argument.kind:
            case "as_none":
                return None
            case "as_float":
                return float(value)
            case "as_floats":
                return [float(part) for part in value]
            case "as_scalar_type":
                return DTYPES[value]
            case "as_memory_format":
                return _MEMORY_FORMATS[value]
            case "as_layout":
                return torch.strided
            case "as_device":
                self._device = self._device or self._graph.call_function(getattr, (self._input, "device"))
                return self._device
        return self._decoded(value)

    def _decoded(self, value: Any) -> Any:
        match value:
            case tuple():
                return [self._decoded(part) for part in value]
            case NamedValue():
                return self._value(value.name)
            case OptionalTensor():
                return None if value.as_tensor is None else self._value(value.as_tensor.name)
            case SymArgument():
                return self._value(value.as_name) if value.kind == "as_name" else value.value
        return value  # an integer, boolean or string


def _check_names(node: Node, declared: list[str]) -> None:
    """Raise `HostileFile` unless each argument is known and given once, those by position in their order."""
    given = [entry.name for entry in node.inputs]
    unknown = [name for name in given if name not in declared]
    if unknown:
        raise HostileFile(f"The operator '{node.target}' has no argument '{unknown[0]}'.")
    positional = [entry.name for entry in node.inputs if entry.kind == 1]
    if len(set(given)) < len(given) or positional != declared[: len(positional)]:
        raise HostileFile(f"The arguments of '{node.target}' are out of order.")


def _output_name(output: NodeArgument) -> str | None:
    if output.as_tensor is not None:
        return output.as_tensor.name
    if isinstance(output.value, SymArgument) and output.value.kind == "as_name":
        return output.value.as_name
    if output.kind != "as_none":
        raise HostileFile(f"An operator returns '{output.kind}', which no operator here does.")
    return None


def _root(network: ExportedNetwork) -> nn.Module:
    """Make a tree of bare modules that hold the tensors under their names in the file."""
    weights, constants = network.read_weights(), network.read_constants()
    root = nn.Module()
    parameters: dict[int, nn.Parameter] = {}
    for entry in _held(network):
        folder, _, leaf = entry.name.rpartition(".")
        tensor = (constants if entry.role == "constant" else weights)[entry.name]
        try:
            parent = _submodule(root, folder)
            if entry.role == "parameter":
                if id(tensor) not in parameters:  # tied weights stay one parameter
                    requires_grad = network.weights.config[entry.name].tensor_meta.requires_grad
                    parameters[id(tensor)] = nn.Parameter(tensor, requires_grad=requires_grad)
                parent.register_parameter(leaf, parameters[id(tensor)])
            else:
                parent.register_buffer(leaf, tensor, persistent=entry.role == "buffer")
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            raise HostileFile(f"The tensor '{entry.name}' has an invalid name: {error}") from None
    return root


def _unite(module: nn.Module, known: dict[object, nn.Module]) -> None:
    """Make a layer that has several names one module again; a move to another device would part its buffers."""
    for name, child in module.named_children():
        _unite(child, known)
        parts = (child._parameters, child._buffers, child._modules)
        content = tuple((leaf, id(value)) for part in parts for leaf, value in part.items())
        module._modules[name] = known.setdefault(content, child)


def _submodule(root: nn.Module, path: str) -> nn.Module:
    here = root
    for part in path.split(".") if path else ():
        if part not in here._modules:
            here.add_module(part, nn.Module())
        here = here.get_submodule(part)
    return here


def _counters(network: CheckedGraph) -> frozenset[str]:
    """Find the values that count the batches of a normalisation layer.

    A layer that is used twice adds to the result of its first addition, so that result is a counter too. A buffer of
    the same name that no running mean stands beside is a network's own, and counts in evaluation as its code does.
    """
    means = {
        entry.arg.as_tensor.name
        for node in network.nodes
        if node.target in operators.NEEDS_RUNNING_STATISTICS
        for entry in node.inputs
        if entry.name == "running_mean" and entry.arg.as_tensor is not None
    }
    layers = {entry.name.rpartition(".")[0] for entry in network.held if entry.value in means}
    places = {entry.value: entry.name.rpartition(".") for entry in network.held}
    counters = {value for value, (layer, _, leaf) in places.items() if leaf == _COUNTER and layer in layers}
    for node in network.nodes:
        if _counts_batches(node, counters):
            counters |= {output.as_tensor.name for output in node.outputs if output.as_tensor is not None}
    return frozenset(counters)


def _counts_batches(node: Node, counters: Set[str]) -> bool:
    """Whether this node adds one to a counter of batches."""
    given = {entry.name: entry.arg for entry in node.inputs}
    if node.target != operators.ADD_IN_PLACE or not given.keys() >= {"self", "other"}:
        return False
    counter, step = given["self"].as_tensor, given["other"]
    return counter is not None and counter.name in counters and (step.kind, step.as_int) == ("as_int", 1)


def _depends_on_mode(node: Node, name: str, argument: NodeArgument, counters: Set[str]) -> bool:
    """Whether this argument of a node is on in training and off in evaluation.

    A flag that is off in the file, as in a frozen layer, stays off in both.
    """
    if operators.MODE_FLAGS.get(node.target) == name:
        return argument.as_bool and (node.target not in operators.NEEDS_RUNNING_STATISTICS or _has_statistics(node))
    if node.target == operators.ATTENTION and name == "dropout_p":
        return argument.kind == "as_float" and argument.as_float != 0.0
    return name == "other" and _counts_batches(node, counters)


def switched_off(network: ExportedNetwork) -> tuple[str, ...]:
    """List layers such as dropout that are off in the file, and therefore in training too."""
    off = [node.target.removeprefix("torch.ops.aten.") for node in network.training.nodes if _is_off(node)]
    return tuple(sorted({name.partition(".")[0].rstrip("_") for name in off}))


def _is_off(node: Node) -> bool:
    given = {entry.name: entry.arg for entry in node.inputs}
    flag = given.get(operators.MODE_FLAGS.get(node.target, ""))
    if flag is None or flag.kind != "as_bool" or flag.as_bool:
        return False
    if node.target in operators.NEEDS_RUNNING_STATISTICS:
        return _has_statistics(node)
    share = given.get("p", given.get("dropout"))  # dropout with p = 0 is never on
    return share is None or share.kind != "as_float" or share.as_float != 0.0


def for_evaluation(network: ExportedNetwork) -> CheckedGraph:
    """Return the graph of evaluation, by default that of training with all its flags switched off."""
    if network.evaluation is not None:
        return network.evaluation
    counters, program = _counters(network.training), network.training.program
    nodes = tuple(_off(node, counters) for node in network.training.nodes)
    graph = program.graph_module.graph.model_copy(update={"nodes": nodes})
    module = program.graph_module.model_copy(update={"graph": graph})
    return replace(network.training, program=program.model_copy(update={"graph_module": module}))


def _off(node: Node, counters: Set[str]) -> Node:
    inputs = tuple(
        entry.model_copy(update={"arg": NodeArgument.model_validate({entry.arg.kind: _OFF[entry.arg.kind]})})
        if _depends_on_mode(node, entry.name, entry.arg, counters)
        else entry
        for entry in node.inputs
    )
    return node.model_copy(update={"inputs": inputs})


def _has_statistics(node: Node) -> bool:
    return any(entry.name == "running_mean" and entry.arg.as_tensor is not None for entry in node.inputs)
