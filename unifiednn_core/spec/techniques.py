"""Techniques: ways to train one sub-model in less memory, as entries of its hyper-parameters. No torch here.

Each class is one technique with its parameters, as a spec writes it: `{"name": "compression"}`, or its name alone.
What it does is in the room `techniques`, in the file of its name.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

MOST_DEVICES = 64
"""Logical devices of one sub-model."""


class Technique(BaseModel):
    """What all techniques have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)
    title: ClassVar[str]
    """As operators read it, such as "Activation compression"."""
    summary: ClassVar[str]
    """What it does and costs, one or two sentences."""
    paper: ClassVar[str]
    """Where the idea is from."""
    saves: ClassVar[Literal["step", "rest"]] = "step"
    """When it needs less memory: in a step, or between the turns of the sub-model."""

    @property
    def exact(self) -> bool:
        """Whether the trained model has the same bits as without it."""
        return True

    @property
    def remedy(self) -> str:
        """What to do where it saves nothing."""
        return "Leave it out."


class Compression(Technique):
    """Saved activations are packed without loss, as long as that makes them smaller."""

    title: ClassVar[str] = "Activation compression"
    summary: ClassVar[str] = (
        "Zeros after ReLU, masks and indices are packed between forward and backward. The bits stay the same, except "
        "with bfloat16; steps take longer."
    )
    paper: ClassVar[str] = "the idea of ZCOMP (MICRO 2019)"

    name: Literal["compression"] = "compression"
    bfloat16: bool = False
    """Whether what cannot be packed without loss is kept in bfloat16. Lossy."""

    @property
    def exact(self) -> bool:
        """Without bfloat16."""
        return not self.bfloat16


