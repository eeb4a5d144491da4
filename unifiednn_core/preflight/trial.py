"""One sub-model with its files as it is tried: batch sizes, and the checks of its data against its network."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from torch import Tensor, nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.formats.base import Definition
from unifiednn_core.spec.choices import CRITERIA
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import SubModelSpec

# Samples of the batch that is tried. A few show every mistake; what a whole batch needs follows from them.
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
    def field(self) -> str:
        """Place of the sub-model in the spec."""
        return f"submodels.{self.spec.name}"

    @property
    def batch_size(self) -> int:
        """Samples of the batch that is tried."""
        few = FEWEST_SAMPLES if self.definition.weights_bytes > LARGE_WEIGHTS_BYTES else TRIED_SAMPLES
        few = max(few, self.definition.min_batch)
        return min(few, self.spec.hyperparameters.batch_size, self.train.samples)


@dataclass(frozen=True, slots=True)
class Tried:
    """What a dry run leaves behind: a network that has taken a step, with its optimizer's state."""

    module: nn.Module
    criterion: nn.Module
    optimizer: Optimizer
    doubts: tuple[Finding, ...] = ()
    """Warnings about what was seen on the way."""
    cpu_s: float = 0.0
    """Processor time of the whole dry run."""


class _OutOfTime(Exception):
    """Nothing that torch raises: no handler of its errors takes it."""


