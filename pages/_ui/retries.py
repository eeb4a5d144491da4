"""Ways to try a failed sub-model again, the one that its cause suggests first. Pure."""

import re
from dataclasses import dataclass
from typing import Literal

from pages._ui.wording import retry_texts
from unifiednn_core.views.runs import SubModelView

Kind = Literal["split", "rate", "plain"]
_SUGGESTS: tuple[tuple[str, Kind], ...] = (
    (r"out of memory|batch split", "split"),
    (r"\bnan\b|not finite|\binf(init[ey])?\b|smaller learning rate", "rate"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """One way to try again; None leaves a setting as it is."""

    kind: Kind
    label: str
    sentence: str
    batch_split: int | None = None
    learning_rate: float | None = None


def offers(submodel: SubModelView) -> tuple[Retry, ...]:
    """All ways that make sense for this sub-model, the suggested one first."""
    texts = retry_texts(submodel.batch_split, submodel.learning_rate)
    ways = [Retry(kind="plain", label=texts["plain"][0], sentence=texts["plain"][1])]
    if submodel.learning_rate is not None:
        smaller = float(f"{submodel.learning_rate / 10:.12g}")  # without the last bits that a division adds
        ways.insert(0, Retry(kind="rate", label=texts["rate"][0], sentence=texts["rate"][1], learning_rate=smaller))
    split = 2 * submodel.batch_split
    if submodel.batch_size is None or split <= submodel.batch_size:
        ways.insert(0, Retry(kind="split", label=texts["split"][0], sentence=texts["split"][1], batch_split=split))
    wanted = suggested(submodel)
    return tuple(sorted(ways, key=lambda way: way.kind != wanted))


def suggested(submodel: SubModelView) -> Kind:
    """What the words of cause and remedy point to."""
    said = f"{submodel.cause or ''} {submodel.remedy or ''}".lower()
    return next((kind for pattern, kind in _SUGGESTS if re.search(pattern, said)), "plain")
