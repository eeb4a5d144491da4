"""What the operator of a server decides about shared hybrids."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.spec.run import HybridSettings, PolicySpec

PoolMode = Literal["pooled", "gathered", "private"]
"""What happens to shared submissions: they join the hybrid that trains; they start together, once some have come; each
gets a hybrid of its own."""


class Pooling(BaseModel):
    """How shared submissions become hybrids."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mode: PoolMode = "pooled"
    """`pooled`: each joins a hybrid that trains as soon as it fits. `gathered`: they are collected, and then start as
    one hybrid. `private`: each gets a hybrid of its own."""
    gather_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Seconds after the first submission at which gathering ends."""
    gather_n: Annotated[int, Field(ge=1, le=1000)] = 4
    """Submissions after which it ends at once."""
    hybrid: HybridSettings = HybridSettings(policy=PolicySpec(name="fair"))
    """How shared hybrids train."""

    def changed(self, **values: Any) -> "Pooling":
        """The same with other values, those of its hybrids by name; raises `BadInput`, one finding per mistake."""
        of_hybrid = {name: value for name, value in values.items() if name in HybridSettings.model_fields}
        own = {name: value for name, value in values.items() if name not in of_hybrid}
        known = self.model_dump(mode="json", exclude_none=True)
        return _parsed({**known, **own, "hybrid": {**known["hybrid"], **of_hybrid}})


def _parsed(document: Mapping[str, Any]) -> Pooling:
    try:
        return Pooling.model_validate(document)
    except ValidationError as error:
        raise BadInput([finding_of(detail, document) for detail in error.errors()]) from None
