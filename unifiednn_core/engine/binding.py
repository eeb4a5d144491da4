"""Makes the `Step` of a sub-model: binds what its spec says to the inputs and outputs of its network, or of a part.

Of a split network it cuts the parts, and makes what trained ones hand to the next.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data.batch import Transform
from unifiednn_core.data.datasets import Dataset, DataSource
from unifiednn_core.data.transforms.table import build
from unifiednn_core.engine.step import TARGETS, UNSCALED, Scaling, Step
from unifiednn_core.formats.base import Boundary, Definition, PartOfNetwork
from unifiednn_core.formats.cut import cut, joined, segments
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.split import SplitSpec
from unifiednn_core.techniques import sil

STORED = "outputs"
"""Input of a data set that holds what the parts of a network before this one put out."""


def training_step(
    spec: SubModelSpec, definition: Definition, names: Sequence[str], *, has_targets: bool = True
) -> Step:
    """Make the step; `names` are the inputs of its training data. Raises `BadInput` for what does not fit."""
    outputs = definition.outputs
    output = 0 if spec.output is None else _place(spec, spec.output, outputs, "output")
    auxiliary = tuple((_place(spec, name, outputs, "auxiliary"), by) for name, by in spec.auxiliary.items())
    if any(place == output for place, _ in auxiliary):
        message = f"The criterion gets '{outputs[output]}' anyway; it is no auxiliary output."
        raise _refused(spec, "auxiliary", message, 'Leave it out, or name another one as "output".')
    step = Step(
        inputs=_bound(spec, definition, names, has_targets=has_targets),
        scaling=Scaling(spec.scale, spec.mean, spec.std),
        transforms=build(spec.transforms),
        targets=spec.targets,
        output=output,
        auxiliary=auxiliary,
        classes=spec.classes,
    )
    if definition.part is None or spec.split is None:
        return step
    return coded(step, definition.part, spec.split, spec.part or 1)


def _bound(spec: SubModelSpec, definition: Definition, names: Sequence[str], *, has_targets: bool) -> tuple[str, ...]:
    """For each input of the network the input of the data, or `targets`."""
    wanted = [one.name for one in definition.inputs]
    unknown = sorted(spec.inputs.keys() - set(wanted))
    if unknown:
        message = f"The network has no input '{unknown[0]}'; it has {abbreviated(wanted)}."
        raise _refused(spec, "inputs", message, "Name an input of the network, and the input of the data that it gets.")
    bound = [spec.inputs.get(name, name) for name in wanted]
    free = [place for place, name in enumerate(bound) if name not in names and wanted[place] not in spec.inputs]
    free = [place for place in free if bound[place] != TARGETS]
    if len(free) == 1 and len(unused := [name for name in names if name not in bound]) == 1:
        bound[free[0]] = unused[0]  # one is left on either side: names do not matter
    if TARGETS in bound and spec.targets == "stored" and not has_targets:
        message = "The network takes 'targets', and the data have none."
        raise _refused(
            spec, "targets", message, 'Store targets, or say where they come from: "targets": "inputs" or "next".'
        )
    if set(bound) == {TARGETS}:
        raise _refused(spec, "inputs", "The network takes nothing but the targets.", "Give it an input of the data.")
    missing = [wanted[place] for place, name in enumerate(bound) if name not in (*names, TARGETS)]
    if missing:
        held = abbreviated(list(names))
        message = f"The network takes {abbreviated(wanted)}; the data have {held}, and nothing for '{missing[0]}'."
        remedy = 'Say it in "inputs": {"input of the network": "input of the data"}, or store data of these names.'
        raise _refused(spec, "inputs", message, remedy)
    return tuple(bound)


def _place(spec: SubModelSpec, name: str, outputs: Sequence[str], entry: str) -> int:
    if name not in outputs:
        message = f"The network has no output '{name}'; it has {abbreviated(list(outputs))}."
        raise _refused(spec, entry, message, "Name one of these.")
    return outputs.index(name)


def _refused(spec: SubModelSpec, entry: str, message: str, remedy: str) -> BadInput:
    return BadInput.of("Inputs and outputs", f"submodels.{spec.name}.{entry}", message, remedy)


def coded(step: Step, part: PartOfNetwork, split: SplitSpec, place: int) -> Step:
    """Make the step of part number `place`, from 1, from that of the whole network."""
    first, transforms = part.begins is None, list[Transform]()
    if part.begins is not None and step.inputs != (STORED,):
        least = 0.0 if part.begins.least == 0 else -math.inf
        rows = codes_of(part.begins, part.classes, split, place - 1)
        transforms += sil.CodedInputs.of(rows, split.noise * split.scale, least)
    if part.ends is not None:
        transforms.append(sil.CodedTargets.of(codes_of(part.ends, part.classes, split, place)))
    own = step.transforms if first else ()
    return replace(step, transforms=(*own, *transforms), scaling=step.scaling if first else UNSCALED)


def codes_of(boundary: Boundary, classes: int, split: SplitSpec, cut: int) -> Tensor:
    """Codes behind cut number `cut`, from 1."""
    return sil.codes(classes, boundary.shape, seed=split.seed, cut=cut, least=boundary.least, scale=split.scale)


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
