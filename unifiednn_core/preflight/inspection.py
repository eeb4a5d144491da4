"""Says what one file is, without a spec."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from unifiednn_core.base.errors import BadInput, Finding, HostileFile
from unifiednn_core.data import conversion, datasets
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.data.preview import preview
from unifiednn_core.engine.checkpoint_file import looks_like_one
from unifiednn_core.engine.start import CHECKPOINT_FORMAT, checkpoint_facts
from unifiednn_core.formats import registry, tensor_files
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.state_dict import WeightsFormat
from unifiednn_core.preflight.report import FileReport
from unifiednn_core.spec.run import ArchitectureSpec

_log = logging.getLogger(__name__)
_BUFFERS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""What torch's own layers keep beside their weights; a state dict does not tell the two apart."""
CHUNK_BYTES = 1024**2
Result = TypeVar("Result")


class Reader:
    """Reads files, each content once however often it is asked for."""

    def __init__(self) -> None:
        self._definitions: dict[tuple[str, str], Definition] = {}
        self._datasets: dict[str, Dataset] = {}

    def definition(self, path: Path, sha256: str, architecture: ArchitectureSpec | None) -> Definition:
        """Read a model file; raises `BadInput` or `HostileFile`."""
        key = (sha256, "" if architecture is None else architecture.model_dump_json())
        if key not in self._definitions:
            known = registry.sniff(path)
            if known is None:
                raise registry.unknown(path)
            self._definitions[key] = known.read(path, architecture)
        return self._definitions[key]

    def dataset(self, path: Path, sha256: str) -> Dataset:
        """Read a data set; raises `BadInput` or `HostileFile`."""
        if sha256 not in self._datasets:
            self._datasets[sha256] = datasets.read_dataset(path)
        return self._datasets[sha256]


def inspect_file(path: Path, filename: str, reader: Reader | None = None) -> FileReport:
    """Recognise a file by its bytes and read it; mistakes in it become findings on `filename`."""
    size_bytes, reader = path.stat().st_size, reader or Reader()
    report = FileReport(kind="unknown", format="", sha256=sha256_of(path), size_bytes=size_bytes)
    if looks_like_one(path):
        facts, findings = attempt(lambda: checkpoint_facts(path), filename)
        update = {"kind": "checkpoint", "format": CHECKPOINT_FORMAT, "facts": facts or {}, "findings": findings}
        return report.model_copy(update=update)
    described, findings = attempt(lambda: _describe(path, report.sha256, reader), filename)
    if described is None:
        return report.model_copy(update={"findings": findings})
    kind, format_name, facts = described
    return report.model_copy(update={"kind": kind, "format": format_name, "facts": facts})


def attempt(action: Callable[[], Result], field: str) -> tuple[Result | None, tuple[Finding, ...]]:
    """Run code that reads an uploaded file; whatever it raises becomes findings on `field`.

    Findings on the architecture stay on the architecture, below the sub-model of `field` if there is one.
    """
    try:
        return action(), ()
    except BadInput as error:
        return None, tuple(_legible(_placed(finding, field)) for finding in error.findings)
    except HostileFile as error:
        title, message, remedy = "File refused", str(error), "Save the file again in the usual way."
    except MemoryError:
        title, message, remedy = "Too large", "Not enough memory to read the file.", "Use a smaller one."
    except Exception as error:  # a parser can fail in any way on hostile bytes; the traceback goes to the log
        _log.exception("cannot read %s", field)
        title, message = "Cannot be read", f"The file cannot be read ({type(error).__name__})."
        remedy = "Save it again in the usual way, and copy it whole."
    return None, (_legible(Finding(title=title, field=field, message=message, remedy=remedy)),)


def sha256_of(path: Path) -> str:
    """Hash of the bytes of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(path: Path, sha256: str, reader: Reader) -> tuple[str, str, dict[str, object]]:
    """Kind, format and facts; raises `BadInput` or `HostileFile`."""
    container = datasets.container_of(path)
    if container in ("npz", "parquet"):
        return _describe_data(path, sha256, reader, container)
    known = registry.sniff(path)
    if known is None and container in conversion.CONVERTED:
        return _describe_data(path, sha256, reader, container)
    if isinstance(known, WeightsFormat) and container is not None:
        return _describe_tensors(path, sha256, reader, known, container)
    if known is None:
        raise registry.unknown(path)
    definition = reader.definition(path, sha256, None)
    facts: dict[str, object] = {
        "parameters": definition.parameters,
        "weights_bytes": definition.weights_bytes,
        "input_shape": list(definition.input_shape or ()),
        "input_dtype": definition.input_dtype,
        "operators": list(definition.operators),
    }
    return "model", known.name, facts


def _describe_tensors(
    path: Path, sha256: str, reader: Reader, known: WeightsFormat, container: str
) -> tuple[str, str, dict[str, object]]:
    loaded = known.load(path)
    if isinstance(loaded, dict) and datasets.KEYS & loaded.keys():
        return _describe_data(path, sha256, reader, container)
    state_dict = known.read_state_dict(path)
    tensor_files.check_numbers(path, state_dict)
    sizes = {name: tensor.numel() for name, tensor in state_dict.items()}
    buffers = sum(size for name, size in sizes.items() if name.rpartition(".")[2] in _BUFFERS)
    facts: dict[str, object] = {
        "tensors": len(sizes),
        "elements": sum(sizes.values()),
        "parameters": sum(sizes.values()) - buffers,
        "buffers": buffers,
        "weights_bytes": sum(tensor.numel() * tensor.element_size() for tensor in state_dict.values()),
    }
    return "weights", known.name, facts


def _describe_data(path: Path, sha256: str, reader: Reader, container: str) -> tuple[str, str, dict[str, object]]:
    dataset = reader.dataset(path, sha256)
    seen = preview(path, dataset)
    return "data", dataset.notes.origin or container, {**dataset.facts, "preview": seen.model_dump(mode="json")}


def _legible(finding: Finding) -> Finding:
    """The finding with every control character replaced: part of its text comes from the file."""
    shown = {name: getattr(finding, name) for name in ("field", "message", "remedy")}
    update = {name: "".join(sign if sign.isprintable() else "\ufffd" for sign in text) for name, text in shown.items()}
    return finding.model_copy(update=update)


def _placed(finding: Finding, field: str) -> Finding:
    if finding.field.startswith("submodels."):  # placed already
        return finding
    owner = field.rpartition(".")[0] if field.startswith("submodels.") else ""
    own_place = finding.field.partition(".")[0] == "architecture"
    place = f"{owner}.{finding.field}" if own_place and owner else field
    return finding.model_copy(update={"field": place})
