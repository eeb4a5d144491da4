"""Reads a `.pt2` file into checked values. The official loader never sees the file.

`torch.export.load` unpickles, imports names and evaluates strings from the file, so a hostile file can run code. This
module checks the JSON against a closed schema, each operator against a list and each tensor against its bytes. It drops
pickled sample inputs and stack traces.
"""

import json
import re
import reprlib
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from torch import Tensor

from unifiednn_core.base.errors import HostileFile
from unifiednn_core.formats import archive as container
from unifiednn_core.formats import exported_schema as schema
from unifiednn_core.formats import operators
from unifiednn_core.formats.archive import TensorView
from unifiednn_core.formats.signature import (
    HOW_TO_EXPORT,
    Held,
    Port,
    held_by,
    in_the_place_of,
    inputs_of,
    min_batch,
    outputs_of,
    refused,
)
from unifiednn_core.formats.tensor_files import bad_file

MOST_NAMED = 5
# Prefix of the operator's name, and what to write instead. The first that fits counts.
_INSTEAD = (
    (
        r"(linalg_\w*svd|svd|linalg_eig|linalg_lstsq|linalg_pinv|linalg_ldl|linalg_lu|lu_)",
        "Decompositions of matrices are not taken: compute them before the run and store the result as a buffer, or "
        "write the layer with products of matrices; det, inv, solve, cholesky and qr are taken.",
    ),
    (r"linalg_", "Write the layer with products, sums and norms (torch.linalg.vector_norm)."),
    (
        r"(bincount|_unique|unique|histogram|repeat_interleave\.Tensor)",
        "The size of its result depends on values. Count with one_hot(x, classes).sum(0), torch.histc or scatter_add "
        "into a tensor of fixed size.",
    ),
    (r"as_strided", "Take views with slices, narrow, unfold, expand and reshape."),
    (r"(set_|resize_|set_data)", "Make a new tensor with reshape, slices or torch.cat instead of changing this one."),
    (
        r"(item|_local_scalar_dense|equal|is_nonzero)",
        "It reads a value for Python code. Choose with torch.where instead of `if`, and keep numbers in tensors.",
    ),
    (r"(ctc_loss|_ctc_loss)", "Return the scores, and compute this loss outside of the network."),
    (r"fractional_max_pool", "Use max_pool or adaptive_max_pool, which draw nothing."),
    (
        r"(poisson|geometric_|cauchy_|log_normal_|random_|_standard_gamma|_sample_dirichlet|binomial)",
        "Draw with rand, randn, randint, uniform_, normal_, exponential_, bernoulli or multinomial.",
    ),
    (r"(quantize|dequantize|fake_quantize|_q)", "Hand in the network before it is quantised."),
    (
        r"(to_sparse|_sparse|sparse|to_mkldnn|_to_sparse)",
        "Write it with dense tensors; scatter_add and gather do the rest.",
    ),
    (r"(from_file|save|_print)", "A network here can reach no files: store the tensor as a buffer of the network."),
    (r"istft", "Write it with torch.fft.irfft and fold."),
)
_LIBRARIES = {
    "torchvision": "Use torch's own operators: for instance grid_sample instead of deform_conv2d or roi_align.",
    "transformers": 'Let the network use plain operators: experts with experts_implementation="batched_mm", '
    'attention with attn_implementation="eager".',
    "higher_order": "Write the region with plain operators: torch.where instead of torch.cond, a Python loop instead "
    "of scan or while_loop.",
}
_ELSE = "Write the layer with operators that docs/generated/OPERATORS.md lists; CONTRIBUTING.md says how to add one."
_LAYER = re.compile(r"[A-Za-z0-9_.@]{1,300},([A-Za-z0-9_.@]{0,200}),([A-Za-z0-9_.]{1,300})")


def explained(targets: Sequence[str], model: bytes) -> tuple[str, str]:
    """Message and remedy for refused operators, by their full names; `model` is the graph as the file holds it."""
    layers = _layers(model)
    named = [
        target.removeprefix("torch.ops.").removeprefix("aten.").removesuffix(".default") + layers.get(target, "")
        for target in targets[:MOST_NAMED]
    ]
    more = f", and {len(targets) - MOST_NAMED} more" if len(targets) > MOST_NAMED else ""
    one = len(targets) == 1
    message = (
        f"The network uses {'an operator' if one else 'operators'} that a network here may not use: "
        f"{', '.join(named)}{more}."
    )
    return message, " ".join(dict.fromkeys(map(_instead, targets[:MOST_NAMED])))


def _instead(target: str) -> str:
    library, _, name = target.removeprefix("torch.ops.").partition(".")
    if library != "aten":
        return _LIBRARIES.get(library, f"It belongs to the library '{library}'; only torch's own operators are taken.")
    return next((remedy for pattern, remedy in _INSTEAD if re.match(pattern, name)), _ELSE)


