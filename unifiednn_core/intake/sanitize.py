"""Reads a `.pt2` file into values that have been looked at one by one; the official loader never sees the file.

`torch.export.load` unpickles, imports names and evaluates strings that a file gives it, so a hostile file is code.
Here the JSON is held against a closed schema, every operator against an explicit list, every tensor against the bytes
that are there; pickled sample inputs and stack traces are left behind.
"""

import reprlib
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from torch import Tensor

from unifiednn_core.errors import BadInput, HostileFile
from unifiednn_core.intake import archive as container
from unifiednn_core.intake import operators
from unifiednn_core.intake.archive import View
from unifiednn_core.intake.exported_schema import Node, Program
from unifiednn_core.intake.exported_values import HOSTILE, Payloads
from unifiednn_core.intake.signature import GraphInterface, min_batch, read_interface

HOW_TO_EXPORT = (
    "Export it with torch 2.10 or newer: torch.export.export(network.train(), (x,), "
    'dynamic_shapes=({0: torch.export.Dim("batch")},)), then torch.export.save.'
)
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ExportedNetwork:
    """A checked `.pt2` file: the graph, and where its tensors lie. Holds no tensor itself."""

    path: Path
    program: Program
    weights: Payloads
    constants: Payloads
    weight_views: dict[str, View]
    constant_views: dict[str, View]
    interface: GraphInterface
    min_batch: int

    def read_weights(self) -> dict[str, Tensor]:
        """Weights and persistent buffers by key; tied ones are one and the same tensor."""
        return _read(self.path, self.weight_views)

    def read_constants(self) -> dict[str, Tensor]:
        """Constants and buffers that are not in the state dict."""
        return _read(self.path, self.constant_views)


def sanitized(path: Path) -> ExportedNetwork:
    """Check a file from end to end.

    Raises:
        BadInput: The file is honest, but no network that can be trained here.
        HostileFile: The file asks for something that no network needs.

    """
    with _opened(path) as archive:
        entries = container.open_entries(archive, path.stat().st_size)
        missing = [name for name in (container.MODEL, container.WEIGHTS, container.CONSTANTS) if name not in entries]
        if missing:
            raise _refused(path, f"The archive lacks '{missing[0]}'.")
        if "byteorder" in entries and archive.read(entries["byteorder"]).strip() != b"little":
            raise _refused(path, "The weights are stored in big-endian byte order.")
        program = _parsed(path, Program, archive.read(entries[container.MODEL]))
        weights = _parsed(path, Payloads, archive.read(entries[container.WEIGHTS]))
        constants = _parsed(path, Payloads, archive.read(entries[container.CONSTANTS]))
    _check_targets(path, program.graph_module.graph.nodes)
    interface = read_interface(program, weights, constants, lambda message: _refused(path, message))
    least = min_batch(program, interface.input_meta)
    if least is None:
        raise BadInput.of(
            "Fixed batch size",
            field=path.name,
            message="The network was exported for one batch size only.",
            remedy=f"Let the first dimension be dynamic. {HOW_TO_EXPORT}",
        )
    return ExportedNetwork(
        path=path,
        program=_with_root_only(program),
        weights=weights,
        constants=constants,
        weight_views=container.views_of(weights, "weights", entries),
        constant_views=container.views_of(constants, "constants", entries),
        interface=interface,
        min_batch=least,
    )


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; what is wrong with its bytes becomes `BadInput`."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error, UnicodeDecodeError) as error:
        raise _refused(path, f"The file is damaged ({error}).") from None


def _parsed(path: Path, model: type[Model], content: bytes) -> Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        hostile = [detail for detail in details if detail["type"] == HOSTILE]
        detail = (hostile or details)[0]
        where = ".".join(str(part) for part in detail["loc"][-6:]) or "the JSON"
        message = f"At {where}: {detail['msg']} (found {reprlib.repr(detail['input'])})."
        if hostile:
            raise HostileFile(message) from None
        raise _refused(path, message) from None


def _check_targets(path: Path, nodes: Iterable[Node]) -> None:
    targets = dict.fromkeys(node.target for node in nodes)
    for target in targets:
        if not target.startswith("torch.ops.") and target not in operators.SIZES:
            raise HostileFile(f"The graph calls '{target}', which is no operator.")
    unknown = [target for target in targets if not operators.is_allowed(target)]
    if unknown:
        named = ", ".join(target.removeprefix("torch.ops.") for target in unknown[:5])
        raise BadInput.of(
            "Operator not allowed",
            field=path.name,
            message=f"The graph uses operators that exported networks may not use here: {named}.",
            remedy="Write the network with common layers, or ask for the operator to be added to intake/operators.py.",
        )


def _with_root_only(program: Program) -> Program:
    """Return the program without the calls of inner modules, which nothing needs."""
    calls = tuple(call for call in program.graph_module.module_call_graph if call.fqn == "")
    module = program.graph_module.model_copy(update={"module_call_graph": calls})
    return program.model_copy(update={"graph_module": module})


def _read(path: Path, views: dict[str, View]) -> dict[str, Tensor]:
    with _opened(path) as archive:
        entries = container.open_entries(archive, path.stat().st_size)
        tensors = container.read_tensors(archive, entries, views.values())
    return {name: tensors[view] for name, view in views.items()}


def _refused(path: Path, message: str) -> BadInput:
    return BadInput.of("Not a network to train", field=path.name, message=message, remedy=HOW_TO_EXPORT)
