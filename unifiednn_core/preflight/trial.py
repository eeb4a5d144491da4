"""One sub-model with its files as the check tries it: its batch sizes, and a limit on the processor time of a try."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from torch import nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput, Finding, Fix
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.step import Step
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.build import NONE, Techniques
from unifiednn_core.techniques.virtual_nodes import lengths

# Samples of the batch that is tried. A few show every mistake; the need of a whole batch follows from them.
TRIED_SAMPLES = 8
# A larger network is tried with fewer, and so is one that is slow (`dry_run.SLOW_FORWARD_CPU_S`).
LARGE_WEIGHTS_BYTES = 256 * 1024**2
FEWEST_SAMPLES = 2
_AGAIN_S = 0.05
TORCH_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, ArithmeticError)
"""What operators raise."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One sub-model with its files, as it would be trained."""

    spec: SubModelSpec
    definition: Definition
    train: Dataset
    test: Dataset | None
    slow: bool = False
    """Whether only the fewest samples are tried."""

    @property
    def batch_size(self) -> int:
        """Samples of the batch that is tried."""
        few = self.slow or self.definition.weights_bytes > LARGE_WEIGHTS_BYTES
        least = max(FEWEST_SAMPLES if few else TRIED_SAMPLES, self.definition.min_batch)
        return min(least, self.spec.hyperparameters.batch_size, self.train.samples)

    def place(self, entry: str) -> str:
        """Path of an entry of the sub-model in the spec."""
        return f"submodels.{self.spec.name}.{entry}"

    def warning(self, title: str, entry: str, message: str, remedy: str, fix: Fix | None = None) -> Finding:
        """A warning on an entry of the sub-model."""
        field = self.place(entry)
        return Finding(severity="warning", title=title, field=field, message=message, remedy=remedy, fix=fix)

    def refusal(self, title: str, entry: str, message: str, remedy: str, fix: Fix | None = None) -> BadInput:
        """One error finding on an entry of the sub-model, to be raised."""
        return BadInput([Finding(title=title, field=self.place(entry), message=message, remedy=remedy, fix=fix)])


@dataclass(frozen=True, slots=True)
class Tried:
    """What a dry run leaves behind: a network that has taken a step, with the state of its optimizer."""

    module: nn.Module
    step: Step
    criterion: nn.Module
    optimizer: Optimizer
    doubts: tuple[Finding, ...]
    """Warnings."""
    cpu_s_per_sample: float
    """Processor time of the whole dry run by the samples of its batch."""
    techniques: Techniques = NONE


class OutOfTime(Exception):
    """Not an error of torch: no handler of those catches it."""


@contextmanager
def at_most_cpu(cpu_s: float) -> Iterator[None]:
    """Raise `OutOfTime` inside the block once it has used `cpu_s` of processor time; for the main thread only."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)  # again, in case a callback swallows the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def part_sizes(hyper: Hyperparameters, samples: int) -> tuple[int, ...]:
    """Every size of a part of a batch in an epoch of `samples`, the largest first."""
    sizes = {size for batch in batch_sizes(hyper, samples) for size in lengths(batch, hyper.shares)}
    return tuple(sorted(sizes, reverse=True))


def batch_sizes(hyper: Hyperparameters, samples: int, *, evaluated: bool = False) -> tuple[int, ...]:
    """Sizes of the batches of an epoch, or of an evaluation, which never drops the last."""
    full = (hyper.batch_size,) if samples >= hyper.batch_size else ()
    last = samples % hyper.batch_size
    return (*full, last) if last and (evaluated or not hyper.drop_last) else full
