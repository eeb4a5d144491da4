"""A checkpoint as one safetensors file that is there whole or not at all, and that says so itself.

Every tensor lies under its place in the tree (`model.conv1.weight`, `optimizer.state.0.exp_avg`), so that anybody reads
the weights with safetensors alone. The header's metadata holds `unifiednn_checkpoint` (version of the format),
`document` (JSON: everything that is no tensor, and the SHA-256 of each tensor) and `document_sha256`.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from unifiednn_core import failpoints
from unifiednn_core.checkpoints import container
from unifiednn_core.checkpoints.checkpoint import FORMAT_VERSION, Checkpoint
from unifiednn_core.checkpoints.container import FOREIGN, Header, Unreadable
from unifiednn_core.checkpoints.tree import put_together, take_apart
from unifiednn_core.durable import sync_folder
from unifiednn_core.errors import BadCheckpoint

TEMPORARY_SUFFIX = ".tmp"
MODEL_PREFIX = "model."
MAX_COUNT = 2**62
_VERSION, _DOCUMENT, _DOCUMENT_SHA256 = "unifiednn_checkpoint", "document", "document_sha256"
_BEGIN = b'{"__metadata__":{"unifiednn_checkpoint":"'
_USELESS = "has a document that says nothing of use"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """What a checkpoint says about itself before its tensors."""

    submodel: str
    step: int
    epoch: int
    score: float | None
    recipe: Mapping[str, Any]
    weights_bytes: int
    """Of all tensors of the model's state dict."""
    version: int
    """Of the format."""


def write(checkpoint: Checkpoint, path: Path) -> int:
    """Write a checkpoint and return its bytes; it appears at `path` whole or not at all.

    Raises `OSError` where the disk does not take it, and `TypeError` that names the place of what no checkpoint holds.
    """
    tensors, metadata = _contents(checkpoint)
    failpoints.passing("checkpoint.before_write")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY_SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            container.write_tensors(file, tensors, metadata)
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
    sync_folder(path.parent)
    return size_bytes


def read(path: Path) -> Checkpoint:
    """Read and verify a checkpoint; raises `BadCheckpoint` that says what is wrong with it, or `OSError`."""
    with path.open("rb") as file, _judging(path):
        header, version, document = _verified(file)
        facts = _facts(header, version, document)
        state = put_together(document["state"], _verified_tensors(file, header, document["tensors"]))
        if not isinstance(state, dict):
            raise Unreadable(_USELESS)
    return Checkpoint(
        submodel=facts.submodel, step=facts.step, epoch=facts.epoch, state=state, score=facts.score, recipe=facts.recipe
    )


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read and verify the model's state dict alone, whatever became of the rest; raises as `read`."""
    with path.open("rb") as file, _judging(path):
        header, _, document = _verified(file)
        parts = dict(document["state"]["dict"])
        weights = put_together(parts["model"], _verified_tensors(file, header, document["tensors"], MODEL_PREFIX))
        if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
            raise Unreadable(_USELESS)
    return dict(weights)


def peek(path: Path) -> CheckpointFacts:
    """What a checkpoint says about itself, without its tensors; raises `BadCheckpoint` or `OSError`.

    Length and document are verified, the bytes of the tensors are not.
    """
    with path.open("rb") as file, _judging(path):
        return _facts(*_verified(file))


def looks_like_one(path: Path) -> bool:
    """Whether the file begins as those do that `write` makes, damaged or not."""
    with path.open("rb") as file:
        return file.read(8 + len(_BEGIN))[8:] == _BEGIN


@contextlib.contextmanager
def _judging(path: Path) -> Iterator[None]:
    """Turn whatever a file's content gives rise to into `BadCheckpoint`."""
    try:
        yield
    except Unreadable as error:
        raise BadCheckpoint(f"{path.name} {error}.") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise BadCheckpoint(f"{path.name} {_USELESS}.") from None