def _layers(model: bytes) -> dict[str, str]:
    """The layer of the first call of each operator, as the exporter noted it: ` in the layer 'body.0' (Linear)`."""
    found: dict[str, str] = {}
    for node in json.loads(model)["graph_module"]["graph"]["nodes"]:
        noted = node.get("metadata")
        stack = noted.get("nn_module_stack") if isinstance(noted, dict) else None
        match = _LAYER.fullmatch(str(stack).rpartition(";")[2])
        if match is not None:
            name, kind = match[1], match[2].rpartition(".")[2]
            where = f" in the layer '{name}' ({kind})" if name else f" in the network itself ({kind})"
            found.setdefault(node["target"], where)
    return found


_REGIONS = (
    "The graph holds other graphs ({found}), as torch.no_grad, torch.autocast or torch.cond in forward make them.",
    "Make the file with `unifiednn pack`, which writes torch.no_grad out; leave the others out of forward.",
)
# Pattern of the place in the file, message, remedy. The first match is shown.
_PLACES = (
    (
        r"(dtype|as_scalar_type)$",
        "The network computes with a type of numbers that is not known here (number {found} of torch's types: 9 to 11 "
        "are complex).",
        "Write it with real numbers: two of them for a complex one.",
    ),
    (
        r"(parameter_name|buffer_name|tensor_constant_name|config\..*\[key\]|fqn)$",
        "A layer or weight is called {found}.",
        "Call it by letters, digits, '_', '-' and blanks.",
    ),
    (
        r"schema_version\.major$",
        "A torch whose files have version {found} wrote it; version 8 is read.",
        "Export the network again, with torch 2.10 or newer.",
    ),
    (r"layout$", "The network computes with sparse tensors.", "Write it with dense tensors."),
    (r"device\.type$", "The network was exported on the device {found}.", "Export it on the CPU."),
    (
        r"custom_obj|as_custom|as_script|as_opaque",
        "The graph holds objects of another library.",
        "Write that part of forward with torch's own functions.",
    ),
    (
        r"(output_specs\.\d+\.[a-z_]+|verifiers.*)$",
        "The program was changed after it was exported, as run_decompositions does.",
        "Save what torch.export.export returns, as it is.",
    ),
)


def _said_of_schema(detail: Mapping[str, Any], content: bytes) -> tuple[str, str]:
    """Message and remedy for a validation error in the JSON document `content`."""
    place = ".".join(map(str, detail["loc"]))
    regions = sorted(_regions(content)) if re.search(r"nodes\.\d+\.", place) else []
    if regions:
        return _REGIONS[0].format(found=", ".join(regions)), _REGIONS[1]
    found = reprlib.repr(detail["input"])
    for pattern, message, remedy in _PLACES:
        if re.search(pattern, place):
            return message.format(found=found), remedy
    where = ".".join(map(str, detail["loc"][-6:])) or "the JSON"
    return f"It is not as torch.export.save writes it. At {where}: {detail['msg']} (found {found}).", HOW_TO_EXPORT


def _regions(content: bytes) -> set[str]:
    """Names of the operators that run a graph of their own."""
    try:
        nodes = json.loads(content)["graph_module"]["graph"]["nodes"]
        targets = [str(node["target"])[:100] for node in nodes]
    except (ValueError, KeyError, TypeError, RecursionError):
        return set()
    return {target.rpartition(".")[2] for target in targets if target.startswith("torch.ops.higher_order.")}


_TWO_GRAPHS = "Make the file with `unifiednn pack`, which writes both graphs from the same code."
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class CheckedGraph:
    """One graph of a file: its inputs, its outputs, and the places of its constants, without the tensors."""

    program: schema.Program
    constants: schema.Payloads
    constant_views: dict[str, TensorView]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    held: tuple[Held, ...]
    min_batch: int

    @property
    def nodes(self) -> tuple[schema.Node, ...]:
        """All nodes, in order."""
        return self.program.graph_module.graph.nodes

    def meta(self, port: Port) -> schema.TensorMeta:
        """Type and sizes of an input or output."""
        return self.program.graph_module.graph.tensor_values[port.value]


@dataclass(frozen=True, slots=True)
class ExportedNetwork:
    """A checked `.pt2` file: its graphs over the same weights, and the places of these, without the tensors."""

    path: Path
    weights: schema.Payloads
    weight_views: dict[str, TensorView]
    training: CheckedGraph
    evaluation: CheckedGraph | None
    """Of evaluation mode; None if one graph serves both."""

    @property
    def graphs(self) -> tuple[CheckedGraph, ...]:
        """The graph of training, and that of evaluation if it is another."""
        return (self.training,) if self.evaluation is None else (self.training, self.evaluation)

    def read_weights(self) -> dict[str, Tensor]:
        """Read weights and persistent buffers by key; tied weights are one tensor."""
        return _read(self.path, self.weight_views)

    def read_records(self) -> dict[str, bytes]:
        """Read the bytes of all tensors, by record."""
        held = (self.weight_views, *(graph.constant_views for graph in self.graphs))
        records = {view.record for views in held for view in views.values()}
        with _opened(self.path) as (archive, entries):
            return {record: archive.read(entries[record]) for record in sorted(records)}

    def read_constants(self) -> dict[str, Tensor]:
        """Read constants and buffers that are not in the state dict, by their names in the module."""
        views = {
            entry.name: graph.constant_views[entry.stored]
            for graph in reversed(self.graphs)
            for entry in graph.held
            if entry.role == "constant"
        }
        return _read(self.path, views)


