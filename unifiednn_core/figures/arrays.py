"""Numbers on their way to a chart: thinned out to what a screen can show, packed as plotly's typed arrays."""

import base64
from collections.abc import Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

MAX_POINTS = 800

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


class TypedArray(TypedDict):
    """An array as plotly.js decodes it natively: little-endian values in base64."""

    dtype: str
    bdata: str


def pack(values: Sequence[float] | Floats) -> TypedArray:
    """Pack values as float32, half of JSON's size; NaN and infinity survive."""
    with np.errstate(over="ignore"):  # a loss beyond float32 is drawn as infinity: a gap
        data = np.asarray(values, dtype="<f4")
    return {"dtype": "f4", "bdata": base64.b64encode(data.tobytes()).decode("ascii")}


def floats(values: Sequence[float | None]) -> Floats:
    """Values as an array; None becomes NaN, which is drawn as a gap."""
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def thin(x: Sequence[float], y: Sequence[float], limit: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """Keep at most `limit` points, as `places` chooses them."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    kept = places(ys, limit)
    return xs[kept], ys[kept]


def places(ys: Floats, limit: int = MAX_POINTS) -> Places:
    """Places of at most `limit` values: the first, the last, and the lowest and highest of each stretch between.

    No peak is lost, which plain sampling would do. A NaN is kept only where a stretch holds nothing else.
    """
    if len(ys) <= limit:
        return np.arange(len(ys))
    inner = np.arange(1, len(ys) - 1)
    kept = [0, len(ys) - 1]
    for stretch in np.array_split(inner, max(1, (limit - 2) // 2)):
        finite = stretch[~np.isnan(ys[stretch])]
        kept += [finite[ys[finite].argmin()], finite[ys[finite].argmax()]] if len(finite) else [stretch[0]]
    return np.unique(kept)
