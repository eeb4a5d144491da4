"""What the operator of a server decides about shared hybrids."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from unifiednn_core.spec.run import HybridSettings, PolicySpec

PoolMode = Literal["pooled", "gathered", "private"]


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
