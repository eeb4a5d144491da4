"""The format `.pt2`: an exported program of torch, with architecture and weights in one file."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from unifiednn_core.errors import BadInput
from unifiednn_core.intake import archive as container
from unifiednn_core.intake import tensor_files
from unifiednn_core.intake.archive import DTYPES
from unifiednn_core.intake.base import Definition, Delivery, count_parameters, size_bytes
from unifiednn_core.intake.exported_schema import Program
from unifiednn_core.intake.exported_values import Payload, Payloads
from unifiednn_core.intake.graph import build_module, operator_names
from unifiednn_core.intake.modes import for_evaluation, switched_off
from unifiednn_core.intake.sanitize import ExportedNetwork, sanitized
from unifiednn_core.spec import ArchitectureSpec

_LOAD_SCRIPT = """\
import torch

# The network for inference; {stem}.pt2 is the same one for more training, with dropout and normalisation on.
model = torch.export.load("{stem}.eval.pt2").module()
"""


class Exported:
    """Networks from `torch.export.save`, exported in train mode with a dynamic batch."""

    name: ClassVar[str] = "pt2"
    suffixes: ClassVar[tuple[str, ...]] = (".pt2",)

    def sniff(self, path: Path) -> bool:
        """Whether the file is a zip with an exported program in it."""
        return container.looks_like_archive(path)

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Check the file and build it once; raises `BadInput` or `HostileFile`."""
        if architecture is not None:
            raise BadInput.of(
                "Architecture given twice",
                field="architecture",
                message="A .pt2 file holds its architecture itself.",
                remedy="Remove the entry 'architecture'.",
            )
        network = sanitized(path)
        module = build_module(network)
        tensor_files.check_numbers(path, module.state_dict())
        sizes = [size.as_int if size.kind == "as_int" else None for size in network.interface.input_meta.sizes]
        return Definition(
            format=self.name,
            path=path,
            build=lambda: build_module(network),
            parameters=count_parameters(module),
            weights_bytes=size_bytes(module.state_dict()),
            input_shape=tuple(sizes[1:]),
            input_dtype=str(DTYPES[network.interface.input_meta.dtype]).removeprefix("torch."),
            min_batch=network.min_batch,
            operators=operator_names(network),
            switched_off=switched_off(network.program),
        )

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write `stem.pt2` as it came, and `stem.eval.pt2` for inference, both with the trained weights."""
        network = sanitized(definition.path)
        paths = (folder / f"{stem}.pt2", folder / f"{stem}.eval.pt2")
        evaluation = for_evaluation(network.program, network.interface.held)
        for path, program in zip(paths, (network.program, evaluation), strict=True):
            container.write_archive(path, stem, _entries(network, program, state_dict))
        return Delivery(files=paths, load_script=_LOAD_SCRIPT.format(stem=stem))

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Weights of a file, read from its raw bytes."""
        return sanitized(path).read_weights()


def _entries(network: ExportedNetwork, program: Program, state_dict: Mapping[str, Tensor]) -> dict[str, bytes]:
    weights, weight_records = _packed(network.weights, network.weight_views, state_dict, "weights/weight")
    constants, constant_records = _packed(
        network.constants, network.constant_views, network.read_constants(), "constants/tensor"
    )
    return {
        **weight_records,
        container.WEIGHTS: _json(weights),
        **constant_records,
        container.CONSTANTS: _json(constants),
        container.MODEL: _json(program),
        container.SAMPLE_INPUTS: b"",
    }


def _packed(
    payloads: Payloads, views: Mapping[str, container.View], tensors: Mapping[str, Tensor], folder: str
) -> tuple[Payloads, dict[str, bytes]]:
    """Tensors as records of their own, one for each distinct view, and the table that names them."""
    config: dict[str, Payload] = {}
    records: dict[str, bytes] = {}
    numbers: dict[container.View, int] = {}
    for name, payload in payloads.config.items():
        tensor, view = tensors[name].detach().to("cpu").contiguous(), views[name]
        _check_same_kind(name, tensor, view)
        number = numbers.setdefault(view, len(numbers))
        record = f"data/{folder}_{number}"
        records.setdefault(record, container.tensor_bytes(tensor))
        meta = container.contiguous_meta(payload.tensor_meta)
        config[name] = payload.model_copy(update={"path_name": record.rpartition("/")[2], "tensor_meta": meta})
    return Payloads(config=config), records


def _check_same_kind(name: str, tensor: Tensor, view: container.View) -> None:
    if tuple(tensor.shape) != view.shape or tensor.dtype != DTYPES[view.dtype]:
        raise ValueError(f"the trained '{name}' is {tensor.dtype} {list(tensor.shape)}, not what the file describes")


def _json(part: Program | Payloads) -> bytes:
    return part.model_dump_json(exclude_unset=True).encode()
