"""The demo, cut short, with checkpoints so often that every named point is passed many times."""

from collections.abc import Mapping

from unifiednn_core.spec import CheckpointSpec, LRSchedulerSpec, RunSpec, SubModelSpec

EPOCHS: Mapping[str, int] = {"lenet": 15, "resnet": 8, "transformer": 8}
STRETCHED: Mapping[str, int] = {name: epochs + 1 for name, epochs in EPOCHS.items()}
"""What a sub-model is trained for where somebody asks for one epoch more on the way."""
CHECKPOINT_STEPS = 8
_NEVER_S = 24 * 3600.0
_STEPS_PER_EPOCH = 23  # of the transformer: 1,437 digits in batches of 64


def short_demo(demo: RunSpec, epochs: Mapping[str, int] = EPOCHS) -> RunSpec:
    """Cut the demo; on a CPU and with one thread, so that equal bits can be asked for."""
    parts = tuple(_short(part, epochs[part.name]) for part in demo.submodels)
    checkpoint = CheckpointSpec(every_s=_NEVER_S, every_steps=CHECKPOINT_STEPS)
    changes = {"name": "drill", "device": "cpu", "threads": 1, "checkpoint": checkpoint, "submodels": parts}
    return demo.model_copy(update=changes)


def _short(part: SubModelSpec, epochs: int) -> SubModelSpec:
    """One cycle lasts as long as the longest training, whether it is stretched or not."""
    schedule = part.hyperparameters.lr_scheduler
    if schedule is not None and schedule.name == "one_cycle":
        total_steps = _STEPS_PER_EPOCH * STRETCHED[part.name]
        schedule = LRSchedulerSpec(name="one_cycle", args={**schedule.args, "total_steps": total_steps}, per="step")
    elif schedule is not None and schedule.name == "multi_step":
        schedule = LRSchedulerSpec(name="multi_step", args={"milestones": [3, 6], "gamma": 0.1})
    hyperparameters = part.hyperparameters.model_copy(update={"epochs": epochs, "lr_scheduler": schedule})
    return part.model_copy(update={"hyperparameters": hyperparameters})
