"""The format `.pt2`: an exported program of torch with architecture and weights in one file."""

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from unifiednn_core.formats import archive as container
from unifiednn_core.formats import tensor_files, zips
from unifiednn_core.formats.archive import DTYPES, GraphEntries, TensorView
from unifiednn_core.formats.base import Definition, Delivery, Input, define, refuse_architecture
from unifiednn_core.formats.exported_schema import Payload, Payloads, Program
from unifiednn_core.formats.graph import build_module, for_evaluation, operator_names, switched_off
from unifiednn_core.formats.sanitize import CheckedGraph, ExportedNetwork, sanitized
from unifiednn_core.formats.signature import Port, call_text
from unifiednn_core.spec.run import ArchitectureSpec

_ON_GPU = re.compile(rb'"type":"cuda","index":(null|[0-9]+)')
_LOAD_SCRIPT = """\
import torch

# The network for inference; {stem}.pt2 is the same one for more training, with dropout and normalisation on.
model = torch.export.load("{stem}.eval.pt2").module()
# Call it as {call}.
"""


class ExportedFormat:
    """Networks from `torch.export.save`, exported in train mode with a dynamic batch."""

    name: ClassVar[str] = "pt2"
    suffixes: ClassVar[tuple[str, ...]] = (".pt2",)

    def sniff(self, path: Path) -> bool:
        """Whether the file is a zip that holds an exported program."""
        return any(name.partition("/")[2] == container.TRAINING.model for name in zips.names(path))

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and build it once; raises `BadInput` or `HostileFile`."""
        refuse_architecture(architecture)
        network = sanitized(path)
        module = build_module(network)
        tensor_files.check_numbers(path, module.state_dict())
        return define(
            self.name,
            path,
            lambda: build_module(network),
            module,
            inputs=tuple(_input(network, port) for port in network.training.inputs),
            outputs=tuple(port.name for port in network.training.outputs),
            min_batch=max(graph.min_batch for graph in network.graphs),
            operators=operator_names(network),
            switched_off=switched_off(network),
        )

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the trained weights twice: `stem.pt2` with the original program, `stem.eval.pt2` for inference."""
        network = sanitized(definition.path)
        paths = (folder / f"{stem}.pt2", folder / f"{stem}.eval.pt2")
        graphs = {container.TRAINING: network.training}
        both = graphs if network.evaluation is None else {**graphs, container.EVALUATION: network.evaluation}
        for path, written in zip(paths, (both, {container.TRAINING: for_evaluation(network)}), strict=True):
            container.write_archive(path, stem, _entries(network, written, state_dict))
        inputs, program = network.training.inputs, network.training.program
        names = [*dict.fromkeys(port.name.partition(".")[0] for port in inputs)]
        script = _LOAD_SCRIPT.format(stem=stem, call=call_text(program, names, names))
        flat = all(port.name.isidentifier() for port in inputs)
        places = [f"{{{place}}}" for place in range(len(names))]
        return Delivery(files=paths, load_script=script, call=call_text(program, names, places) if flat else "")

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file."""
        return sanitized(path).read_weights()


def write_checked(source: Path, target: Path) -> None:
    """Write what was checked of a file, its numbers as they are, for torch's own loader on a machine without a GPU.

    Raises `BadInput` or `HostileFile`.
    """
    network = sanitized(source)
    documents: dict[str, bytes] = {}
    for names, graph in zip((container.TRAINING, container.EVALUATION), network.graphs, strict=False):
        documents |= _documents(names, graph.program, network.weights, graph.constants)
    here = {name: _ON_GPU.sub(b'"type":"cpu","index":null', content) for name, content in documents.items()}
    container.write_archive(target, "checked", {**network.read_records(), **here})


def write_both(training: Path, evaluation: Path, target: Path) -> None:
    """Write one file with the graph of `training` and that of `evaluation`, two exports of one network.

    Raises `BadInput` or `HostileFile`.
    """
    first, second = sanitized(training), sanitized(evaluation)
    records, others = first.read_records(), second.read_records()
    known, config = first.training.constants.config, dict[str, Payload]()
    free = (number for number in itertools.count() if f"data/constants/tensor_{number}" not in records)
    for name, payload in second.training.constants.config.items():
        if any(entry.stored == name and entry.is_buffer for entry in second.training.held):
            config[name] = known.get(name, payload)
        else:
            number = next(free)
            config[name] = payload.model_copy(update={"path_name": f"tensor_{number}"})
            records[f"data/constants/tensor_{number}"] = others[f"data/constants/{payload.path_name}"]
    constants = Payloads(config=config)
    documents = {
        **_documents(container.TRAINING, first.training.program, first.weights, first.training.constants),
        **_documents(container.EVALUATION, second.training.program, first.weights, constants),
    }
    container.write_archive(target, target.stem, {**records, **documents})


def _input(network: ExportedNetwork, port: Port) -> Input:
    meta = network.training.meta(port)
    sizes = [size.as_int if size.kind == "as_int" else None for size in meta.sizes]
    return Input(port.name, tuple(sizes[1:]), str(DTYPES[meta.dtype]).removeprefix("torch."))


def _entries(
    network: ExportedNetwork, graphs: Mapping[GraphEntries, CheckedGraph], state_dict: Mapping[str, Tensor]
) -> dict[str, bytes]:
    weights = _Records("weights/weight")
    trained = {name: state_dict[name] for name in network.weights.config}
    table = weights.add(network.weights, network.weight_views, trained)
    constants, fixed = _Records("constants/tensor"), network.read_constants()
    documents: dict[str, bytes] = {}
    for names, graph in graphs.items():
        stored = {entry.stored: fixed[entry.name] for entry in graph.held if entry.role == "constant"}
        own = constants.add(graph.constants, graph.constant_views, stored)
        documents |= _documents(names, graph.program, table, own)
    return {**weights.content, **constants.content, **documents}


def _documents(names: GraphEntries, program: Program, weights: Payloads, constants: Payloads) -> dict[str, bytes]:
    tables = {names.model: program, names.weights: weights, names.constants: constants}
    return {
        **{name: part.model_dump_json(exclude_unset=True).encode() for name, part in tables.items()},
        names.sample_inputs: b"",
    }


class _Records:
    """Records of tensors, one for each distinct view."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._numbers: dict[TensorView, int] = {}
        self.content: dict[str, bytes] = {}

    def add(self, payloads: Payloads, views: Mapping[str, TensorView], tensors: Mapping[str, Tensor]) -> Payloads:
        """Add the numbers of `tensors`, and return the table that names them."""
        config: dict[str, Payload] = {}
        for name, given in tensors.items():
            payload, tensor, view = payloads.config[name], given.detach().to("cpu").contiguous(), views[name]
            if tuple(tensor.shape) != view.shape or tensor.dtype != DTYPES[view.dtype]:
                raise ValueError(
                    f"the trained '{name}' is {tensor.dtype} {list(tensor.shape)}; the file has another kind"
                )
            record = f"data/{self._folder}_{self._numbers.setdefault(view, len(self._numbers))}"
            self.content.setdefault(record, bytes(tensor_files.raw(tensor)))
            meta = container.contiguous_meta(payload.tensor_meta)
            config[name] = payload.model_copy(update={"path_name": record.rpartition("/")[2], "tensor_meta": meta})
        return Payloads(config=config)
