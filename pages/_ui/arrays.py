"""Numbers on their way to a chart: thinned out to what a screen can show, packed as plotly's typed arrays."""

import base64
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

MAX_POINTS = 800

Floats = npt.NDArray[np.float64]


class TypedArray(TypedDict):
    """An array as plotly.js decodes it natively: little-endian values in base64."""

    dtype: str
    bdata: str


def pack(values: Sequence[float] | Floats) -> TypedArray:
    """Pack values as float32, half of JSON's size; NaN and infinity survive."""
    with np.errstate(over="ignore"):  # a loss beyond float32 is drawn as infinity: a gap
        data = np.asarray(values, dtype="<f4")
    return {"dtype": "f4", "bdata": base64.b64encode(data.tobytes()).decode("ascii")}


def thin(x: Sequence[float], y: Sequence[float], limit: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """Keep at most `limit` points: the first, the last, and the lowest and highest of each stretch between.

    No peak is lost, which plain sampling would do. Points keep their order; a NaN is kept only where a stretch
    holds nothing else.
    """
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    if len(xs) <= limit:
        return xs, ys
    inner = np.arange(1, len(xs) - 1)
    kept = [0, len(xs) - 1]
    for stretch in np.array_split(inner, max(1, (limit - 2) // 2)):
        finite = stretch[~np.isnan(ys[stretch])]
        kept += [finite[ys[finite].argmin()], finite[ys[finite].argmax()]] if len(finite) else [stretch[0]]
    order = np.unique(kept)
    return xs[order], ys[order]
