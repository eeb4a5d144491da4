"""Public kit for authors of model formats: `check_format` checks a format against the contract in `formats.base`."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from unifiednn_core.formats.base import Definition, Format, count_parameters
from unifiednn_core.formats.registry import formats
from unifiednn_core.spec.run import ArchitectureSpec


def check_format(model_format: Format, path: Path, architecture: ArchitectureSpec | None = None) -> None:
    """Read a good file of the format, build it, write it with other weights, and read it back.

    Raises `AssertionError` with the first broken promise.
    """
    others = [known for known in formats() if known.name != model_format.name]
    _require(model_format.sniff(path), "a format recognises its own files")
    _require(not any(other.sniff(path) for other in others), "no other format recognises them")
    definition = model_format.read(path, architecture)
    _require(definition.format == model_format.name, "a definition names its format")
    _check_build(definition)
    trained = {key: tensor.detach() + 1 for key, tensor in definition.build().state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        _check_round_trip(model_format, definition, trained, Path(folder))


def _check_build(definition: Definition) -> None:
    rng_state = torch.get_rng_state()
    first, second = definition.build(), definition.build()
    _require(torch.equal(rng_state, torch.get_rng_state()), "build draws nothing from the default RNG")
    _require(first.training, "build gives a module in train mode")
    _require(count_parameters(first) == definition.parameters, "a definition counts its trainable weights")
    _require(_equal(first.state_dict(), second.state_dict()), "two builds are equal")
    addresses = {tensor.data_ptr() for tensor in first.state_dict().values()}
    shared = addresses & {tensor.data_ptr() for tensor in second.state_dict().values()}
    _require(not shared, "two builds share no memory")


def _check_round_trip(
    model_format: Format, definition: Definition, trained: Mapping[str, Tensor], folder: Path
) -> None:
    delivery = model_format.write(definition, trained, folder, "trained")
    written = delivery.files[0]
    _require(all(path.is_file() and path.parent == folder for path in delivery.files), "write names its own files")
    _require(written.suffix in model_format.suffixes, "a trained model has the suffix of its format")
    _require(_equal(model_format.read_state_dict(written), trained), "weights read back as they were written")
    _require(model_format.sniff(written), "a format recognises what it wrote")
    again = model_format.read(written, definition.architecture)
    _require(_equal(again.build().state_dict(), trained), "a trained model can be submitted again")
    compile(delivery.load_script, "load.py", "exec")


def _equal(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(
        first[key].dtype == second[key].dtype and torch.equal(first[key], second[key]) for key in first
    )


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(f"Broken promise: {promise}.")
