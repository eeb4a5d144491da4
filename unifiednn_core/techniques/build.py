"""The techniques of one sub-model at work, from those of its spec."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import Generator, Tensor, nn

from unifiednn_core.spec import techniques as asked
from unifiednn_core.techniques.checkpointing import Segmenting, keep_as_it_is
from unifiednn_core.techniques.compression import Dropping, Packing
from unifiednn_core.techniques.offload import Offloading
from unifiednn_core.techniques.saved import Codec, SavedTensors


@dataclass(frozen=True, slots=True)
class Techniques:
    """What the techniques of a sub-model change, stage by stage; by default nothing."""

    codecs: tuple[Codec, ...] = ()
    """Keep what is saved between forward and backward."""
    offload: Offloading | None = None
    """Keeps what codecs leave, and what they packed, on the host."""
    checkpointing: Segmenting | None = None
    """Computes segments again in backward."""
    nodes: asked.VirtualNodes | None = None
    """Virtual nodes, which cut each batch."""
    leaves: bool = False
    """Whether weights and optimizer state leave the device between turns."""
    exact: bool = True
    """Whether the trained model has the same bits as without them."""

    @property
    def in_steps(self) -> bool:
        """Whether they change what happens in a step."""
        return bool(self.codecs) or self.offload is not None or self.checkpointing is not None

    @property
    def active(self) -> bool:
        """Whether they change anything."""
        return self.in_steps or self.leaves or self.nodes is not None

    @contextmanager
    def part(
        self, module: nn.Module, batch: Iterable[Tensor] = (), generator: Generator | None = None
    ) -> Iterator[None]:
        """Surround forward, loss and backward of one part of a batch, whose tensors stay in memory.

        The network draws from `generator`, or from torch's default ones. Raises `NotApplicable`.
        """
        with ExitStack() as stack:
            keep = keep_as_it_is
            if self.offload is not None:
                moving = stack.enter_context(self.offload.part(module, batch))
                keep = stack.enter_context(SavedTensors(self.codecs, module, batch, moving.moved)).keep
            elif self.codecs:
                keep = stack.enter_context(SavedTensors(self.codecs, module, batch)).keep
            if self.checkpointing is not None:
                stack.enter_context(self.checkpointing.part(module, keep, generator))
            yield


NONE = Techniques()


def _codec(technique: asked.Technique) -> Codec | None:
    if isinstance(technique, asked.Compression):
        return Packing(technique.bfloat16)
    if isinstance(technique, asked.DropIT):
        return Dropping(technique.keep, technique.form == "deduplicated")
    return None


def built(techniques: Sequence[asked.Technique]) -> Techniques:
    """Build them, in the order of the spec."""
    codecs = [codec for one in techniques if (codec := _codec(one)) is not None]
    codecs.sort(key=lambda codec: isinstance(codec, Packing))  # it would take what others make smaller
    away = next((Offloading(one.budget_bytes, one.ahead) for one in techniques if isinstance(one, asked.Offload)), None)
    again = next((Segmenting(one.segments) for one in techniques if isinstance(one, asked.Checkpointing)), None)
    nodes = next((one for one in techniques if isinstance(one, asked.VirtualNodes)), None)
    leaves = any(isinstance(one, asked.IdleOffload) for one in techniques)
    return Techniques(tuple(codecs), away, again, nodes, leaves, exact=all(one.exact for one in techniques))
