"""A checkpoint as one safetensors file that appears completely or not at all, and that proves its own integrity.

`CheckpointStore` keeps those of one sub-model: the last two and the best; it skips damaged ones.

Every tensor lies under its place in the tree (`model.conv1.weight`, `optimizer.state.0.exp_avg`), so safetensors alone
reads the weights. The header's metadata holds `unifiednn_checkpoint` (version of the format),
`document` (JSON: everything but the tensors, and the SHA-256 of each tensor) and `document_sha256`.
"""

import contextlib
import hashlib
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.base.files import sync
from unifiednn_core.engine.checkpoint import FORMAT_VERSION, MAX_STEPS, Checkpoint, flatten, name_of_key, unflatten
from unifiednn_core.formats.tensor_files import DTYPE_NAMES, raw, safetensors_header
from unifiednn_core.spec.run import NAME_PATTERN

TEMPORARY_SUFFIX = ".tmp"
MODEL_PREFIX = "model."
KEPT_LAST = 2
DAMAGED_SUFFIX = ".damaged"
_NAME = re.compile(r"step-(\d{9,})\.safetensors")
_VERSION, _DOCUMENT, _DOCUMENT_SHA256 = "unifiednn_checkpoint", "document", "document_sha256"
_BEGIN = b'{"__metadata__":{"unifiednn_checkpoint":"'
_USELESS = "has an invalid document"
_FOREIGN = "is not a checkpoint of UnifiedNN"


class Unreadable(ValueError):
    """Reason why a file cannot be read, as the rest of a sentence that begins with its name."""


def write(checkpoint: Checkpoint, path: Path) -> int:
    """Write a checkpoint and return its size in bytes; it appears at `path` completely or not at all.

    Raises `OSError` if the disk is full or refuses it, and `TypeError` with the place of a value that cannot be kept.
    """
    tensors, metadata = _contents(checkpoint)
    failpoints.passing("checkpoint.before_write")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(safetensors_header({name: (t.dtype, t.shape) for name, t in tensors.items()}, metadata))
            for tensor in tensors.values():
                file.write(raw(tensor))
            file.flush()
            failpoints.passing("checkpoint.before_fsync")
            os.fsync(file.fileno())
            size_bytes = file.tell()
        failpoints.passing("checkpoint.before_rename")
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    failpoints.passing("checkpoint.after_rename")
    sync(path.parent)
    return size_bytes