def _contents(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of the file."""
    state, tensors = take_apart(dict(checkpoint.state))
    recipe, strays = take_apart(dict(checkpoint.recipe))
    if strays:
        raise TypeError(f"The recipe holds a tensor at {next(iter(strays))}; it takes plain values alone.")
    score, _ = take_apart(None if checkpoint.score is None else float(checkpoint.score))
    tensors = {name: container.plain(name, tensor) for name, tensor in tensors.items()}
    document = json.dumps(
        {
            "submodel": checkpoint.submodel,
            "step": checkpoint.step,
            "epoch": checkpoint.epoch,
            "score": score,
            "recipe": recipe,
            "state": state,
            "tensors": {name: _tensor_sha256(tensor) for name, tensor in tensors.items()},
        },
        separators=(",", ":"),
        allow_nan=False,
    )
    return tensors, {_VERSION: str(FORMAT_VERSION), _DOCUMENT: document, _DOCUMENT_SHA256: _text_sha256(document)}


def _verified(file: BinaryIO) -> tuple[Header, int, dict[str, Any]]:
    """Header, version and document of a file whose length and document are as they were written."""
    header = container.read_header(file, os.fstat(file.fileno()).st_size)
    written = header.metadata.get(_VERSION, "")
    if not written.isdecimal() or len(written) > 9:
        raise Unreadable(FOREIGN)
    version = int(written)
    if version != FORMAT_VERSION:
        newer = "newer than this program" if version > FORMAT_VERSION else "which no program has written"
        raise Unreadable(f"is of version {version}, {newer}, which reads version {FORMAT_VERSION}")
    text = header.metadata.get(_DOCUMENT, "")
    if _text_sha256(text) != header.metadata.get(_DOCUMENT_SHA256):
        raise Unreadable("has a document that was changed after it was written")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise Unreadable(_USELESS)
    return header, version, document


def _verified_tensors(
    file: BinaryIO, header: Header, written: Mapping[str, str], prefix: str = ""
) -> dict[str, Tensor]:
    """Tensors whose names begin with `prefix`, held against their hashes."""
    expected = {name for name in written if name.startswith(prefix)}
    present = {name for name in header.entries if name.startswith(prefix)}
    if expected - present:
        raise Unreadable(f"lacks the tensor '{min(expected - present)}'")
    if present - expected:
        raise Unreadable(f"has a tensor '{min(present - expected)}' that does not belong to it")
    tensors = {}
    for name in sorted(present, key=lambda name: header.entries[name].start):
        tensors[name] = container.read_tensor(file, header.entries[name])
        if _tensor_sha256(tensors[name]) != written[name]:
            raise Unreadable(f"has a tensor '{name}' that was changed after it was written")
    return tensors


def _facts(header: Header, version: int, document: Mapping[str, Any]) -> CheckpointFacts:
    submodel, step, epoch = document["submodel"], document["step"], document["epoch"]
    score, recipe = put_together(document["score"], {}), put_together(document["recipe"], {})
    counts = all(type(number) is int and 0 <= number < MAX_COUNT for number in (step, epoch))
    if not (counts and isinstance(submodel, str) and isinstance(score, float | None) and isinstance(recipe, dict)):
        raise Unreadable(_USELESS)
    weights_bytes = sum(entry.bytes for name, entry in header.entries.items() if name.startswith(MODEL_PREFIX))
    return CheckpointFacts(
        submodel=submodel,
        step=step,
        epoch=epoch,
        score=score,
        recipe=recipe,
        weights_bytes=weights_bytes,
        version=version,
    )


def _tensor_sha256(tensor: Tensor) -> str:
    """Over dtype (its name in safetensors), shape and raw bytes."""
    digest = hashlib.sha256(f"{container.dtype_name(tensor)} {list(tensor.shape)} ".encode())
    digest.update(container.raw(tensor))
    return digest.hexdigest()


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
