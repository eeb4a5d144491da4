"""Separates a trained sub-model: its weights in the format of the submitted file, verified, in one zip.

The paper copies the whole hybrid model to the host; here only the weights of one sub-model are copied. Everything runs
on host copies, in parallel with training.
"""

import csv
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import SeparationCorrupt, SeparationFailed
from unifiednn_core.base.files import folder_lock, sync
from unifiednn_core.engine import meaning
from unifiednn_core.engine.meaning import Facts
from unifiednn_core.engine.probes import FILENAME as PROBES
from unifiednn_core.engine.probes import Probes
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.formats import cut, predict
from unifiednn_core.formats.base import Definition, Delivery
from unifiednn_core.formats.registry import format_named, sniff
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import SubModelSpec

SNIPPET, ANSWERS = "load.py", "predict.py"
NO_FACTS: Facts = {}
_OWN_CODE = """\

# weights.safetensors has the weights alone, without the versions of layers, which few layers look at (MNASNet does).
# Into a network of your own code:
# state = network.state_dict()
# state.update(safetensors.torch.load_file("weights.safetensors"))
# network.load_state_dict(state)
"""


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
    spec: Mapping[str, Any],
    figures: Iterable[Any],
    folder: Path,
    probes: Probes | None = None,
    ships_probes: bool = True,
    facts: Facts = NO_FACTS,
) -> Separated:
    """Write `folder/NAME.zip` and next to it the model file itself; `name` is the plain one, of the spec.

    `state_dict` holds host copies under the submitted network's own keys, `figures` one row for each epoch with what
    `EpochFigures` has. Raises `SeparationFailed` if the disk refuses
    the files now, and `SeparationCorrupt` if they read back differently; both leave no file behind. The probes are kept
    beside the zip as `NAME.probes.safetensors`, and with `ships_probes` inside it, too. `facts` are those
    about its training data.
    """
    digest = state_sha256(state_dict)
    with _failures(name, folder), tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder) as temporary:
        failpoints.passing("separation.before_write")
        work = Path(temporary)
        parts = spec.get("submodels", ())
        asked = SubModelSpec.model_validate(parts[0]) if parts else None
        delivery = deliver(name, definition, state_dict, work, asked, facts)
        save_file(dict(state_dict), work / "weights.safetensors")
        for part in delivery.files:
            known = sniff(part)
            if known is not None:
                _verify(name, digest, known.read_state_dict(part), part.name)
        _verify(name, digest, load_file(work / "weights.safetensors"), "weights.safetensors")
        (work / "spec.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        with (work / "metrics.csv").open("w", newline="", encoding="utf-8") as file:
            writer, columns = csv.writer(file), [field.name for field in fields(EpochFigures)]
            writer.writerow(columns)
            writer.writerows([getattr(row, name) for name in columns] for row in figures)
        if probes is not None:
            probes.write(work / PROBES, digest)
        archive, model_path = folder / f"{name}.zip", folder / delivery.files[0].name
        zipped = _zip(work, but=() if ships_probes else (PROBES,))
        failpoints.passing("separation.before_rename")
        if probes is not None:
            sync(work / PROBES)
        sync(delivery.files[0])
        with folder_lock(folder, exclusive=True):  # a certificate of an older export must not replace this one
            if probes is not None:
                (work / PROBES).replace(probes_path(folder, name))
            zipped.replace(archive)
            delivery.files[0].replace(model_path)
        failpoints.passing("separation.after_rename")
        sync(folder)
        return Separated(archive, archive.stat().st_size, model_path, digest)


def deliver(
    name: str,
    definition: Definition,
    state_dict: Mapping[str, Tensor],
    folder: Path,
    asked: SubModelSpec | None,
    facts: Facts,
) -> Delivery:
    """Write the model file and the code that loads it and answers for files."""
    write = cut.write if definition.part is not None else format_named(definition.format).write
    delivery = write(definition, state_dict, folder, name)
    answers = "" if asked is None else meaning.script(asked, definition, delivery.call, facts)
    if answers:
        shutil.copyfile(Path(predict.__file__), folder / ANSWERS)
    (folder / SNIPPET).write_text(delivery.load_script + _OWN_CODE + answers, encoding="utf-8")
    return delivery


@contextmanager
def _failures(name: str, folder: Path) -> Iterator[None]:
    """Create the folder, and turn errors of the disk into `SeparationFailed`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except SeparationCorrupt:
        raise
    except (OSError, RuntimeError, SafetensorError) as error:  # each library has its own error for a full disk
        free_bytes = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.is_dir())).free
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]
        raise SeparationFailed(
            f"The trained model '{name}' could not be written to {folder}: {reason}. "
            f"{free_bytes // 1024**2} MiB are free there; make room or fix the permissions."
        ) from error


def _verify(name: str, expected_sha256: str, read_back: Mapping[str, Tensor], filename: str) -> None:
    if state_sha256(read_back) != expected_sha256:
        raise SeparationCorrupt(f"The file {filename} of '{name}' reads back differently from what was written.")


def probes_path(folder: Path, name: str) -> Path:
    """Where the probes of a separated model are kept, beside its zip."""
    return folder / f"{name}.{PROBES}"


def _zip(work: Path, but: Sequence[str] = ()) -> Path:
    """Zip what is in `work`, except `but`, without compression: weights do not compress."""
    members, archive = sorted(path for path in work.iterdir() if path.name not in but), work / "archive.tmp"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for member in members:
            file.write(member, member.name)
    sync(archive)
    return archive
