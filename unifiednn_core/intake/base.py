"""The contract of a model format, and the definition that every format reads its files into."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from torch import Tensor, nn

from unifiednn_core.spec import ArchitectureSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a model file says: architecture, weights, input signature. Never running code."""

    format: str
    """Name of the format that it came in."""
    path: Path
    """The file as it came; only its format opens it again."""
    filename: str = ""
    """Name under which it was handed in, where that is not the name of `path`."""
    build: Callable[[], nn.Module]
    """Makes the module with the file's weights, on CPU, in train mode; `train()` and `eval()` switch it."""
    parameters: int
    """Number of trainable weights."""
    weights_bytes: int
    """Size of parameters and buffers together."""
    architecture: ArchitectureSpec | None = None
    input_shape: tuple[int | None, ...] | None = None
    """Shape of one input without the batch dimension, where the file says it; None for a free dimension."""
    input_dtype: str | None = None
    min_batch: int = 1
    """Smallest batch that the network takes (2 for exported graphs with a dynamic batch)."""
    operators: tuple[str, ...] = ()
    """For exported graphs: the operators in it, in order, for the graph drawing."""
    switched_off: tuple[str, ...] = ()
    """For exported graphs: layers like dropout that the file has off in training too."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Files of a separated model, and the few lines of plain torch that load it."""

    files: tuple[Path, ...]
    load_script: str


class Format(Protocol):
    """One model format; one file of this room. Every format passes the kit in `unifiednn_core.testing`."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]

    def sniff(self, path: Path) -> bool:
        """Whether the file looks like this format, judged by its bytes."""
        ...

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Read the file; raises `BadInput` with findings, or `HostileFile`."""
        ...

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the trained model in its own format into `folder`, as `stem` plus the format's suffix."""
        ...

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Weights of a file that `write` made, for its verification."""
        ...


def count_parameters(module: nn.Module) -> int:
    """Number of trainable weights; tied weights count once."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def size_bytes(state_dict: Mapping[str, Tensor]) -> int:
    """Bytes of all tensors; tensors that share storage count once."""
    seen: dict[int, int] = {}
    for tensor in state_dict.values():
        storage = tensor.untyped_storage()
        seen[id(storage) if tensor.device.type == "meta" else storage.data_ptr()] = (
            tensor.numel() * tensor.element_size()
        )
    return sum(seen.values())