def read(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises `BadCheckpoint` with the defect, or `OSError`."""
    with _opened(path) as file:
        document = _verified(file)
        described = _described(document)
        state = unflatten(document["state"], _verified_tensors(file, document["tensors"]))
        if not isinstance(state, dict):
            raise Unreadable(_USELESS)
    return replace(described, state=state)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read and verify the model's state dict alone, even if the rest is damaged; raises as `read`."""
    with _opened(path) as file:
        document = _verified(file)
        parts = dict(document["state"]["dict"])
        weights = unflatten(parts["model"], _verified_tensors(file, document["tensors"], MODEL_PREFIX))
        if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
            raise Unreadable(_USELESS)
    return dict(weights)


def peek(path: Path) -> Checkpoint:
    """Read a checkpoint without its state, and verify length and document alone; raises as `read`."""
    with _opened(path) as file:
        return _described(_verified(file))


def looks_like_one(path: Path) -> bool:
    """Whether the file begins like a checkpoint, damaged or not."""
    with path.open("rb") as file:
        return file.read(8 + len(_BEGIN))[8:] == _BEGIN


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a file with the safetensors library, and turn every defect of its content into `BadCheckpoint`."""
    try:
        # `open` reports a missing file with its errno; reading, not mapping, makes the state outlive the file
        with path.open("rb"), safe_open(path, framework="pt", backend="pread") as file:
            yield file
    except Unreadable as error:
        raise BadCheckpoint(f"{path.name} {error}.") from None
    except SafetensorError as error:
        reason = f"is cut short or damaged ({str(error).rpartition(': ')[2]})" if looks_like_one(path) else _FOREIGN
        raise BadCheckpoint(f"{path.name} {reason}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadCheckpoint(f"{path.name} {_USELESS}.") from None


def _contents(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, str]]:
    state, tensors = flatten(dict(checkpoint.state))
    recipe, strays = flatten(dict(checkpoint.recipe))
    if strays:
        raise TypeError(f"The recipe holds a tensor at {next(iter(strays))}; it takes plain values alone.")
    score, _ = flatten(None if checkpoint.score is None else float(checkpoint.score))
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # keeps each one aligned
    tensors = {name: _on_host(name, tensor) for name, tensor in ordered}
    name = name_of_key(checkpoint.submodel)
    facts = {"submodel": name, "step": checkpoint.step, "epoch": checkpoint.epoch, "score": score}
    hashes = {name: _tensor_sha256(tensor) for name, tensor in tensors.items()}
    document = json.dumps(
        {**facts, "recipe": recipe, "state": state, "tensors": hashes}, separators=(",", ":"), allow_nan=False
    )
    return tensors, {_VERSION: str(FORMAT_VERSION), _DOCUMENT: document, _DOCUMENT_SHA256: _text_sha256(document)}


def _on_host(name: str, tensor: Tensor) -> Tensor:
    """Contiguous tensor on the host. Raises `TypeError` for a kind that safetensors does not have."""
    if tensor.layout is not torch.strided or tensor.device.type == "meta" or tensor.dtype not in DTYPE_NAMES:
        raise TypeError(f"{name} is a {tensor.dtype} tensor ({tensor.layout}, {tensor.device}), which cannot be kept.")
    return tensor.detach().cpu().contiguous()


def _verified(file: Any) -> dict[str, Any]:
    """Document of a file of this version; raises `Unreadable` if it was changed."""
    metadata = file.metadata() or {}
    written = metadata.get(_VERSION, "")
    if not written.isdecimal() or len(written) > 9:
        raise Unreadable(_FOREIGN)
    if int(written) != FORMAT_VERSION:
        age = "newer" if int(written) > FORMAT_VERSION else "older"
        raise Unreadable(f"is of version {int(written)}, {age} than this program, which reads version {FORMAT_VERSION}")
    text = metadata.get(_DOCUMENT, "")
    if _text_sha256(text) != metadata.get(_DOCUMENT_SHA256):
        raise Unreadable("has a document that was changed after it was written")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Unreadable(_USELESS)
    return document


def _verified_tensors(file: Any, written: Mapping[str, str], prefix: str = "") -> dict[str, Tensor]:
    """Tensors whose names begin with `prefix`, compared with their hashes."""
    expected = {name for name in written if name.startswith(prefix)}
    present = {name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118 - it is no mapping
    if expected - present:
        raise Unreadable(f"lacks the tensor '{min(expected - present)}'")
    if present - expected:
        raise Unreadable(f"has a tensor '{min(present - expected)}' that does not belong to it")
    tensors = {}
    for name in sorted(present):
        try:
            tensors[name] = file.get_tensor(name)
        except (RuntimeError, NotImplementedError) as error:  # of torch, for absurd shapes and odd types
            raise Unreadable(f"has a tensor '{name}' that torch cannot hold ({str(error)[:100]})") from None
        if _tensor_sha256(tensors[name]) != written[name]:
            raise Unreadable(f"has a tensor '{name}' that was changed after it was written")
    return tensors


def _described(document: Mapping[str, Any]) -> Checkpoint:
    """Everything but the state."""
    submodel, step, epoch = document["submodel"], document["step"], document["epoch"]
    score, recipe = unflatten(document["score"], {}), unflatten(document["recipe"], {})
    counts = all(type(number) is int and 0 <= number < MAX_STEPS for number in (step, epoch))
    named = isinstance(submodel, str) and re.fullmatch(NAME_PATTERN, submodel)
    if not (counts and named and isinstance(score, float | None) and isinstance(recipe, dict)):
        raise Unreadable(_USELESS)
    return Checkpoint(submodel=submodel, step=step, epoch=epoch, state={}, score=score, recipe=recipe)


def _tensor_sha256(tensor: Tensor) -> str:
    """Over dtype (its name in safetensors), shape and raw bytes."""
    digest = hashlib.sha256(f"{DTYPE_NAMES[tensor.dtype]} {list(tensor.shape)} ".encode())
    digest.update(raw(tensor))
    return digest.hexdigest()


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class CheckpointStore:
    """Folder with the checkpoints of one sub-model, named after it; created by the first checkpoint."""

    def __init__(self, folder: Path):
        self.folder = folder

    def put(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint, then remove all but the last two and the best.

        Raises `OSError` if it cannot be written, and then removes none. A file that cannot be removed stays.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{checkpoint.step:09d}.safetensors"
        write(checkpoint, path)
        _remove(self._to_remove(path))
        return path

    def latest(
        self, on_damage: Callable[[Sequence[str]], object] = lambda sentences: None
    ) -> tuple[Checkpoint | None, tuple[str, ...]]:
        """Read the newest intact checkpoint; returns it with a sentence for each newer one that is damaged.

        After `on_damage` has received the sentences, damaged files are renamed, so that the next call skips them.
        Leftovers of interrupted writes are removed.
        """
        _remove(self._leftovers())
        refused: list[tuple[int, str]] = []
        damaged: list[Path] = []
        found = None
        for path in self.paths():
            try:
                found = read(path)
                break
            except BadCheckpoint as error:
                refused.append((_step_of(path), f"is damaged ({str(error).rstrip('.')})"))
                damaged.append(path)
            except OSError as error:  # it may be readable again later
                refused.append((_step_of(path), f"cannot be read ({error.strerror or error})"))
        end = "there is no earlier one" if found is None else f"the one at step {found.step} is used"
        name = self.folder.name
        said = tuple(f"The checkpoint of {name} at step {step} {reason}; {end}." for step, reason in refused)
        if said:
            on_damage(said)
        for path in damaged:
            with contextlib.suppress(OSError):
                path.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
        return found, said

    def paths(self) -> list[Path]:
        """Checkpoints by their names, the newest first, not verified."""
        named = [path for path in self.folder.glob("step-*") if _NAME.fullmatch(path.name)]
        return sorted(named, key=_step_of, reverse=True)

    def newest_path(self) -> Path | None:
        """The newest checkpoint by its name, not verified; None without one."""
        return next(iter(self.paths()), None)

    def clear(self) -> None:
        """Remove every file that this store has written; raises `OSError` if one stays."""
        for path in [*self.paths(), *self._leftovers(), *self.folder.glob(f"*{DAMAGED_SUFFIX}")]:
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other files keep the folder
            self.folder.rmdir()

    def _to_remove(self, written: Path) -> list[Path]:
        scores: dict[Path, float] = {}
        for path in self.paths():
            with contextlib.suppress(BadCheckpoint, OSError):  # an unreadable one does not count, and stays
                score = peek(path).score
                scores[path] = -math.inf if score is None or math.isnan(score) else score
        kept = {written, *list(scores)[:KEPT_LAST]}
        best = max(scores, key=scores.__getitem__, default=None)
        if best is not None and scores[best] > -math.inf:
            kept.add(best)
        return [path for path in scores if path not in kept]

    def _leftovers(self) -> list[Path]:
        return list(self.folder.glob(f".*{TEMPORARY_SUFFIX}"))


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-").partition(".")[0])
