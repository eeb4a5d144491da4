"""Checkpoints for tests, and their equality to the bit."""

import struct
from typing import Any

import torch

from unifiednn_core.engine.checkpoint import Checkpoint

RECIPE = {
    "optimizer": "sgd",
    "optimizer_args": {"betas": [0.9, 0.999]},
    "learning_rate": 0.1,
    "torch": torch.__version__,
}


def checkpoint(state: dict[str, Any] | None = None, *, step: int = 7, score: float | None = 0.5) -> Checkpoint:
    if state is None:
        state = {"model": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3)}, "rng": {"cuda": None}}
    return Checkpoint(submodel="lenet", step=step, epoch=2, state=state, score=score, recipe=RECIPE)


def bits(value: Any) -> Any:
    """The value with every type, float and tensor spelled out, so that equality is equality of bits."""
    if isinstance(value, torch.Tensor):
        raw = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return ("tensor", value.dtype, tuple(value.shape), raw)
    if isinstance(value, float):
        return ("float", struct.pack(">d", value))
    if isinstance(value, dict):
        return (type(value), [(bits(key), bits(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value), [bits(item) for item in value])
    return (type(value), value)
