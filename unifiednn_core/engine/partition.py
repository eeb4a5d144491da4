"""The parts of split networks: their definitions, and what trained ones hand to the next."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import Dataset, DataSource
from unifiednn_core.engine.binding import STORED, training_step
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.cut import cut, joined, segments
from unifiednn_core.spec.run import SubModelSpec

_FEW = 2


def part_of(spec: SubModelSpec, definition: Definition, data: DataSource) -> Definition:
    """The part of a network that a sub-model is; the network itself if it is none. Raises `BadInput`.

    `data` is its data set as it was submitted. Runs the network once on a few samples, and draws no random numbers.
    """
    if spec.split is None or spec.part is None:
        return definition
    if data.targets is None or data.targets.dim() != 1 or data.targets.is_floating_point():
        message = "Synthetic labels are codes of classes, and these targets are not one class number for each sample."
        remedy = "Train it in one piece: remove 'split'."
        raise BadInput.of("Split", f"submodels.{spec.name}.split", message, remedy)
    step = training_step(spec, definition, tuple(data.inputs))
    count = min(max(_FEW, definition.min_batch), data.samples)
    samples = step.prepare(data.batch(slice(0, count)), training=False)
    [given] = samples.inputs.values()
    return cut(definition, spec.split.at, spec.part, given.cpu(), spec.part_of or spec.name)


@torch.no_grad()
def stored_outputs(
    spec: SubModelSpec,
    definition: Definition,
    trained: Sequence[Mapping[str, Tensor]],
    data: DataSource,
    device: torch.device,
) -> Dataset:
    """What the first, `trained` parts of a network put out for all samples, in evaluation, on the host.

    Draws no random numbers. Raises `ValueError` for weights that are not theirs.
    """
    if spec.split is None:
        raise ValueError("only a part of a split network takes stored outputs")
    with torch.random.fork_rng(devices=[]):
        parts = segments(definition.build(), spec.split.at)[: len(trained)]
    before = nn.Sequential(*parts)
    for part, weights in zip(parts, trained, strict=True):
        part.load_state_dict(joined([weights], part.state_dict()))
    before.to(device).eval()
    step = training_step(spec, definition, tuple(data.inputs))
    size, found = spec.hyperparameters.batch_size, list[Tensor]()
    for start in range(0, data.samples, size):
        batch = step.prepare(data.batch(slice(start, start + size)), training=False)
        [given] = batch.inputs.values()
        found.append(before(given).cpu())
    return Dataset({STORED: torch.cat(found)}, None if data.targets is None else data.targets.cpu())
