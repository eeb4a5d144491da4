"""Strata as bands of a chart: which there are, in which order, and how each is told from the others."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unifiednn_core.figures.arrays import Floats, floats
from unifiednn_core.figures.layout import grey, tint
from unifiednn_core.figures.palette import sign
from unifiednn_core.views.memory import Layer, Strata
from unifiednn_core.views.runs import SubModelView

SHADES = {"weights": 0.95, "gradients": 0.7, "optimizer": 0.48, "transient": 0.28}
"""Opacity of what a sub-model holds, from dark to light in the order of the stack."""
GREYS = {
    "context": (0.3, ""),
    "slack": (0.16, "/"),
    "data": (0.5, "."),
    "others": (0.4, "x"),
    "unexplained": (0.07, "\\"),
}
"""Opacity and pattern of what belongs to no sub-model."""
MAX_SUBMODELS = 8
"""More sub-models than so many share one band of each kind, the largest keeping their own."""


@dataclass(frozen=True, slots=True)
class Band:
    """One stratum as it is drawn. NaN where it was not measured, or is nothing."""

    kind: str
    name: str
    group: str
    """What is shown and hidden with it."""
    size_bytes: Floats
    fill: str
    pattern: str
    line: str


def bands(strata: Strata, submodels: Sequence[SubModelView]) -> list[Band]:
    """Bands from the bottom of the chart to its top."""
    numbers = {submodel.name: submodel.number for submodel in submodels}
    own = _largest(strata.layers)
    drawn: list[Band] = []
    shared: dict[str, Floats] = {}
    layers = list(strata.layers)
    for place, layer in enumerate(layers):
        values = floats(layer.size_bytes)
        if layer.submodel is None:
            drawn.append(_grey_band(layer.kind, values))
        elif layer.submodel in own:
            drawn.append(_own_band(layer.kind, layer.submodel, numbers.get(layer.submodel, 0), values))
        else:
            known = shared.get(layer.kind)
            shared[layer.kind] = values if known is None else _sum(known, values)
        last_of_kind = place + 1 == len(layers) or layers[place + 1].kind != layer.kind
        if last_of_kind and layer.kind in shared:
            drawn.append(_shared_band(layer.kind, shared[layer.kind]))
    return drawn


def stretches(known: Sequence[bool]) -> list[slice]:
    """Stretches without a gap."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], np.asarray(known, dtype=bool), [False]]).astype(int)))
    return [slice(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def _largest(layers: Sequence[Layer]) -> set[str]:
    peaks: dict[str, float] = {}
    for layer in layers:
        if layer.submodel is not None:
            peak = max((value for value in layer.size_bytes if value is not None), default=0.0)
            peaks[layer.submodel] = peaks.get(layer.submodel, 0.0) + peak
    if len(peaks) <= MAX_SUBMODELS:
        return set(peaks)
    return set(sorted(peaks, key=peaks.__getitem__, reverse=True)[: MAX_SUBMODELS - 1])


def _sum(one: Floats, other: Floats) -> Floats:
    both = np.nan_to_num(one) + np.nan_to_num(other)
    return np.where(np.isnan(one) & np.isnan(other), np.nan, both)


def _own_band(kind: str, submodel: str, number: int, values: Floats) -> Band:
    mark = sign(number)
    fill, line = tint(mark.colour, SHADES[kind]), tint(mark.colour, 0.9)
    return Band(kind, f"{mark.letter} {kind}", submodel, values, fill, "", line)


def _shared_band(kind: str, values: Floats) -> Band:
    return Band(kind, f"others' {kind}", "other sub-models", values, grey(SHADES[kind]), "-", grey(0.9))


def _grey_band(kind: str, values: Floats) -> Band:
    alpha, pattern = GREYS[kind]
    name = "data sets" if kind == "data" else kind
    return Band(kind, name, name, values, grey(alpha), pattern, grey(0.7))
