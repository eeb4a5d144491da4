"""One sub-model with its files as the check tries it: its batch sizes, and a limit on the processor time of a try."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from torch import nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.step import Step
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import SubModelSpec

# Samples of the batch that is tried. A few show every mistake; the need of a whole batch follows from them.
TRIED_SAMPLES = 8
# A larger network is tried with fewer.
LARGE_WEIGHTS_BYTES = 256 * 1024**2
FEWEST_SAMPLES = 2
_AGAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class Trial:
    """One sub-model with its files, as it would be trained."""

    spec: SubModelSpec
    definition: Definition
    train: Dataset
    test: Dataset | None

    @property
    def batch_size(self) -> int:
        """Samples of the batch that is tried."""
        few = FEWEST_SAMPLES if self.definition.weights_bytes > LARGE_WEIGHTS_BYTES else TRIED_SAMPLES
        few = max(few, self.definition.min_batch)
        return min(few, self.spec.hyperparameters.batch_size, self.train.samples)

    def place(self, entry: str) -> str:
        """Path of an entry of the sub-model in the spec."""
        return f"submodels.{self.spec.name}.{entry}"

    def refusal(self, title: str, entry: str, message: str, remedy: str) -> BadInput:
        """One error finding on an entry of the sub-model, to be raised."""
        return BadInput.of(title, self.place(entry), message, remedy)


@dataclass(frozen=True, slots=True)
class Tried:
    """What a dry run leaves behind: a network that has taken a step, with the state of its optimizer."""

    module: nn.Module
    step: Step
    criterion: nn.Module
    optimizer: Optimizer
    doubts: tuple[Finding, ...]
    """Warnings."""
    cpu_s: float
    """Processor time of the whole dry run."""


class _OutOfTime(Exception):
    """Not an error of torch: no handler of those catches it."""


@contextmanager
def at_most_cpu(cpu_s: float, trial: Trial, work: str) -> Iterator[None]:
    """Raise `BadInput` inside the block once it has used `cpu_s` of processor time; for the main thread only.

    `work` begins the sentence that people read.
    """

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)  # again, in case a callback swallows the first
    try:
        yield
    except _OutOfTime:
        message = f"{work} of '{trial.spec.name}' took more than {cpu_s:g} s of processor time."
        remedy = "Use a smaller network, or smaller samples."
        raise trial.refusal("Too slow to check", "model", message, remedy) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def part_sizes(hyper: Hyperparameters, samples: int) -> tuple[int, ...]:
    """Every size of a part of a batch in an epoch of `samples`, the largest first."""
    batches = batch_sizes(hyper, samples)
    parts = [-(-batch // hyper.batch_split) for batch in batches]  # as torch.chunk cuts
    ends = [batch % part or part for batch, part in zip(batches, parts, strict=True)]
    return tuple(sorted({*parts, *ends}, reverse=True))


def batch_sizes(hyper: Hyperparameters, samples: int, *, evaluated: bool = False) -> tuple[int, ...]:
    """Sizes of the batches of an epoch, or of an evaluation, which never drops the last."""
    full = (hyper.batch_size,) if samples >= hyper.batch_size else ()
    last = samples % hyper.batch_size
    return (*full, last) if last and (evaluated or not hyper.drop_last) else full
