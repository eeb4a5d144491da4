"""The contract of a model format, the definition that it reads, and advice for files that are programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.spec.run import ArchitectureSpec

PACK = "On your own machine, run `unifiednn pack my_module.py:make_model`, and submit the .pt2 file."


@dataclass(frozen=True, slots=True)
class Input:
    """One named input of a network."""

    name: str = "inputs"
    shape: tuple[int | None, ...] | None = None
    """Of one sample, without the batch, if the file says it; None for a free dimension."""
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Boundary:
    """What one part of a network hands to the next."""

    shape: tuple[int, ...]
    """Of one sample."""
    least: float
    """-1 if its numbers may be negative, else 0."""


@dataclass(frozen=True, slots=True)
class PartOfNetwork:
    """Which part of a network a definition is."""

    whole: str
    """What its delivered file says it belongs to."""
    classes: int
    """Classes that the whole network scores."""
    begins: Boundary | None
    """None for the first part, which gets the data."""
    ends: Boundary | None
    """None for the last part, which gives the scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Content of a model file: architecture, weights, input signature. No code of the file ever runs."""

    format: str
    """Name of the format of the file."""
    path: Path
    """The submitted file; only its format opens it again."""
    filename: str = ""
    """Name under which the file was submitted; empty if it is the name of `path`."""
    build: Callable[[], nn.Module]
    """Makes the module with the file's weights, on the CPU, in train mode; `train()` and `eval()` switch it.

    It is called with one tensor for each of `inputs`, and returns one for each of `outputs`: several as a tuple.
    In evaluation None stands for an output that the network has in training alone."""
    parameters: int
    """Number of trainable weights."""
    weights_bytes: int
    """Size of parameters and buffers together."""
    architecture: ArchitectureSpec | None = None
    inputs: tuple[Input, ...] = (Input(),)
    outputs: tuple[str, ...] = ("outputs",)
    """Names of the outputs."""
    min_batch: int = 1
    """Smallest batch that the network accepts."""
    operators: tuple[str, ...] = ()
    """For exported graphs: the operators in order, to draw the graph."""
    switched_off: tuple[str, ...] = ()
    """For exported graphs: layers such as dropout that are off in training too."""
    doubts: tuple[Finding, ...] = ()
    """Warnings about the file; those on "architecture" belong to that entry of the spec."""
    part: PartOfNetwork | None = None
    """Set if this is a part of the network in the file, with the keys of the whole."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Files of a separated model, and a few lines of plain torch that load it."""

    files: tuple[Path, ...]
    load_script: str
    call: str = "model({all})"
    """How `model` of the script is called: `{0}` stands for its first input; empty if tensors alone do not do."""


class Format(Protocol):
    """One model format, in one file of this room. Every format passes `unifiednn_core.testing.formats`."""

    @property
    def name(self) -> str:
        """Name in specs and reports."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of its files, the usual one first."""

    def sniff(self, path: Path) -> bool:
        """Whether the bytes of the file look like this format."""

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Read the file; raises `BadInput` with findings, or `HostileFile`."""

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the trained model in its own format into `folder`, as `stem` plus the suffix of the format."""

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Read the weights of a file from `write`, to verify it."""


def define(name: str, path: Path, build: Callable[[], nn.Module], network: nn.Module, **known: Any) -> Definition:
    """Define a file of the format `name` with the sizes of `network` and other `known` fields."""
    parameters, weights_bytes = count_parameters(network), size_bytes(network.state_dict())
    return Definition(format=name, path=path, build=build, parameters=parameters, weights_bytes=weights_bytes, **known)


def count_parameters(module: nn.Module) -> int:
    """Count the trainable weights; tied weights count once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def size_bytes(state_dict: Mapping[str, Tensor]) -> int:
    """Count the bytes of all tensors; tensors that share storage count once."""
    seen: dict[int, int] = {}
    for tensor in state_dict.values():
        storage = tensor.untyped_storage()
        seen[id(storage) if tensor.is_meta else storage.data_ptr()] = tensor.nbytes
    return sum(seen.values())


def delivered_path(definition: Definition, suffixes: tuple[str, ...], folder: Path, stem: str) -> Path:
    """Name a trained model in `folder`, with the suffix of the submitted file if that is one of `suffixes`."""
    suffix = Path(definition.filename or definition.path.name).suffix
    return folder / f"{stem}{suffix if suffix in suffixes else suffixes[0]}"


def refuse_architecture(given: ArchitectureSpec | None) -> None:
    """Raise `BadInput` if a spec names an architecture for a file that holds its own."""
    if given is not None:
        message, remedy = "The file describes its network itself.", "Remove the entry 'architecture'."
        raise BadInput.of("Architecture given twice", field="architecture", message=message, remedy=remedy)
