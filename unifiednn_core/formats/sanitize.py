"""Reads a `.pt2` file into checked values. The official loader never sees the file.

`torch.export.load` unpickles, imports names and evaluates strings from the file, so a hostile file can run code. This
module checks the JSON against a closed schema, each operator against a list and each tensor against its bytes. It drops
pickled sample inputs and stack traces.
"""

import json
import reprlib
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ValidationError
from torch import Tensor

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats import archive as container
from unifiednn_core.formats import exported_schema as schema
from unifiednn_core.formats import operators, refused
from unifiednn_core.formats.archive import TensorView
from unifiednn_core.formats.tensor_files import bad_file

HOW_TO_EXPORT = (
    "Export it with torch 2.10 or newer: torch.export.export(network.train(), (x,), "
    'dynamic_shapes=({0: torch.export.Dim("batch")},)), then torch.export.save.'
)
_Model = TypeVar("_Model", bound=BaseModel)
_LEAF: dict[str, object] = {"type": None, "context": None, "children_spec": []}
# Pytree of a call with one positional tensor, ((x,), {}), and of one tensor as its result.
_ARGS = {"type": "builtins.tuple", "context": "null", "children_spec": [_LEAF]}
_KWARGS: dict[str, object] = {"type": "builtins.dict", "context": "[]", "children_spec": []}
_ONE_ARGUMENT = [1, {"type": "builtins.tuple", "context": "null", "children_spec": [_ARGS, _KWARGS]}]
_ONE_RESULT = [1, _LEAF]
Role = Literal["parameter", "buffer", "constant"]


@dataclass(frozen=True, slots=True)
class Held:
    """A tensor that the graph holds. A constant is also a buffer that the state dict leaves out."""

    value: str  # name in the graph
    name: str  # qualified name in the module
    role: Role


@dataclass(frozen=True, slots=True)
class ExportedNetwork:
    """A checked `.pt2` file: the graph, its input and output, and the places of its tensors, without the tensors."""

    path: Path
    program: schema.Program
    weights: schema.Payloads
    constants: schema.Payloads
    weight_views: dict[str, TensorView]
    constant_views: dict[str, TensorView]
    input_name: str
    output_name: str
    held: tuple[Held, ...]
    min_batch: int

    @property
    def graph(self) -> schema.Graph:
        """Nodes and values of the network."""
        return self.program.graph_module.graph

    @property
    def input_meta(self) -> schema.TensorMeta:
        """Type and sizes of the input."""
        return self.graph.tensor_values[self.input_name]

    def read_weights(self) -> dict[str, Tensor]:
        """Read weights and persistent buffers by key; tied weights are one tensor."""
        return _read(self.path, self.weight_views)

    def read_records(self) -> dict[str, bytes]:
        """Read the bytes of all tensors, by record."""
        records = {view.record for view in (*self.weight_views.values(), *self.constant_views.values())}
        with _opened(self.path) as (archive, entries):
            return {record: archive.read(entries[record]) for record in sorted(records)}

    def read_constants(self) -> dict[str, Tensor]:
        """Read constants and buffers that are not in the state dict."""
        return _read(self.path, self.constant_views)


def sanitized(path: Path) -> ExportedNetwork:
    """Check a whole file; raises `BadInput` for a network that cannot be trained here, or `HostileFile`."""
    with _opened(path) as (archive, entries):
        missing = [name for name in (container.MODEL, container.WEIGHTS, container.CONSTANTS) if name not in entries]
        if missing:
            raise _refused(path, f"The archive lacks '{missing[0]}'.")
        if "byteorder" in entries and archive.read(entries["byteorder"]).strip() != b"little":
            raise _refused(path, "The weights are stored in big-endian byte order.")
        program = _parsed(path, schema.Program, archive.read(entries[container.MODEL]))
        weights = _parsed(path, schema.Payloads, archive.read(entries[container.WEIGHTS]))
        constants = _parsed(path, schema.Payloads, archive.read(entries[container.CONSTANTS]))
    _check_targets(path, program.graph_module.graph.nodes)
    input_name, output_name, held = _interface(path, program, weights, constants)
    min_batch = _min_batch(program, input_name)
    if min_batch is None:
        remedy = f"Make the first dimension dynamic. {HOW_TO_EXPORT}"
        raise bad_file(path, "Fixed batch size", "The network was exported for one batch size only.", remedy)
    module = program.graph_module
    calls = tuple(call for call in module.module_call_graph if call.fqn == "")  # calls of inner modules are not needed
    module = module.model_copy(update={"module_call_graph": calls})
    return ExportedNetwork(
        path=path,
        program=program.model_copy(update={"graph_module": module}),
        weights=weights,
        constants=constants,
        weight_views=container.views_of(weights, "weights", entries),
        constant_views=container.views_of(constants, "constants", entries),
        input_name=input_name,
        output_name=output_name,
        held=held,
        min_batch=min_batch,
    )


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an archive and list its entries. Raises `BadInput` for damaged bytes, also while the archive is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive, container.open_entries(archive, path.stat().st_size)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, UnicodeDecodeError) as error:
        raise _refused(path, f"The file is damaged ({error}).") from None


