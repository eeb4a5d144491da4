"""The format `.pt2`: an exported program of torch with architecture and weights in one file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from unifiednn_core.formats import archive as container
from unifiednn_core.formats import tensor_files, zips
from unifiednn_core.formats.archive import DTYPES, TensorView
from unifiednn_core.formats.base import Definition, Delivery, Input, define, refuse_architecture
from unifiednn_core.formats.exported_schema import Payload, Payloads, Program
from unifiednn_core.formats.graph import build_module, for_evaluation, operator_names, switched_off
from unifiednn_core.formats.sanitize import ExportedNetwork, sanitized
from unifiednn_core.spec.run import ArchitectureSpec

_ON_GPU = re.compile(rb'"type":"cuda","index":(null|[0-9]+)')
_LOAD_SCRIPT = """\
import torch

# The network for inference; {stem}.pt2 is the same one for more training, with dropout and normalisation on.
model = torch.export.load("{stem}.eval.pt2").module()
"""


class ExportedFormat:
    """Networks from `torch.export.save`, exported in train mode with a dynamic batch."""

    name: ClassVar[str] = "pt2"
    suffixes: ClassVar[tuple[str, ...]] = (".pt2",)

    def sniff(self, path: Path) -> bool:
        """Whether the file is a zip that holds an exported program."""
        return any(name.partition("/")[2] == container.MODEL for name in zips.names(path))

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and build it once; raises `BadInput` or `HostileFile`."""
        refuse_architecture(architecture)
        network = sanitized(path)
        module = build_module(network)
        tensor_files.check_numbers(path, module.state_dict())
        sizes = [size.as_int if size.kind == "as_int" else None for size in network.input_meta.sizes]
        dtype = str(DTYPES[network.input_meta.dtype]).removeprefix("torch.")
        return define(
            self.name,
            path,
            lambda: build_module(network),
            module,
            inputs=(Input(network.input_name, tuple(sizes[1:]), dtype),),
            min_batch=network.min_batch,
            operators=operator_names(network),
            switched_off=switched_off(network),
        )

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the trained weights twice: `stem.pt2` with the original program, `stem.eval.pt2` for inference."""
        network = sanitized(definition.path)
        paths = (folder / f"{stem}.pt2", folder / f"{stem}.eval.pt2")
        for path, program in zip(paths, (network.program, for_evaluation(network)), strict=True):
            container.write_archive(path, stem, _entries(network, program, state_dict))
        return Delivery(files=paths, load_script=_LOAD_SCRIPT.format(stem=stem))

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file."""
        return sanitized(path).read_weights()


def write_checked(source: Path, target: Path) -> None:
    """Write what was checked of a file, its numbers as they are, for torch's own loader on a machine without a GPU.

    Raises `BadInput` or `HostileFile`.
    """
    network = sanitized(source)
    written = {
        container.MODEL: _json(network.program),
        container.WEIGHTS: _json(network.weights),
        container.CONSTANTS: _json(network.constants),
    }
    documents = {name: _ON_GPU.sub(b'"type":"cpu","index":null', content) for name, content in written.items()}
    container.write_archive(target, "checked", {**network.read_records(), **documents, container.SAMPLE_INPUTS: b""})


def _entries(network: ExportedNetwork, program: Program, state_dict: Mapping[str, Tensor]) -> dict[str, bytes]:
    weights = _packed(network.weights, network.weight_views, state_dict, "weights/weight", container.WEIGHTS)
    fixed = network.read_constants()
    constants = _packed(network.constants, network.constant_views, fixed, "constants/tensor", container.CONSTANTS)
    return {**weights, **constants, container.MODEL: _json(program), container.SAMPLE_INPUTS: b""}


def _packed(
    payloads: Payloads, views: Mapping[str, TensorView], tensors: Mapping[str, Tensor], folder: str, table: str
) -> dict[str, bytes]:
    """Make one record for each distinct view, and the table that names them."""
    config: dict[str, Payload] = {}
    records: dict[str, bytes] = {}
    numbers: dict[TensorView, int] = {}
    for name, payload in payloads.config.items():
        tensor, view = tensors[name].detach().to("cpu").contiguous(), views[name]
        if tuple(tensor.shape) != view.shape or tensor.dtype != DTYPES[view.dtype]:
            raise ValueError(f"the trained '{name}' is {tensor.dtype} {list(tensor.shape)}; the file has another kind")
        record = f"data/{folder}_{numbers.setdefault(view, len(numbers))}"
        records.setdefault(record, bytes(tensor_files.raw(tensor)))
        meta = container.contiguous_meta(payload.tensor_meta)
        config[name] = payload.model_copy(update={"path_name": record.rpartition("/")[2], "tensor_meta": meta})
    return {**records, table: _json(Payloads(config=config))}


def _json(part: Program | Payloads) -> bytes:
    return part.model_dump_json(exclude_unset=True).encode()
