"""Probes of a sub-model that has ended: a few samples, and what the network in the hybrid makes of them.

The certificate of its file compares them with what the file gives: bit for bit on the same kind of device.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.data.batch import Batch
from unifiednn_core.engine.step import Step
from unifiednn_core.formats.weights import state_sha256

FILENAME = "probes.safetensors"
MOST_SAMPLES, MOST_BYTES = 8, 2 * 1024**2
"""Of the inputs, and of the outputs that are kept with them; all outputs are hashed."""
_ENTRY = "unifiednn-probes"


@dataclass(frozen=True, slots=True)
class Probes:
    """A batch as the network got it and what it returned, on the host; or the reason why there is none."""

    inputs: tuple[Tensor, ...] = ()
    """In the order in which the network takes them."""
    outputs: tuple[Tensor, ...] = ()
    """Empty if they are large."""
    outputs_sha256: str = ""
    """`state_sha256` of the outputs by their places."""
    data: Literal["test", "training"] = "test"
    kind: Mapping[str, str | int] = field(default_factory=dict)
    """Kind of device that computed them: `Kind.row`."""
    missing: str = ""
    """Why there is nothing to compare, as a clause."""
    state_sha256: str = ""
    """Hash of the weights that they were taken with; known once they are read from a file."""

    def write(self, path: Path, state_sha256: str) -> None:
        """Write them as one safetensors file, with the hash of the weights."""
        tensors = {
            f"{name}.{place}": tensor
            for name, held in (("input", self.inputs), ("output", self.outputs))
            for place, tensor in enumerate(held)
        }
        document = {
            "outputs_sha256": self.outputs_sha256,
            "data": self.data,
            "kind": dict(self.kind),
            "missing": self.missing,
            "state_sha256": state_sha256,
        }
        save_file(tensors, path, {_ENTRY: json.dumps(document)})

    @classmethod
    def read(cls, path: Path) -> "Probes":
        """Read a file; raises what json and safetensors raise for a damaged one, and `ValueError`."""
        with safe_open(path, framework="pt") as file:
            document, names = json.loads((file.metadata() or {})[_ENTRY]), sorted(file.keys(), key=_place)
            held = {
                which: tuple(file.get_tensor(name) for name in names if name.startswith(which))
                for which in ("input", "output")
            }
        texts = {name: str(document[name]) for name in ("outputs_sha256", "missing", "state_sha256")}
        data: Literal["test", "training"] = "training" if document["data"] == "training" else "test"
        kind = {str(name): value for name, value in document["kind"].items() if isinstance(value, str | int)}
        return cls(held["input"], held["output"], data=data, kind=kind, **texts)


def outputs_of(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What a network in evaluation returns for its inputs, on the host; an output that is None is left out."""
    with torch.no_grad():
        found: Any = module(*(one.clone() for one in inputs))  # a network may write into its input
    listed = found if isinstance(found, tuple) else (found,)
    return tuple(one.detach().to("cpu").contiguous() for one in listed if one is not None)


def outputs_sha256(outputs: Sequence[Tensor]) -> str:
    """Hash of outputs with their shapes and types."""
    return state_sha256({str(place): one for place, one in enumerate(outputs)})


def take(
    module: nn.Module,
    step: Step,
    batch_of: Callable[[int], Batch],
    samples: int,
    *,
    data: Literal["test", "training"],
    kind: Mapping[str, str | int],
) -> Probes:
    """Run a network that has ended on the first samples of a data set; its weights become contiguous, as in a file.

    `batch_of` returns so many of them as the network gets them, on its device.
    """
    count = min(samples, MOST_SAMPLES)
    given = step.given(batch_of(count))
    size_bytes = sum(one.nbytes for one in given if one is not None)
    if size_bytes > MOST_BYTES and (count := max(2, count * MOST_BYTES // size_bytes)) < samples:
        given = step.given(batch_of(count))
    inputs = [one for one in given if one is not None]
    if len(inputs) < len(given):
        return Probes(missing="the network takes targets, and its data have none")
    if sum(one.nbytes for one in inputs) > 4 * MOST_BYTES:
        return Probes(missing=f"{count} samples take more than {4 * MOST_BYTES // 1024**2} MiB")
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.contiguous()  # other strides round differently
    before = module.training
    module.train(False)
    try:
        digest = outputs_sha256(outputs_of(module, inputs))
        outputs = outputs_of(module, inputs)
    finally:
        module.train(before)
    if outputs_sha256(outputs) != digest:
        return Probes(missing="the network returns other values each time, also in evaluation")
    kept = outputs if sum(one.nbytes for one in outputs) <= MOST_BYTES else ()
    return Probes(tuple(one.cpu().contiguous() for one in inputs), kept, digest, data, kind)


def _place(name: str) -> tuple[str, int]:
    which, _, place = name.partition(".")
    if which not in ("input", "output") or not place.isdecimal():
        raise ValueError(f"the probes hold '{name[:40]}', which is neither input nor output")
    return which, int(place)