def _parsed(path: Path, model: type[_Model], content: bytes) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        hostile = [detail for detail in details if detail["type"] == schema.HOSTILE]
        detail = (hostile or details)[0]
        where = ".".join(str(part) for part in detail["loc"][-6:]) or "the JSON"
        message = f"At {where}: {detail['msg']} (found {reprlib.repr(detail['input'])})."
        if hostile:
            raise HostileFile(message) from None
        raise _refused(path, message) from None


def _check_targets(path: Path, nodes: Iterable[schema.Node]) -> None:
    targets = dict.fromkeys(node.target for node in nodes)
    for target in targets:
        if not target.startswith("torch.ops.") and target not in operators.SIZES:
            raise HostileFile(f"The graph calls '{target}', which is not an operator.")
    unknown = [target for target in targets if target not in operators.ALLOWED]
    if unknown:
        with _opened(path) as (archive, entries):
            raise bad_file(
                path, "Operator not allowed", *refused.explained(unknown, archive.read(entries[container.MODEL]))
            )


def _read(path: Path, views: dict[str, TensorView]) -> dict[str, Tensor]:
    with _opened(path) as (archive, entries):
        tensors = container.read_tensors(archive, entries, views.values())
    return {name: tensors[view] for name, view in views.items()}


def _refused(path: Path, message: str) -> BadInput:
    return bad_file(path, "Not a network to train", message, HOW_TO_EXPORT)


def _interface(
    path: Path, program: schema.Program, weights: schema.Payloads, constants: schema.Payloads
) -> tuple[str, str, tuple[Held, ...]]:
    """Find input, output and held tensors; raises `BadInput` if signature, graph and stored tensors disagree."""
    graph, signature = program.graph_module.graph, program.graph_module.signature
    held = [_held(entry) for entry in signature.input_specs]
    inputs = [entry.user_input.arg.as_tensor for entry in signature.input_specs if entry.user_input is not None]
    outputs = [entry.user_output.arg.as_tensor for entry in signature.output_specs if entry.user_output is not None]
    root = next((call.signature for call in program.graph_module.module_call_graph if call.fqn == ""), None)
    if root is None or len(inputs) != 1 or inputs[0] is None or not _same_json(root.in_spec, _ONE_ARGUMENT):
        raise _refused(path, "The network does not take exactly one tensor as its one positional argument.")
    if len(outputs) != 1 or outputs[0] is None or not _same_json(root.out_spec, _ONE_RESULT):
        raise _refused(path, "The network does not return exactly one tensor.")
    names = [inputs[0].name if entry is None else entry.value for entry in held]
    given = [argument.as_tensor.name if argument.as_tensor else None for argument in graph.inputs]
    returned = [argument.as_tensor.name if argument.as_tensor else None for argument in graph.outputs]
    if names != given or returned != [outputs[0].name] or inputs[0].name not in graph.tensor_values:
        raise _refused(path, "The signature and the graph differ.")
    tensors = tuple(entry for entry in held if entry is not None)
    for entry in tensors:
        stored = (constants if entry.role == "constant" else weights).config.get(entry.name)
        if stored is None or stored.is_param != (entry.role == "parameter"):
            raise _refused(path, f"The file holds no {entry.role} '{entry.name}'.")
    left = weights.config.keys() - {entry.name for entry in tensors}
    if left:
        raise _refused(path, f"The graph does not know the weight '{min(left)}'.")
    return inputs[0].name, outputs[0].name, tensors


def _min_batch(program: schema.Program, input_name: str) -> int | None:
    """Smallest batch, or None if the network was exported for one batch size only.

    Export records at least 2 for every dynamic dimension, but without the guards of export a graph accepts 1 as well.
    """
    first = next(iter(program.graph_module.graph.tensor_values[input_name].sizes), None)
    symbol = schema.plain_symbol(first.as_expr.expr_str) if first is not None and first.as_expr else None
    if symbol is None:
        return None
    allowed = program.range_constraints.get(symbol)
    return allowed.min_val if allowed is not None and (allowed.min_val or 0) > 2 else 1


def _held(entry: schema.InputSpec) -> Held | None:
    match entry.value:
        case schema.ParameterInput() as given:
            return Held(given.arg.name, given.parameter_name, "parameter")
        case schema.BufferInput() as given:
            return Held(given.arg.name, given.buffer_name, "buffer" if given.persistent else "constant")
        case schema.ConstantInput() as given:
            return Held(given.arg.name, given.tensor_constant_name, "constant")
    return None


def _same_json(text: str, expected: object) -> bool:
    try:
        return bool(json.loads(text) == expected)
    except (ValueError, RecursionError):
        return False
