"""Formats that hold weights alone; the network comes from the architecture registry, by name."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.architectures import registry
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.intake import described, records, tensor_files
from unifiednn_core.intake.base import Definition, Delivery, count_parameters, size_bytes
from unifiednn_core.spec import ArchitectureSpec
from unifiednn_core.weights import host_copy

NAMED_PER_FINDING = 5
_LOAD_SCRIPT = """\
import torch
from architecture import build

model = build(**{args!r})
model.load_state_dict(torch.load({file!r}, weights_only=True))
model.eval()
"""


class _Weights:
    """What both containers share; a container brings `load` and `save`."""

    name: ClassVar[str]
    suffixes: ClassVar[tuple[str, ...]]

    def read(self, path: Path, architecture: ArchitectureSpec | None) -> Definition:
        """Hold the weights against the architecture; raises `BadInput` with a finding for each mistake."""
        if architecture is None:
            raise BadInput.of(
                "Architecture missing",
                field="architecture",
                message="The file holds weights alone; what network they belong to is not said.",
                remedy=f"Set 'architecture' to {{\"name\": ...}} with one of: {', '.join(registry.names())}.",
            )
        with torch.device("meta"):
            expected = registry.build(architecture.name, architecture.args)
        weights = self.read_state_dict(path)
        findings = _mismatches(path, weights, expected.state_dict())
        if findings:
            raise BadInput(findings)
        tensor_files.check_numbers(path, weights)

        def build() -> nn.Module:
            with torch.random.fork_rng(devices=[]):  # initial weights are drawn, then overwritten
                module = registry.build(architecture.name, architecture.args)
            module.load_state_dict(self.read_state_dict(path))
            return module

        return Definition(
            format=self.name,
            path=path,
            build=build,
            parameters=count_parameters(expected),
            weights_bytes=size_bytes(expected.state_dict()),
            architecture=architecture,
        )

    def write(self, definition: Definition, state_dict: Mapping[str, Tensor], folder: Path, stem: str) -> Delivery:
        """Write the weights in their container, the source of the architecture, and what plain torch can load."""
        if definition.architecture is None:
            raise ValueError("a definition of this format names its architecture")
        suffix = Path(definition.filename or definition.path.name).suffix
        path = folder / f"{stem}{suffix if suffix in self.suffixes else self.suffixes[0]}"
        source = folder / "architecture.py"
        weights = host_copy(state_dict)
        self.save(weights, path)
        shutil.copyfile(registry.source_file(definition.architecture.name), source)
        files = [path, source]
        if path.suffix not in StateDict.suffixes:
            files.append(folder / f"{stem}.pt")
            torch.save(weights, files[-1])
        loaded = files[-1] if len(files) > 2 else path
        script = _LOAD_SCRIPT.format(args=definition.architecture.args, file=loaded.name)
        return Delivery(files=tuple(files), load_script=script)

    def read_state_dict(self, path: Path) -> dict[str, Tensor]:
        """Weights of a file; raises `BadInput` or `HostileFile`."""
        loaded = self.load(path)
        if not isinstance(loaded, dict) or not loaded:
            raise _no_state_dict(path, f"an empty file or a {type(loaded).__name__}")
        for key, value in loaded.items():
            if not isinstance(key, str) or not isinstance(value, Tensor):
                raise _no_state_dict(path, f"under {str(key)[:60]!r} a {type(value).__name__}")
            tensor_files.check_plain(key, value)
        return {key: value.detach() for key, value in loaded.items()}

    def load(self, path: Path) -> object:
        """Whatever the file holds; raises `BadInput` or `HostileFile`."""
        raise NotImplementedError

    def save(self, state_dict: dict[str, Tensor], path: Path) -> None:
        """Write contiguous tensors on the host."""
        raise NotImplementedError


class StateDict(_Weights):
    """`torch.save(network.state_dict(), path)`."""

    name: ClassVar[str] = "state_dict"
    suffixes: ClassVar[tuple[str, ...]] = (".pt", ".pth")

    def sniff(self, path: Path) -> bool:
        """Whether `torch.save` wrote the file, and no object of a class into it."""
        return tensor_files.is_torch_file(path) and not records.is_pickled_object(path)

    def load(self, path: Path) -> object:
        """Whatever the file holds; raises `BadInput` or `HostileFile`."""
        return tensor_files.load_torch_file(path)

    def save(self, state_dict: dict[str, Tensor], path: Path) -> None:
        """Write contiguous tensors on the host."""
        torch.save(state_dict, path)


class Safetensors(_Weights):
    """`safetensors.torch.save_file(network.state_dict(), path)`."""

    name: ClassVar[str] = "safetensors"
    suffixes: ClassVar[tuple[str, ...]] = (".safetensors",)

    def sniff(self, path: Path) -> bool:
        """Whether the file begins as safetensors files do, and does not describe its network itself."""
        return tensor_files.is_safetensors(path) and not described.is_described(path)

    def load(self, path: Path) -> object:
        """Whatever the file holds; raises `BadInput` or `HostileFile`."""
        return tensor_files.load_safetensors(path)

    def save(self, state_dict: dict[str, Tensor], path: Path) -> None:
        """Write contiguous tensors on the host."""
        save_file(state_dict, path)


def _mismatches(path: Path, given: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> list[Finding]:
    differing = [
        f"'{key}' is {_kind(given[key])}, not {_kind(tensor)}"
        for key, tensor in expected.items()
        if key in given and _kind(given[key]) != _kind(tensor)
    ]
    groups = {
        "Weights missing": [f"'{key}'" for key in expected if key not in given],
        "Weights unknown": [f"'{key}'" for key in given if key not in expected],
        "Weights differ": differing,
    }
    return [
        Finding(
            title=title,
            field=path.name,
            message=f"{title} compared with the architecture: {_some(entries)}.",
            remedy="Name the architecture and arguments that the weights were trained with.",
        )
        for title, entries in groups.items()
        if entries
    ]


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _some(entries: list[str]) -> str:
    more = len(entries) - NAMED_PER_FINDING
    return ", ".join(entries[:NAMED_PER_FINDING]) + (f" and {more} more" if more > 0 else "")


def _no_state_dict(path: Path, found: str) -> BadInput:
    return BadInput.of(
        "Not a state dict",
        field=path.name,
        message=f"A state dict maps names to tensors; the file holds {found}.",
        remedy="Save the state dict alone: torch.save(network.state_dict(), path).",
    )