class Offload(Technique):
    """What backward needs waits in host memory, as far as a budget asks."""

    title: ClassVar[str] = "Activation offload"
    summary: ClassVar[str] = (
        "Saved activations wait in host memory and come back before backward needs them; with a budget only as many as "
        "it takes. The bits stay the same; steps take longer. It saves memory of a GPU; a CPU is the host itself."
    )
    paper: ClassVar[str] = "the idea of moDNN (IEEE TPDS 2019)"

    name: Literal["offload"] = "offload"
    budget_mib: Annotated[float, Field(gt=0, le=10_000_000)] | None = None
    """MiB that the tensors of a step may take besides weights, gradients and optimizer state; by default as few as
    possible. On a GPU the workspace of a kernel, as of cuDNN's convolutions, comes on top while it runs."""
    ahead: Annotated[int, Field(ge=0, le=64)] = 1
    """Tensors prefetched ahead of backward."""

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes."""
        return None if self.budget_mib is None else int(self.budget_mib * 1024**2)


class Checkpointing(Technique):
    """Segments of the network are computed again in backward instead of being kept."""

    title: ClassVar[str] = "Activation checkpointing"
    summary: ClassVar[str] = (
        "The network is cut into segments that keep only their inputs; backward computes the rest again, about one "
        "more forward per step. The bits stay the same."
    )
    paper: ClassVar[str] = "Chen et al., Sublinear Memory Cost (2016)"

    name: Literal["checkpointing"] = "checkpointing"
    segments: Annotated[int, Field(ge=2, le=1000)] | None = None
    """About how many; by default one for each block, and the root of the number of single layers or operators."""


class DropIT(Technique):
    """Keeps only the largest input elements of layers for backward."""

    title: ClassVar[str] = "DropIT"
    summary: ClassVar[str] = (
        "Keeps only the largest input elements of convolutions and linear layers for backward. Their weight gradients "
        "become approximate; all other gradients stay exact. Steps take longer."
    )
    paper: ClassVar[str] = "DropIT (ICLR 2023)"

    name: Literal["dropit"] = "dropit"
    keep: float = Field(default=0.2, gt=0, le=1)
    """Share of the elements that is kept."""
    form: Literal["deduplicated", "published"] = "deduplicated"
    """`published` packs for each layer by itself, also where another operator keeps the tensor in memory.
    `deduplicated` packs once, and also what ReLU and pooling save."""

    @property
    def exact(self) -> bool:
        """Whether `keep` is 1."""
        return self.keep == 1

    @property
    def remedy(self) -> str:
        """What to change where it saves nothing."""
        return "Leave it out." if self.form == "deduplicated" else 'Leave it out, or set "form" to "deduplicated".'


class IdleOffload(Technique):
    """Weights and optimizer state are in host memory while other sub-models train."""

    title: ClassVar[str] = "Idle sub-models on the host"
    summary: ClassVar[str] = (
        "Between its turns a sub-model leaves the GPU: its weights and optimizer state wait in host memory. The bits "
        "stay the same; each turn takes two copies longer. On a CPU it changes nothing."
    )
    paper: ClassVar[str] = "equation 2 of UnifiedNN"
    saves: ClassVar[Literal["step", "rest"]] = "rest"

    name: Literal["idle_offload"] = "idle_offload"


class VirtualNodes(Technique):
    """A batch is computed in shares, one after another or by several logical devices; gradients count by share."""

    title: ClassVar[str] = "Virtual nodes"
    summary: ClassVar[str] = (
        "The batch is computed in shares, so that the activations of one share are in memory at a time. The number of "
        "nodes and their shares fix the result; how many devices compute them does not."
    )
    paper: ClassVar[str] = "VirtualFlow (MLSys 2022)"

    name: Literal["virtual_nodes"] = "virtual_nodes"
    nodes: Annotated[int, Field(ge=1, le=65_536)] | Literal["fit"] = "fit"
    """Shares of a batch. `fit`: of 1, 2, 4 and so on the fewest that fit into the memory left; the check writes how
    many."""
    shares: list[Annotated[int, Field(ge=1, le=10_000_000)]] | Literal["measured"] | None = None
    """Size of each share in proportion to the others, by default equal ones. `measured`: such that the devices end a
    step together; the check writes them."""
    devices: Annotated[int, Field(ge=1, le=MOST_DEVICES)] = 1
    """Logical devices at first. Node i belongs to device i modulo devices. They compute at once if the network neither
    draws random numbers nor has buffers such as those of batch normalisation, else in turn."""

    @model_validator(mode="after")
    def _one_share_for_each(self) -> Self:
        if isinstance(self.shares, list) and len(self.shares) != self.nodes:
            context = {"argument": "nodes", "count": len(self.shares)}
            raise PydanticCustomError("unknown_name", "There are {count} shares. Set nodes to {count}.", context)
        if self.shares == "measured" and self.nodes == "fit":
            message = "Shares are measured for a number of nodes. Give nodes as a number."
            raise PydanticCustomError("unknown_name", message, {"argument": "nodes"})
        return self

    @property
    def is_open(self) -> bool:
        """Whether the check has yet to write nodes or shares."""
        return self.nodes == "fit" or self.shares == "measured"

    @property
    def proportions(self) -> tuple[int, ...]:
        """The shares in lowest terms; equal ones while they are open."""
        if isinstance(self.shares, list):
            whole = math.gcd(*self.shares)
            return tuple(share // whole for share in self.shares)
        return (1,) * (1 if self.nodes == "fit" else self.nodes)

    @property
    def exact(self) -> bool:
        """Always False: summing shares rounds differently."""
        return False


TECHNIQUES: tuple[type[Technique], ...] = (Compression, DropIT, Offload, Checkpointing, VirtualNodes, IdleOffload)
"""In the order in which pages offer them."""


def name_of(technique: type[Technique]) -> str:
    """Name of a technique in a spec."""
    return str(technique.model_fields["name"].default)


def _named(given: object) -> object:
    """Take a name alone for a technique with its defaults; raises a validation error for an unknown name."""
    entry = {"name": given} if isinstance(given, str) else given
    names = [name_of(one) for one in TECHNIQUES]
    if isinstance(entry, Mapping) and entry.get("name") not in names:
        context = {"name": str(entry.get("name")), "names": ", ".join(names)}
        raise PydanticCustomError("unknown_name", "There is no technique '{name}'. Choose among {names}.", context)
    return entry


def stored_nodes(hyperparameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Virtual nodes in the hyper-parameters of a stored spec; empty without any."""
    asked = hyperparameters.get("techniques", ())
    return next((one for one in asked if one["name"] == name_of(VirtualNodes)), {})


def distinct(techniques: Sequence[Technique]) -> None:
    """Raise a validation error for a technique that is named twice."""
    names = [name_of(type(one)) for one in techniques]
    for name in names:
        if names.count(name) > 1:
            raise PydanticCustomError("unknown_name", "{name} is there twice. Leave one out.", {"name": name})


AnyTechnique = Annotated[
    Compression | DropIT | Offload | Checkpointing | VirtualNodes | IdleOffload,
    Field(discriminator="name"),
    BeforeValidator(_named),
]
