"""A plain script that begins at a checkpoint or at weights from elsewhere instead of at its model file."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.intake.start import initial_state
from unifiednn_core.training import optimizer_state
from unifiednn_core.weights import host_tree

if TYPE_CHECKING:
    from unifiednn_core.baselines.vanilla import Script


def begin_at(script: "Script", path: Path, take: str) -> None:
    """Put a script that has not trained yet where `path` says; raises `BadCheckpoint`, `BadInput`, `RuntimeError`."""
    begun = initial_state(path, take)
    if not isinstance(begun, Checkpoint):
        script.module.load_state_dict(begun)
        return
    state, wanted_lr = begun.state, script.job.optimizer_args["lr"]
    script.module.load_state_dict(state["model"])
    for name, buffer in script.module.named_buffers():
        if name in state["buffers"]:
            buffer.copy_(state["buffers"][name])
    optimizer_state.unpack(script.optimizer, state["optimizer"])
    if script.lr_scheduler is not None and state["lr_scheduler"] is not None:
        script.lr_scheduler.load_state_dict(host_tree(state["lr_scheduler"]))
    factor = wanted_lr / begun.recipe["learning_rate"]
    if factor != 1.0:
        optimizer_state.scale_learning_rates(script.optimizer, script.lr_scheduler, factor)
    torch.set_rng_state(state["rng"]["cpu"])
    if script.device.type == "cuda" and state["rng"]["cuda"] is not None:
        torch.cuda.set_rng_state(state["rng"]["cuda"], script.device)
    data, tally = state["data"], state["metrics"]["tally"]
    script.order.generator.set_state(data["generator"])
    script.order.rest = None if data["order"] is None else data["order"][data["cursor"] :]
    script.steps_done, script.epochs_done = begun.step, begun.epoch
    script.sums.restore(tally, script.device)
    script.history = list(state["metrics"]["figures"])
