"""What each operator of a network costs, and who needs whose result; values without torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass(frozen=True, slots=True)
class Op:
    """One operator. Its backward runs on the device of its forward."""

    name: str
    forward_s: float
    backward_s: float = 0.0
    output_bytes: int = 0
    """New memory for its result; 0 for a view or a change in place, whose `storage` is that of another operator."""
    storage: int | None = None
    """Number of the operator in whose memory the result is; None for its own."""
    saved_bytes: int = 0
    """Kept from its forward to its backward beside inputs and result, such as the mask of a dropout."""
    keeps_output: bool = False
    """Whether its own backward needs its result."""


@dataclass(frozen=True, slots=True)
class Edge:
    """The result of operator `source` is read by operator `target`, both by number."""

    source: int
    target: int
    size_bytes: int = 0
    """Of the tensor, which is sent if they are on two devices."""
    gradient_bytes: int = 0
    """Of its gradient, which is sent back; 0 if there is none, and then the two backwards are independent."""
    kept: bool = False
    """Whether the backward of `target` needs this tensor."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Memory that is on a device all the time, because these operators, which have to be together, read it."""

    name: str
    size_bytes: int
    """With gradient and optimizer state where it is trained."""
    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """What it takes to send a tensor from a device to another; any number of tensors at once."""

    latency_s: float = 25e-6
    bytes_per_s: float = 12e9
    """By default that of PCI Express 4.0 with 16 lanes, about half of its peak."""

    def seconds(self, size_bytes: int) -> float:
        """Return seconds for a tensor of this size; nothing is sent of size 0."""
        return self.latency_s + size_bytes / self.bytes_per_s if size_bytes else 0.0


@dataclass(frozen=True)
class CostGraph:
    """Operators in the order of the program, which is one of the graph; no operator reads a later one."""

    ops: tuple[Op, ...]
    edges: tuple[Edge, ...] = ()
    weights: tuple[Weight, ...] = ()
    together: tuple[tuple[int, ...], ...] = ()
    """Operators that have to be on one device for other reasons, such as views with their base."""
    training: bool = True
    """Whether there is a backward; without it nothing is kept."""
    incoming: tuple[tuple[Edge, ...], ...] = field(init=False, compare=False, repr=False)
    """Edges to each operator."""
    outgoing: tuple[tuple[Edge, ...], ...] = field(init=False, compare=False, repr=False)
    """Edges from each operator."""
    unit_of: tuple[int, ...] = field(init=False, compare=False, repr=False)
    """Number of the unit of each operator; a unit is on one device. Units are in the order of their first operators."""
    units: tuple[tuple[int, ...], ...] = field(init=False, compare=False, repr=False)
    """Operators of each unit."""

    def __post_init__(self) -> None:
        count = len(self.ops)
        incoming: list[list[Edge]] = [[] for _ in range(count)]
        outgoing: list[list[Edge]] = [[] for _ in range(count)]
        for edge in self.edges:
            if not 0 <= edge.source < edge.target < count:
                raise ValueError(f"operator {edge.target} of {count} cannot read operator {edge.source}")
            incoming[edge.target].append(edge)
            outgoing[edge.source].append(edge)
        of_storage = [(number, op.storage) for number, op in enumerate(self.ops) if op.storage is not None]
        groups = [*self.together, *(weight.ops for weight in self.weights), *of_storage]
        unit_of = _united(count, groups)
        units: list[list[int]] = [[] for _ in range(max(unit_of, default=-1) + 1)]
        for number, unit in enumerate(unit_of):
            units[unit].append(number)
        object.__setattr__(self, "incoming", tuple(map(tuple, incoming)))
        object.__setattr__(self, "outgoing", tuple(map(tuple, outgoing)))
        object.__setattr__(self, "units", tuple(map(tuple, units)))
        object.__setattr__(self, "unit_of", tuple(unit_of))

    @property
    def work_s(self) -> float:
        """Seconds of all operators one after another, forward and backward."""
        return sum(map(self.op_s, range(len(self.ops))))

    def op_s(self, number: int) -> float:
        """Seconds of forward and, in training, backward of an operator."""
        op = self.ops[number]
        return op.forward_s + (op.backward_s if self.training else 0.0)

    def storage(self, number: int) -> int:
        """Return the number of the operator in whose memory the result of operator `number` is."""
        storage = self.ops[number].storage
        return number if storage is None else storage

    def storages(self) -> dict[int, list[int]]:
        """Map each operator with memory of its own to all whose results are in it, itself first."""
        found: dict[int, list[int]] = {}
        for number in range(len(self.ops)):
            found.setdefault(self.storage(number), []).append(number)
        return found

    def critical_path_s(self) -> float:
        """Seconds of the longest chain of operators that wait for each other, with nothing to send.

        In training it goes forward to an operator, and from its backward back.
        """
        forward, backward = np.zeros(len(self.ops)), np.zeros(len(self.ops))
        for number, op in enumerate(self.ops):
            before = self.incoming[number]
            forward[number] = op.forward_s + max((forward[edge.source] for edge in before), default=0.0)
            back = max((backward[edge.source] for edge in before if edge.gradient_bytes), default=0.0)
            backward[number] = (op.backward_s if self.training else 0.0) + back
        return float((forward + backward).max(initial=0.0))

    def bound_s(self, devices: int) -> float:
        """Seconds that no placement on so many devices can beat: the critical path, and a fair share of the work."""
        return max(self.critical_path_s(), self.work_s / devices)


def _united(count: int, groups: Sequence[Sequence[int]]) -> list[int]:
    """Number the sets that result if the members of each group are in one set; in the order of their first members."""
    parent = list(range(count))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for group in groups:
        for one, other in pairwise(group):
            first, second = sorted((root(one), root(other)))
            parent[second] = first
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(number), len(numbers)) for number in range(count)]
