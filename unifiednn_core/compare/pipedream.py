"""The arm PipeDream: a plain script whose network is a pipeline of stages with delayed updates, on its one device.

PipeDream is made for several devices. UnifiedNN's paper compares it on one, where the versions of weights and the
batches under way are its price. The script profiles the network once, as PipeDream does.
"""

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.batch import Batch
from unifiednn_core.techniques.pipelines.pipedream import LossOf, PipeDream
from unifiednn_core.techniques.pipelines.profile import stages

if TYPE_CHECKING:
    from unifiednn_core.compare.vanilla import Loaded, PlainScript

_DEFAULTS: dict[str, Any] = {
    "accumulation_steps": 1,
    "batch_split": 1,
    "precision": "float32",
    "gradient_clipping": None,
    "warm_up": None,
    "ema": None,
}
"""Entries that PipeDream has no counterpart for, with the values that change nothing."""


def train_epoch(script: "PlainScript", batches: Iterator["Loaded"]) -> None:
    """Take all batches of an epoch through the pipeline, which is filled and drained. Raises `BadInput`."""
    pipeline = script.pipeline = script.pipeline or _pipeline(script)
    waiting: deque[tuple[Batch, int]] = deque()

    def given() -> Iterator[tuple[Tensor, LossOf]]:
        for loaded in batches:
            batch = script.prepared(loaded)
            waiting.append((batch, len(loaded[0])))
            yield _inputs(script, batch), partial(_loss, script, batch)

    for taken in pipeline.train(given(), len(script.train_data)):
        batch, samples = waiting.popleft()
        script.piped(taken.loss, [taken.output], batch, samples)


def _pipeline(script: "PlainScript") -> PipeDream:
    """Profile and cut the network. Its stages share one optimizer, which steps where it finds gradients."""
    job, loader = script.job, script.train_data
    changed = [name for name, value in _DEFAULTS.items() if getattr(job, name) != value]
    if job.lr_scheduler is not None and job.lr_steps_by == "step":
        changed.append("lr_scheduler per step")
    if len(script.meaning.inputs) != 1 or script.meaning.auxiliary or script.meaning.output:
        changed.append("several inputs or outputs")
    if changed or not isinstance(loader, DataLoader) or not isinstance(loader.dataset, TensorDataset):
        raise BadInput.of(
            "Not a pipeline",
            field="hyperparameters",
            message=f"The PipeDream arm of {job.name} cannot train with: {', '.join(changed)}.",
            remedy="Leave these entries at their defaults, or compare without this arm.",
        )
    first = script.prepared([tensor[: job.batch_size] for tensor in loader.dataset.tensors], training=False)
    cut = stages(script.module, _inputs(script, first), job.pipeline_stages)
    return PipeDream(cut, [script.optimizer] * len(cut))


def _loss(script: "PlainScript", batch: Batch, output: Tensor) -> Tensor:
    return script.meaning.loss(script.criterion, [output], batch)


def _inputs(script: "PlainScript", batch: Batch) -> Tensor:
    [inputs] = script.meaning.given(batch)
    if inputs is None:
        raise TypeError("the batch has no inputs")
    return inputs
