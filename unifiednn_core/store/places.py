"""What a worker is doing, as one line of text that outlives it: `lenet:step 120 in aten.div.Tensor_mode`."""

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
    """Known only at a place where the worker before it died: see `engine.operator_trace`."""

    @classmethod
    def of(cls, text: str | None) -> "Place | None":
        """Read the text of a mark; None if it has none."""
        found = _LINE.fullmatch(text or "")
        return None if found is None else cls(**found.groupdict())

    @property
    def step(self) -> int:
        """Step of the sub-model, from 1; 0 while it is loaded."""
        last = self.doing.rpartition(" ")[2]
        return int(last) if last.isdecimal() else 0

    def is_near(self, other: "Place | None") -> bool:
        """Whether another place is the same but for the operator."""
        return other is not None and (self.submodel, self.doing) == (other.submodel, other.doing)
