"""Says what one file is, without a spec."""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from unifiednn_core.checkpoints.file import looks_like_one
from unifiednn_core.errors import BadInput, Finding, HostileFile
from unifiednn_core.intake import conversion, datasets, registry, tensor_files
from unifiednn_core.intake.preview import preview
from unifiednn_core.intake.report import FileReport
from unifiednn_core.intake.start import CHECKPOINT_FORMAT, checkpoint_facts
from unifiednn_core.intake.state_dict import Safetensors, StateDict

_log = logging.getLogger(__name__)
CHUNK_BYTES = 1024**2
Result = TypeVar("Result")


def inspect_file(path: Path, filename: str) -> FileReport:
    """Recognise a file by its bytes and read it; mistakes in it become findings on `filename`."""
    size_bytes = path.stat().st_size
    report = FileReport(kind="unknown", format="", sha256=sha256_of(path), size_bytes=size_bytes)
    if looks_like_one(path):
        facts, findings = attempt(lambda: checkpoint_facts(path), filename)
        update = {"kind": "checkpoint", "format": CHECKPOINT_FORMAT, "facts": facts or {}, "findings": findings}
        return report.model_copy(update=update)
    described, findings = attempt(lambda: _describe(path), filename)
    if described is None:
        return report.model_copy(update={"findings": findings})
    kind, format_name, facts = described
    return report.model_copy(update={"kind": kind, "format": format_name, "facts": facts})


def attempt(action: Callable[[], Result], field: str) -> tuple[Result | None, tuple[Finding, ...]]:
    """Run what reads a stranger's file; whatever it raises becomes findings on `field`.

    Findings on the architecture keep that as their place, below `field`'s sub-model where there is one.
    """
    try:
        return action(), ()
    except BadInput as error:
        return None, tuple(_legible(_placed(finding, field)) for finding in error.findings)
    except HostileFile as error:
        title, message, remedy = "File refused", str(error), "Save the file again in the usual way."
    except MemoryError:
        title, message, remedy = "Too large", "There is not enough memory to read the file.", "Use a smaller one."
    except Exception as error:  # a parser of strangers' bytes can fail in any way; the traceback goes to the log
        _log.exception("cannot read %s", field)
        title, message = "Cannot be read", f"The file cannot be read ({type(error).__name__})."
        remedy = "Save it again in the usual way, and copy it whole."
    return None, (_legible(Finding(title=title, field=field, message=message, remedy=remedy)),)


def sha256_of(path: Path) -> str:
    """Hash of the bytes of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(path: Path) -> tuple[str, str, dict[str, object]]:
    """Kind, format and facts; raises `BadInput` or `HostileFile`."""
    container = datasets.container_of(path)
    if container in ("npz", "parquet"):
        return _describe_data(path, container)
    known = registry.sniff(path)
    if known is None and container in conversion.CONVERTED:
        return _describe_data(path, container)
    if isinstance(known, StateDict | Safetensors) and container is not None:
        return _describe_tensors(path, known, container)
    if known is None:
        raise registry.unknown(path)
    definition = known.read(path, None)
    return (
        "model",
        known.name,
        {
            "parameters": definition.parameters,
            "weights_bytes": definition.weights_bytes,
            "input_shape": list(definition.input_shape or ()),
            "input_dtype": definition.input_dtype,
            "operators": list(definition.operators),
        },
    )


def _describe_tensors(path: Path, known: StateDict | Safetensors, container: str) -> tuple[str, str, dict[str, object]]:
    loaded = known.load(path)
    if isinstance(loaded, dict) and datasets.KEYS & loaded.keys():
        return _describe_data(path, container)
    state_dict = known.read_state_dict(path)
    tensor_files.check_numbers(path, state_dict)
    sizes = [tensor.numel() for tensor in state_dict.values()]
    weights_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state_dict.values())
    return "weights", known.name, {"tensors": len(sizes), "elements": sum(sizes), "weights_bytes": weights_bytes}


def _describe_data(path: Path, container: str) -> tuple[str, str, dict[str, object]]:
    dataset = datasets.read_dataset(path)
    seen = preview(path, dataset)
    return "data", dataset.notes.origin or container, {**dataset.facts, "preview": seen.model_dump(mode="json")}


def _legible(finding: Finding) -> Finding:
    """Finding whose words, some of them a stranger's, neither break a document nor steer a terminal."""
    update = {
        name: "".join(sign if sign.isprintable() else "\ufffd" for sign in text)
        for name, text in (("field", finding.field), ("message", finding.message), ("remedy", finding.remedy))
    }
    return finding.model_copy(update=update)


def _placed(finding: Finding, field: str) -> Finding:
    if finding.field.startswith("submodels."):  # it knows its place already
        return finding
    owner = field.rpartition(".")[0] if field.startswith("submodels.") else ""
    own_place = finding.field == "architecture" or finding.field.startswith("architecture.")
    place = f"{owner}.{finding.field}" if own_place and owner else field
    return finding.model_copy(update={"field": place})
