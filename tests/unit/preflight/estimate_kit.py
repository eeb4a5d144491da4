"""Sub-models as far as memory is concerned, for the tests of this room."""

from typing import Any

from hypothesis import strategies as st

from unifiednn_core.preflight.estimate import Part
from unifiednn_core.preflight.prediction import MemoryNeed

MIB = 1024**2


def need(
    *,
    batch: int = 32,
    split: int = 1,
    weights: int = 4,
    optimizer: int = 8,
    a_sample: int = 1,
    data: dict[str, int] | None = None,
    tested: int = 0,
    leaves: bool = False,
) -> MemoryNeed:
    """A need in MiB whose step takes `a_sample` for each sample, and 1 more for gradients that are there already."""
    sizes = [batch]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    return MemoryNeed(
        weights_bytes=weights * MIB,
        gradients_bytes=weights * MIB,
        optimizer_bytes=optimizer * MIB,
        transient_bytes=0,
        data={"data": 2 * MIB} if data is None else {name: size * MIB for name, size in data.items()},
        batch_size=batch,
        batch_split=split,
        whole={size: size * a_sample * MIB for size in sizes},
        parts={size: (size * a_sample + 1) * MIB for size in sizes},
        evaluation={size: size * tested * MIB for size in sizes} if tested else {},
        leaves=leaves,
    ).changed()


def part(name: str = "a", **given: Any) -> Part:
    of_part = {
        key: given.pop(key)
        for key in ("priority", "parameters", "epochs", "steps_per_epoch", "measured_bytes")
        if key in given
    }
    return Part(name=name, need=need(**given), **{"epochs": 3, "steps_per_epoch": 10, **of_part})


@st.composite
def hybrids(draw: st.DrawFn) -> tuple[Part, ...]:
    """One to five sub-models, some of which share data."""
    small = st.integers(0, 40)
    return tuple(
        part(
            f"m{place}",
            batch=draw(st.integers(1, 200)),
            weights=draw(st.integers(1, 300)),
            optimizer=draw(small),
            a_sample=draw(small),
            tested=draw(st.integers(0, 3)),
            leaves=draw(st.booleans()),
            data={draw(st.sampled_from("xyz")): 7, "shared": 3},
            priority=draw(st.integers(0, 2)),
            parameters=draw(small),
            epochs=draw(st.integers(1, 4)),
            steps_per_epoch=draw(st.integers(1, 12)),
            measured_bytes=draw(st.none() | small.map(lambda size: size * MIB)),
        )
        for place in range(draw(st.integers(1, 5)))
    )
