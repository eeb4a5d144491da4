"""Placement: one sub-model trains on several devices, each operator of its network on one of them. Pure.

`"placement": {"devices": 2, "cap_mib": 300}` asks for two devices of at most 300 MiB each. The check decides which
operator runs where and writes it as `plan`. Where an operator runs changes no bit, so a run may go on with another
placement, or without one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.base.units import MIB
from unifiednn_core.spec.hyperparameters import Hyperparameters

PLACEMENT, PLAN = "placement", "plan"
MOST_DEVICES = 16
_Cap = Annotated[float, Field(gt=0, le=10_000_000)]
_Run = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class PlacementSpec(BaseModel):
    """The devices of one sub-model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)

    devices: Annotated[int, Field(ge=1, le=MOST_DEVICES)]
    """How many: logical devices of the run's device, which share its memory, unless it claims its own."""
    claim: bool = False
    """Whether the run claims so many devices of one kind for itself, such as several GPUs. It waits until they are
    free; a machine has to have them. Only of a private run."""
    cap_mib: _Cap | list[_Cap] | None = None
    """Hard limit of each device, for weights, gradients, optimizer state and activations; one for all, or one for
    each. None is no limit."""
    plan: list[_Run] | None = None
    """Written by the check: device and number of operators, in the order of the network, such as [[0, 31], [1, 40]]."""

    @model_validator(mode="after")
    def _one_cap_for_each(self) -> Self:
        if isinstance(self.cap_mib, list) and len(self.cap_mib) != self.devices:
            message = "There are {count} limits. Set devices to {count}, or give one limit for all."
            raise PydanticCustomError("unknown_name", message, {"argument": "devices", "count": len(self.cap_mib)})
        if any(device >= self.devices for device, _ in self.plan or ()):
            message = "The plan names a device that is not there. Leave the plan out; the check writes one."
            raise PydanticCustomError("unknown_name", message, {"argument": PLAN})
        return self

    @property
    def caps_bytes(self) -> tuple[int | None, ...]:
        """Limit of each device."""
        caps = self.cap_mib if isinstance(self.cap_mib, list) else [self.cap_mib] * self.devices
        return tuple(None if cap is None else int(cap * MIB) for cap in caps)

    @property
    def device_of(self) -> tuple[int, ...]:
        """Device of each operator; empty without a plan."""
        return tuple(device for device, count in self.plan or () for _ in range(count))


def runs_of(device_of: Sequence[int]) -> list[list[int]]:
    """Write devices of operators as a plan."""
    return [[device, len(list(group))] for device, group in groupby(device_of)]


def devices_claimed(submodels: Iterable[Mapping[str, Any]]) -> int:
    """Devices that a stored run holds while it trains, by its sub-models."""
    asked = (one.get(PLACEMENT) or {} for one in submodels)
    return max((one["devices"] for one in asked if one.get("claim")), default=1)


def require_private(submodels: Iterable[Any], hybrid: str) -> None:
    """Raise a validation error where a sub-model of a shared `RunSpec` claims devices."""
    claims = [one.name for one in submodels if one.placement is not None and one.placement.claim]
    if claims and hybrid != "private":
        message = "A shared hybrid is on one device. Set hybrid to \"private\", or leave out 'claim'."
        raise PydanticCustomError(
            "unknown_name", "{text}", {"text": message, "field": f"submodels.{claims[0]}.{PLACEMENT}.claim"}
        )


def refuse_company(placement: PlacementSpec | None, hyper: Hyperparameters, *, split: bool) -> None:
    """Raise a validation error for what a placed sub-model cannot have beside its placement."""
    if placement is None:
        return
    message = ""
    if split:
        message = "A split network cannot be placed: each part trains by itself. Leave out 'split' or 'placement'."
    elif hyper.techniques:
        message = "A placement counts what a step without techniques keeps. Leave out 'techniques' or 'placement'."
    if message:
        raise PydanticCustomError("unknown_name", "{text}", {"text": message, "argument": PLACEMENT})
