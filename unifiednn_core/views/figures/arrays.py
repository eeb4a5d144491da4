"""Numbers for a chart: thinned to what a screen can show, in single precision."""

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_POINTS = 800

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def single(values: Sequence[float] | Floats) -> dict[str, str]:
    """Values as float32, packed as plotly packs them: half the size of numbers. NaN and infinity are drawn as gaps."""
    with np.errstate(over="ignore"):  # a loss beyond float32 becomes infinity
        packed = base64.b64encode(np.asarray(values, dtype="<f4").tobytes())
    return {"dtype": "f4", "bdata": packed.decode("ascii")}


def floats(values: Sequence[float | None]) -> Floats:
    """Values as an array; None becomes NaN, which is drawn as a gap."""
    return np.array(values, dtype=float)  # NumPy reads None as NaN


def thin(x: Sequence[float], y: Sequence[float], limit: int = MAX_POINTS) -> tuple[Floats, Floats]:
    """At most `limit` points, as `places` chooses them."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    kept = places(ys, limit)
    return xs[kept], ys[kept]


def places(ys: Floats, limit: int = MAX_POINTS) -> Places:
    """Indices of at most `limit` values: the first, the last, and the lowest and highest of each stretch between.

    Unlike plain sampling this keeps every peak. A NaN is kept only if a stretch holds nothing else.
    """
    if len(ys) <= limit:
        return np.arange(len(ys))
    inner = ys[1:-1]
    width = -(-len(inner) // max(1, (limit - 2) // 2))
    missing = np.full(-len(inner) % width, np.nan)
    stretches = np.concatenate([inner, missing]).reshape(-1, width)
    lowest = np.where(np.isnan(stretches), np.inf, stretches).argmin(axis=1)
    highest = np.where(np.isnan(stretches), -np.inf, stretches).argmax(axis=1)
    starts = 1 + width * np.arange(len(stretches))
    return np.unique(np.concatenate([[0, len(ys) - 1], starts + lowest, starts + highest]))
