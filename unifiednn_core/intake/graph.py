"""Builds a plain `torch.fx` module from a checked `.pt2` file.

One graph serves training and evaluation: where the file says that an operator is in training mode, the module's own
`training` flag takes its place, so `train()` and `eval()` work as in every other module. Devices in the file are
replaced by the device of the input, so `to(device)` works as well.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from unifiednn_core.errors import HostileFile
from unifiednn_core.intake import operators
from unifiednn_core.intake.archive import DTYPES
from unifiednn_core.intake.exported_schema import Argument, Node, SymArgument
from unifiednn_core.intake.modes import counters_of, counts_batches, depends_on_mode
from unifiednn_core.intake.sanitize import ExportedNetwork

_MEMORY_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}


def build_module(network: ExportedNetwork) -> fx.GraphModule:
    """Make the module with the file's weights, on CPU, in train mode.

    Raises `HostileFile` where names collide or the graph uses a value before it is computed.
    """
    root = _root(network)
    graph = _Builder(network).graph()
    try:
        module = fx.GraphModule(root, graph, class_name="ExportedNetwork")
    except (KeyError, TypeError, AttributeError) as error:
        raise HostileFile(f"A tensor has a name that no module can have: {error}") from None
    for entry in network.interface.held:
        if entry.role == "constant":  # fx makes every buffer a persistent one
            folder, _, leaf = entry.name.rpartition(".")
            parent = module.get_submodule(folder)
            parent.register_buffer(leaf, parent.get_buffer(leaf), persistent=False)
    return module.train()


def operator_names(network: ExportedNetwork) -> tuple[str, ...]:
    """Operators that compute, in order, by their short names."""
    counters = counters_of(network.interface.held)
    return tuple(
        node.target.split(".")[3]
        for node in network.program.graph_module.graph.nodes
        if node.target in operators.ATEN - operators.ASSERTIONS
        and not node.target.startswith("torch.ops.aten.sym_")
        and not counts_batches(node, counters)
    )


class _Builder:
    """Turns the nodes of a file into the nodes of an `fx.Graph`."""

    def __init__(self, network: ExportedNetwork):
        self._network = network
        self._counters = counters_of(network.interface.held)
        self._graph = fx.Graph()
        self._values: dict[str, fx.Node] = {}
        self._input: fx.Node
        self._training: fx.Node
        self._device: fx.Node | None = None

    def graph(self) -> fx.Graph:
        """Make the whole graph."""
        interface = self._network.interface
        self._input = self._graph.placeholder(interface.input_name)
        self._define(interface.input_name, self._input)
        self._training = self._graph.create_node("get_attr", "training", name="mode")
        for entry in interface.held:
            self._define(entry.value, self._graph.create_node("get_attr", entry.name))
        for node in self._network.program.graph_module.graph.nodes:
            if node.target not in operators.ASSERTIONS:
                self._add(node)
        self._graph.output(self._value(interface.output_name))
        return self._graph

    def _add(self, node: Node) -> None:
        function = operators.resolve(node.target)
        _check_names(node, function)
        arguments = [(entry, self._argument(node, entry.name, entry.arg)) for entry in node.inputs]
        positional = tuple(value for entry, value in arguments if entry.kind == 1)
        keywords = {entry.name: value for entry, value in arguments if entry.kind == 2}
        result = self._graph.call_function(function, positional, keywords)
        outputs = node.outputs
        if len(outputs) == 1 and outputs[0].kind == "as_tensors":
            for place, output in enumerate(outputs[0].as_tensors):
                self._define(output.name, self._graph.call_function(operator.getitem, (result, place)))
        elif len(outputs) == 1:
            self._define_output(outputs[0], result)
        else:
            for place, output_ in enumerate(outputs):
                self._define_output(output_, self._graph.call_function(operator.getitem, (result, place)))

    def _define_output(self, output: Argument, value: fx.Node) -> None:
        if output.as_tensor is not None:
            self._define(output.as_tensor.name, value)
        elif isinstance(output.value, SymArgument) and output.value.kind == "as_name":
            self._define(output.value.as_name, value)
        elif output.kind != "as_none":
            raise HostileFile(f"An operator returns '{output.kind}', which no operator here does.")

    def _define(self, name: str, value: fx.Node) -> None:
        if name in self._values:
            raise HostileFile(f"The graph defines '{name}' twice.")
        self._values[name] = value

    def _value(self, name: str) -> fx.Node:
        if name not in self._values:
            raise HostileFile(f"The graph uses '{name}' before it is computed.")
        return self._values[name]

    def _argument(self, node: Node, name: str, argument: Argument) -> Any:
        if depends_on_mode(node, name, argument, self._counters):
            if node.target == operators.ATTENTION:
                return self._graph.call_function(operator.mul, (argument.as_float, self._training))
            return self._training
        if name == "cudnn_enabled":  # what was so where it was exported; eager modules ask where they run
            return torch.backends.cudnn.enabled
        return self._decoded(argument)

    def _decoded(self, argument: Argument) -> Any:
        value = argument.value
        match argument.kind:
            case "as_none":
                return None
            case "as_tensor":
                return self._value(value.name)
            case "as_tensors":
                return [self._value(part.name) for part in value]
            case "as_optional_tensor":
                return None if value.as_tensor is None else self._value(value.as_tensor.name)
            case "as_optional_tensors":
                return [None if part.as_tensor is None else self._value(part.as_tensor.name) for part in value]
            case "as_sym_int" | "as_sym_float" | "as_sym_bool":
                return self._symbolic(value)
            case "as_sym_ints":
                return [self._symbolic(part) for part in value]
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
                return self._device_of_input()
        return list(value) if isinstance(value, tuple) else value  # integers, booleans, strings, several of them

    def _symbolic(self, argument: SymArgument) -> Any:
        return self._value(argument.as_name) if argument.kind == "as_name" else argument.value

    def _device_of_input(self) -> fx.Node:
        if self._device is None:
            self._device = self._graph.call_function(getattr, (self._input, "device"))
        return self._device


def _check_names(node: Node, function: Callable[..., Any]) -> None:
    if isinstance(function, torch._ops.OpOverload):
        known = {argument.name for argument in function._schema.arguments}
        unknown = [entry.name for entry in node.inputs if entry.name not in known]
        if unknown:
            raise HostileFile(f"The operator '{node.target}' has no argument '{unknown[0]}'.")


def _root(network: ExportedNetwork) -> nn.Module:
    """Tree of bare modules that holds the tensors under their own names."""
    weights, constants = network.read_weights(), network.read_constants()
    root = nn.Module()
    parameters: dict[int, nn.Parameter] = {}
    for entry in network.interface.held:
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
            raise HostileFile(f"The tensor '{entry.name}' cannot have this name: {error}") from None
    return root


def _submodule(root: nn.Module, path: str) -> nn.Module:
    here = root
    for part in path.split(".") if path else ():
        if part not in here._modules:
            here.add_module(part, nn.Module())
        here = here.get_submodule(part)
    return here
