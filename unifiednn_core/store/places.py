"""What a worker is doing, as text that outlives it: a line `lenet:step 120 in aten.div.Tensor_mode` for each lane."""

import re
from dataclasses import dataclass

_LINE = re.compile(r"(?P<submodel>[^:]+):(?P<doing>.*?)(?: in (?P<operator>\S+))?")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the training of a sub-model."""

    submodel: str
    doing: str
    """`loading`, `step 120` or `evaluation after step 120`."""
    operator: str | None = None
    """Known only at a place where the worker before it died: see `runtime.worker.OperatorTrace`."""

    @classmethod
    def all_of(cls, text: str | None) -> "tuple[Place, ...]":
        """Read the text of a mark: the places of all lanes."""
        found = [_LINE.fullmatch(line) for line in (text or "").splitlines()]
        return tuple(cls(**match.groupdict()) for match in found if match is not None)

    @property
    def step(self) -> int:
        """Step of the sub-model, from 1; 0 while it is loaded."""
        last = self.doing.rpartition(" ")[2]
        return int(last) if last.isdecimal() else 0

    def is_near(self, other: "Place") -> bool:
        """Whether another place is the same but for the operator."""
        return (self.submodel, self.doing) == (other.submodel, other.doing)

    def __str__(self) -> str:
        return f"{self.submodel}:{self.doing}" + (f" in {self.operator}" if self.operator else "")
