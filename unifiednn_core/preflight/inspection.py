"""Describes one file, without a spec."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from unifiednn_core.base.errors import BadInput, Finding, HostileFile
from unifiednn_core.base.files import file_sha256
from unifiednn_core.base.visible import visible
from unifiednn_core.data import arrays, conversion, datasets, tokenizer_file
from unifiednn_core.data.containers import DATA_ALONE, container_of
from unifiednn_core.data.preview import preview
from unifiednn_core.engine.checkpoint_file import looks_like_one
from unifiednn_core.engine.start import CHECKPOINT_FORMAT, checkpoint_facts
from unifiednn_core.formats import registry, tensor_files
from unifiednn_core.formats.state_dict import WeightsFormat
from unifiednn_core.preflight.report import FileKind, FileReport

_log = logging.getLogger(__name__)
_BUFFERS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""Buffers of torch's own layers; a state dict does not tell them from weights."""
Described = tuple[FileKind, str, dict[str, object]]
"""Kind, format and facts."""
Result = TypeVar("Result")


def inspect_file(path: Path, filename: str) -> FileReport:
    """Recognise a file by its bytes and read it; mistakes in it become findings on `filename`."""
    described, findings = attempt(lambda: _describe(path), filename)
    if described is None:
        described = ("checkpoint", CHECKPOINT_FORMAT, {}) if looks_like_one(path) else ("unknown", "", {})
    kind, format_name, facts = described
    sha256, size_bytes = file_sha256(path), path.stat().st_size
    return FileReport(
        kind=kind, format=format_name, sha256=sha256, size_bytes=size_bytes, facts=facts, findings=findings
    )


def attempt(action: Callable[[], Result], field: str) -> tuple[Result | None, tuple[Finding, ...]]:
    """Run code that reads an uploaded file; errors of any kind become findings on `field`.

    Findings on the architecture stay on the architecture, below the sub-model of `field` if there is one.
    """
    try:
        return action(), ()
    except BadInput as error:
        return None, tuple(placed(finding, field) for finding in error.findings)
    except HostileFile as error:
        title, message, remedy = "File refused", str(error), "Save the file again in the usual way."
    except MemoryError:
        title, message, remedy = "Too large", "Not enough memory to read the file.", "Use a smaller one."
    except Exception as error:  # a parser can fail in any way on hostile bytes; the traceback goes to the log
        _log.exception("cannot read %s", field)
        title, message = "Cannot be read", f"The file cannot be read ({type(error).__name__})."
        remedy = "Save it again in the usual way, and copy it whole."
    return None, (_legible(Finding(title=title, field=field, message=message, remedy=remedy)),)


def _describe(path: Path) -> Described:
    """Raises `BadInput` or `HostileFile`."""
    if looks_like_one(path):
        return "checkpoint", CHECKPOINT_FORMAT, checkpoint_facts(path)
    if tokenizer_file.is_tokenizer(path):
        return "tokenizer", "tokenizer.json", tokenizer_file.tokenizer_facts(path)
    container = container_of(path)
    known = None if container in DATA_ALONE else registry.sniff(path)
    if container is not None and (container in DATA_ALONE or (known is None and container in conversion.CONVERTED)):
        return _describe_data(path, container)
    if known is None:
        raise registry.unknown(path)
    if isinstance(known, WeightsFormat) and container is not None:
        return _describe_tensors(path, known, container)
    definition = known.read(path, None)
    several = {one.name: f"{one.dtype or 'any'} {list(one.shape or ())}" for one in definition.inputs}
    facts: dict[str, object] = {
        "parameters": definition.parameters,
        "weights_bytes": definition.weights_bytes,
        "input_shape": list(definition.inputs[0].shape or ()),
        "input_dtype": definition.inputs[0].dtype,
        "operators": list(definition.operators),
        **({"inputs": several} if len(several) > 1 else {}),
        **({"outputs": list(definition.outputs)} if len(definition.outputs) > 1 else {}),
    }
    return "model", known.name, facts


def _describe_tensors(path: Path, known: WeightsFormat, container: str) -> Described:
    loaded = known.load(path)
    if arrays.looks_like_data(loaded):
        return _describe_data(path, container)
    held = known.held(path, None, path.name)
    state_dict = held.weights
    tensor_files.check_numbers(path, state_dict)
    elements = sum(tensor.numel() for tensor in state_dict.values())
    buffers = sum(value.numel() for name, value in state_dict.items() if name.rpartition(".")[2] in _BUFFERS)
    facts: dict[str, object] = {
        **({"entry": held.entry} if held.entry else {}),
        "tensors": len(state_dict),
        "elements": elements,
        "parameters": elements - buffers,
        "buffers": buffers,
        "weights_bytes": sum(tensor.nbytes for tensor in state_dict.values()),
    }
    return "weights", known.name, facts


def _describe_data(path: Path, container: str) -> Described:
    dataset = datasets.read_dataset(path)
    seen = preview(path, dataset)
    return "data", dataset.notes.origin or container, {**dataset.facts, "preview": seen.model_dump(mode="json")}


def _legible(finding: Finding) -> Finding:
    """The finding with every invisible character escaped: part of its text comes from the file."""
    return finding.model_copy(update={n: visible(getattr(finding, n)) for n in ("field", "message", "remedy")})


def placed(finding: Finding, field: str) -> Finding:
    """The finding on `field`, legible; one on the architecture stays there, below the sub-model of `field` if any."""
    if finding.field.startswith("submodels."):  # placed already
        return _legible(finding)
    on_architecture = field.startswith("submodels.") and finding.field.partition(".")[0] == "architecture"
    place = f"{field.rpartition('.')[0]}.{finding.field}" if on_architecture else field
    return _legible(finding.model_copy(update={"field": place}))