def sanitized(path: Path) -> ExportedNetwork:
    """Check a whole file; raises `BadInput` for a network that cannot be trained here, or `HostileFile`."""
    with _opened(path) as (archive, entries):
        if "byteorder" in entries and archive.read(entries["byteorder"]).strip() != b"little":
            raise refused(path, "The weights are stored in big-endian byte order.")
        training, weights = _graph(path, archive, entries, container.TRAINING)
        evaluation = None
        if container.EVALUATION.model in entries:
            evaluation, same = _graph(path, archive, entries, container.EVALUATION)
            if same != weights:
                raise refused(path, "The graph for evaluation has other weights than that for training.", _TWO_GRAPHS)
            evaluation = _beside(path, training, evaluation)
    return ExportedNetwork(path, weights, container.views_of(weights, "weights", entries), training, evaluation)


def _graph(
    path: Path, archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], names: container.GraphEntries
) -> tuple[CheckedGraph, schema.Payloads]:
    """Check one graph and the table of its weights."""
    missing = [name for name in (names.model, names.weights, names.constants) if name not in entries]
    if missing:
        raise refused(path, f"The archive lacks '{missing[0]}'.")
    model = archive.read(entries[names.model])
    program = _parsed(path, schema.Program, model)
    weights = _parsed(path, schema.Payloads, archive.read(entries[names.weights]))
    constants = _parsed(path, schema.Payloads, archive.read(entries[names.constants]))
    _check_targets(path, program.graph_module.graph.nodes, model)
    inputs, outputs = inputs_of(path, program), outputs_of(path, program)
    held = held_by(path, program, weights, constants)
    module = program.graph_module
    calls = tuple(call for call in module.module_call_graph if call.fqn == "")  # calls of inner modules are not needed
    graph = CheckedGraph(
        program=program.model_copy(update={"graph_module": module.model_copy(update={"module_call_graph": calls})}),
        constants=constants,
        constant_views=container.views_of(constants, "constants", entries),
        inputs=inputs,
        outputs=outputs,
        held=held,
        min_batch=min_batch(path, program, inputs),
    )
    return graph, weights


def _beside(path: Path, training: CheckedGraph, evaluation: CheckedGraph) -> CheckedGraph:
    """Check that both graphs are one network, and give the constants of the evaluation names of their own."""
    kinds = [[(port.name, graph.meta(port).dtype) for port in graph.inputs] for graph in (training, evaluation)]
    if kinds[0] != kinds[1]:
        raise refused(path, "The graphs for training and for evaluation take other inputs.", _TWO_GRAPHS)
    names = [[port.name for port in graph.outputs] for graph in (training, evaluation)]
    if not any(in_the_place_of(*names)):
        listed = " and ".join(", ".join(each) for each in names)
        raise refused(path, f"forward returns other things in training than in evaluation: {listed}.", _TWO_GRAPHS)
    known = {entry.name: entry for entry in training.held}
    held = []
    for entry in evaluation.held:
        if entry.is_buffer:
            same = known.get(entry.name)
            views = [graph.constant_views.get(entry.stored) for graph in (training, evaluation)]
            if same is None or same.role != entry.role or views[0] != views[1]:
                raise refused(path, f"The graph for evaluation has another tensor '{entry.name}'.", _TWO_GRAPHS)
            held.append(entry)
        else:
            name = f"{entry.name}_in_evaluation"
            while name in known:
                name += "_"
            known[name] = replace(entry, name=name)
            held.append(known[name])
    return replace(evaluation, held=tuple(held))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """Open an archive and list its entries. Raises `BadInput` for damaged bytes, also while the archive is read."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive, container.open_entries(archive, path.stat().st_size)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, UnicodeDecodeError) as error:
        raise refused(path, f"The file is damaged ({error}).") from None


def _parsed(path: Path, model: type[_Model], content: bytes) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        hostile = [detail for detail in details if detail["type"] == schema.HOSTILE]
        if hostile:
            where = ".".join(str(part) for part in hostile[0]["loc"][-6:]) or "the JSON"
            found = reprlib.repr(hostile[0]["input"])
            raise HostileFile(f"At {where}: {hostile[0]['msg']} (found {found}).") from None
        raise refused(path, *_said_of_schema(details[0], content)) from None


def _check_targets(path: Path, nodes: Iterable[schema.Node], model: bytes) -> None:
    targets = dict.fromkeys(node.target for node in nodes)
    for target in targets:
        if not target.startswith("torch.ops.") and target not in operators.SIZES:
            raise HostileFile(f"The graph calls '{target}', which is not an operator.")
    unknown = [target for target in targets if target not in operators.ALLOWED]
    if unknown:
        raise bad_file(path, "Operator not allowed", *explained(unknown, model))


def _read(path: Path, views: dict[str, TensorView]) -> dict[str, Tensor]:
    with _opened(path) as (archive, entries):
        tensors = container.read_tensors(archive, entries, views.values())
    return {name: tensors[view] for name, view in views.items()}
