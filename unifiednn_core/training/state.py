"""The whole state of one sub-model as values: what a checkpoint holds of it, taken and put back."""

from typing import Any

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.errors import BadCheckpoint
from unifiednn_core.hybrid.unifier import Part
from unifiednn_core.training import optimizer_state
from unifiednn_core.training.progress import Progress
from unifiednn_core.training.rng import RngState
from unifiednn_core.weights import host_tree


def taken(part: Part, rng: RngState, progress: Progress) -> dict[str, Any]:
    """Host copy of everything that the next steps depend on."""
    return {
        "model": host_tree(part.state_dict()),
        "buffers": host_tree(part.transient_buffers()),
        "optimizer": optimizer_state.packed(part.optimizer),
        "lr_scheduler": None if part.lr_scheduler is None else host_tree(part.lr_scheduler.state_dict()),
        "rng": {"cpu": rng.cpu, "cuda": rng.cuda},
        "data": progress.data_state(),
        "metrics": progress.metrics_state(),
    }


def put_back(part: Part, checkpoint: Checkpoint) -> Progress:
    """Make the part what it was when `checkpoint` was taken, all but the RNG; raises `BadCheckpoint`."""
    state = checkpoint.state
    try:
        part.load_state_dict(state["model"])
        for name, buffer in part.transient_buffers().items():
            buffer.copy_(state["buffers"][name])
        optimizer_state.unpack(part.optimizer, state["optimizer"])
        if part.lr_scheduler is not None and state["lr_scheduler"] is not None:
            part.lr_scheduler.load_state_dict(host_tree(state["lr_scheduler"]))
        return Progress.of_state(checkpoint.step, checkpoint.epoch, state["data"], state["metrics"])
    except (KeyError, TypeError, ValueError, RuntimeError, IndexError) as error:
        if isinstance(error, BadCheckpoint):
            raise
        raise BadCheckpoint(f"The checkpoint does not fit the sub-model '{part.name}': {error}") from error