@contextmanager
def at_most_cpu(cpu_s: float, trial: Trial, work: str) -> Iterator[None]:
    """Raise `BadInput` inside the block once it has used this much processor time; in the main thread alone.

    `work` is the beginning of the sentence that a person reads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, cpu_s, _AGAIN_S)  # again, where some callback swallows the first
    try:
        yield
    except _OutOfTime:
        message = f"{work} of '{trial.spec.name}' took more than {cpu_s:g} s of processor time."
        remedy = "Use a smaller network, or smaller samples."
        raise found("Too slow to check", f"{trial.field}.model", message, remedy) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def check_finite(trial: Trial, loss: Tensor) -> None:
    """Raise `BadInput` if the first loss is NaN or infinite: it will stay so."""
    if bool(loss.isfinite()):
        return
    criterion = trial.spec.hyperparameters.criterion
    message = f"The {criterion} of the first batch is {loss.item():g}: the network cannot learn from it."
    remedy = "Look at scale, mean and std, at the weights of the model, and at what outputs and targets it takes."
    raise found("Loss not finite", f"{trial.field}.hyperparameters.criterion", message, remedy)


def check_input_shape(trial: Trial, data: Dataset, entry: str) -> None:
    """Raise `BadInput` where samples do not have the shape that the model file gives."""
    expected, given = trial.definition.input_shape, tuple(data.inputs.shape[1:])
    if expected is None:
        return
    fits = len(expected) == len(given) and all(e is None or e == g for e, g in zip(expected, given, strict=True))
    if not fits:
        wanted = ["any" if size is None else size for size in expected]
        message = f"The samples have the shape {list(given)}; the network takes {wanted}."
        remedy = "Give data of that shape, or the network that fits the data."
        raise found("Shape of data", f"{trial.field}.{entry}", message, remedy)


def check_labels(trial: Trial, data: Dataset, outputs: Tensor, entry: str) -> None:
    """Raise `BadInput` where targets are not among the classes that the outputs score, [batch, classes, ...]."""
    field, criterion = f"{trial.field}.{entry}", trial.spec.hyperparameters.criterion
    if data.targets.is_floating_point():
        message = f"{criterion} needs class numbers, but the targets are {dtype_name(data.targets)}."
        raise found("Targets", field, message, "Store class numbers as integers, or choose another criterion.")
    if outputs.dim() < 2:
        message = f"{criterion} needs one score for each class, but a sample's output is a single number."
        raise found("Outputs", f"{trial.field}.model", message, "Let the network return [batch, classes].")
    if data.targets.shape[1:] != outputs.shape[2:]:
        wanted, given = ["batch", *outputs.shape[2:]], ["batch", *data.targets.shape[1:]]
        scores = ["batch", "classes", *outputs.shape[2:]]
        message = f"{criterion} takes outputs {scores} with class numbers {wanted}; these are {given}.".replace("'", "")
        remedy = "Store one class number for each, not one-hot rows."
        if outputs.dim() > 2 and data.targets.shape[1:] == outputs.shape[1:-1]:
            remedy = "Let the network return the classes in the second place: scores.transpose(1, -1)."
        raise found("Targets", field, message, remedy)
    ignored = trial.spec.hyperparameters.ignored_label
    labels, classes = data.targets if ignored is None else data.targets[data.targets != ignored], outputs.shape[1]
    outside = labels[(labels < 0) | (labels >= classes)].flatten()
    if len(outside):
        message = f"The network has {classes} classes (0 to {classes - 1}), but {len(outside)} targets are outside, "
        message += f"such as {int(outside[0])}."
        raise found("Labels outside the classes", field, message, "Number the classes from 0, or use a larger network.")


def check_values(trial: Trial, targets: Tensor, outputs: Tensor, entry: str) -> None:
    """Raise `BadInput` where targets differ from outputs in shape: torch would stretch them without an error."""
    field, criterion = f"{trial.field}.{entry}", trial.spec.hyperparameters.criterion
    if targets.shape != outputs.shape:
        shapes = f"{list(outputs.shape)} and {list(targets.shape)}"
        message = f"{criterion} compares outputs with targets one by one, but their shapes are {shapes}."
        raise found("Outputs and targets", field, message, "Give targets of the outputs' shape, or another criterion.")
    if CRITERIA[criterion].targets == "lists":
        classes = outputs.shape[-1]
        if targets.is_floating_point() or not bool(((targets >= -1) & (targets < classes)).all()):
            message = f"{criterion} takes lists of class numbers from 0 to {classes - 1}, filled up with -1."
            raise found("Targets", field, message, "Store such lists, or 0 and 1 for multi_label_soft_margin.")
    elif not targets.is_floating_point():
        message = f"{criterion} needs targets that are real numbers, but they are {dtype_name(targets)}."
        raise found("Targets", field, message, "Store the targets as float32, or choose another criterion.")


def part_sizes(hyper: Hyperparameters, samples: int) -> tuple[int, ...]:
    """Every size of a part of a batch in an epoch of so many samples, the largest first."""
    batches = batch_sizes(hyper, samples)
    parts = [-(-batch // hyper.batch_split) for batch in batches]  # as torch.chunk cuts
    ends = [batch % part or part for batch, part in zip(batches, parts, strict=True)]
    return tuple(sorted({*parts, *ends}, reverse=True))


def batch_sizes(hyper: Hyperparameters, samples: int, *, evaluated: bool = False) -> tuple[int, ...]:
    """Sizes of the batches of an epoch, or of an evaluation, which never drops the last."""
    full = (hyper.batch_size,) if samples >= hyper.batch_size else ()
    last = samples % hyper.batch_size
    return (*full, last) if last and (evaluated or not hyper.drop_last) else full


def check_batch_sizes(trial: Trial) -> None:
    """Raise `BadInput` if the smallest batch of training or evaluation is too small for the network."""
    hyper, least = trial.spec.hyperparameters, trial.definition.min_batch
    in_training = part_sizes(hyper, trial.train.samples)[-1]
    if in_training < least:
        message = f"The network takes at least {least} samples at once; the smallest batch of an epoch has "
        raise _small_batch(trial, "Batch too small", f"{message}{in_training}.", in_training)
    if trial.test is not None and (in_testing := batch_sizes(hyper, trial.test.samples, evaluated=True)[-1]) < least:
        message = f"The network takes at least {least} samples at once; the last batch of a test has {in_testing}."
        raise found("Batch too small", f"{trial.field}.test_data", message, "Choose another batch size.")


def batch_of_one(trial: Trial, reason: str) -> BadInput:
    """Build the error for a network that fails on the single-sample batch at the end of an epoch."""
    message = f"An epoch has a batch of one sample, which the network does not take: {reason}."
    return _small_batch(trial, "Batch of one", message, 1)


def check_statistics(trial: Trial, module: nn.Module) -> None:
    """Raise `BadInput` if a batch of one made the statistics of a normalisation NaN: exported graphs allow that."""
    alone = part_sizes(trial.spec.hyperparameters, trial.train.samples)[-1] == 1
    if alone and any(bool(buffer.isnan().any()) for buffer in module.buffers()):
        raise batch_of_one(trial, "its running statistics become NaN")


def _small_batch(trial: Trial, title: str, message: str, smallest: int) -> BadInput:
    hyper, samples = trial.spec.hyperparameters, trial.train.samples
    last = batch_sizes(hyper, samples)[-1]
    if samples == smallest:
        remedy = "Give more samples."
    elif hyper.batch_size == smallest:
        remedy = "Choose a larger batch size."
    elif last > smallest:
        remedy = 'Choose fewer parts, or set "drop_last" to true where only the last batch is too small.'
    else:
        remedy = 'Set "drop_last" to true, or choose another batch size.'
    entry = "batch_split" if hyper.batch_split > 1 and last > 1 else "batch_size"
    return found(title, f"{trial.field}.hyperparameters.{entry}", message, remedy)


def found(title: str, field: str, message: str, remedy: str) -> BadInput:
    """One error finding, to be raised."""
    return BadInput([Finding(title=title, field=field, message=message, remedy=remedy)])


def dtype_name(tensor: Tensor) -> str:
    """Name of the type as people write it: `float32`."""
    return str(tensor.dtype).removeprefix("torch.")
