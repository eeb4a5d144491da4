"""The step of a part of a split network: codes of classes in the place of what it would get, or is to put out."""

import math
from dataclasses import replace

from torch import Tensor

from unifiednn_core.data.batch import Transform
from unifiednn_core.engine.step import UNSCALED, Step
from unifiednn_core.formats.base import Boundary, PartOfNetwork
from unifiednn_core.spec.split import SplitSpec
from unifiednn_core.techniques import sil

STORED = "outputs"
"""Input of a data set that holds what the parts of a network before this one put out."""


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
