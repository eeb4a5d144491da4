"""Hands a trained sub-model back: its weights in the format that it came in, verified, in one zip.

The paper copies the whole hybrid model to the host; only the weights of the one sub-model are needed, so only they
are copied. Everything here runs beside the training, on host copies.
"""

import csv
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unifiednn_core import failpoints
from unifiednn_core.durable import sync_file, sync_folder
from unifiednn_core.errors import SeparationFailed
from unifiednn_core.intake.base import Definition
from unifiednn_core.intake.registry import format_named, sniff
from unifiednn_core.weights import state_sha256


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """Figures of one epoch; None where there is no such figure. One row of `metrics.csv`."""

    epoch: int
    step: int
    learning_rate: float
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


@dataclass(frozen=True, slots=True)
class Separated:
    """A separated model on disk."""

    archive: Path
    size_bytes: int
    model_path: Path
    state_sha256: str


def separate(
    name: str,
    definition: Definition,
    state_dict: Mapping[str, Tensor],
    *,
    spec: Mapping[str, object],
    figures: Sequence[EpochFigures],
    folder: Path,
) -> Separated:
    """Write `folder/NAME.zip` and, beside it, the model file itself; nothing is left behind where that fails.

    `state_dict` holds host copies under the submitted network's own keys. Raises `SeparationFailed`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as work:
            return _separate(name, definition, state_dict, spec, figures, Path(work), folder)
    except (OSError, RuntimeError, SafetensorError) as error:  # a full disk has a name of its own in each library
        if isinstance(error, SeparationFailed):
            raise
        free_bytes = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.is_dir())).free
        raise SeparationFailed(
            f"The trained model '{name}' could not be written to {folder}: {_reason(error)}. "
            f"{free_bytes // 1024**2} MiB are free there; make room or correct the permissions."
        ) from error


def _separate(
    name: str,
    definition: Definition,
    state_dict: Mapping[str, Tensor],
    spec: Mapping[str, object],
    figures: Sequence[EpochFigures],
    work: Path,
    folder: Path,
) -> Separated:
    failpoints.passing("separation.before_write")
    digest = state_sha256(state_dict)
    model_format = format_named(definition.format)
    delivery = model_format.write(definition, state_dict, work, name)
    save_file(dict(state_dict), work / "weights.safetensors")
    for file in delivery.files:
        written = sniff(file)
        if written is not None:
            _verify(name, digest, written.read_state_dict(file), file.name)
    _verify(name, digest, load_file(work / "weights.safetensors"), "weights.safetensors")
    (work / "spec.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
    (work / "load.py").write_text(delivery.load_script, encoding="utf-8")
    _write_figures(work / "metrics.csv", figures)
    archive = _zip(work, folder / f"{name}.zip")
    model_path = folder / delivery.files[0].name
    sync_file(delivery.files[0])
    delivery.files[0].replace(model_path)
    failpoints.passing("separation.after_rename")
    sync_folder(folder)
    return Separated(archive, archive.stat().st_size, model_path, digest)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]


def _verify(name: str, expected_sha256: str, read_back: Mapping[str, Tensor], filename: str) -> None:
    if state_sha256(read_back) != expected_sha256:
        raise SeparationFailed(
            f"The file {filename} of '{name}' does not read back as it was written. The disk may be failing: check it."
        )


def _write_figures(path: Path, figures: Sequence[EpochFigures]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(EpochFigures)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in figures)


def _zip(work: Path, archive: Path) -> Path:
    """Zip everything in `work`; the archive appears whole or not at all."""
    temporary = work / "archive.tmp"
    members = sorted(path for path in work.iterdir())
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as file:  # weights do not compress
        for member in members:
            file.write(member, member.name)
    sync_file(temporary)
    failpoints.passing("separation.before_rename")
    temporary.replace(archive)
    return archive
