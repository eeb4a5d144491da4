"""What a sub-model is tried with, and what its data must be like to fit its network and criterion."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer

from unifiednn_core.choices import CRITERIA
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.intake.base import Definition
from unifiednn_core.intake.datasets import Dataset
from unifiednn_core.spec import SubModelSpec

# A larger network is tried with few samples, to be quick and to fit into memory.
LARGE_WEIGHTS_BYTES = 256 * 1024**2
LARGE_BATCH = 8


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
        size = min(self.spec.hyperparameters.batch_size, self.train.samples)
        return min(size, LARGE_BATCH) if self.definition.weights_bytes > LARGE_WEIGHTS_BYTES else size


@dataclass(frozen=True, slots=True)
class Tried:
    """What a trial leaves behind: a network that has taken a step, with its optimizer's state."""

    module: nn.Module
    criterion: nn.Module
    optimizer: Optimizer
    doubts: tuple[Finding, ...] = ()
    """Warnings about what was seen on the way."""


def check_finite(trial: Trial, loss: Tensor) -> None:
    """Raise `BadInput` where the very first loss is no number: it never will be one."""
    if bool(loss.isfinite()):
        return
    criterion = trial.spec.hyperparameters.criterion
    message = f"The {criterion} of the first batch is {loss.item():g}, so nothing can be learnt from it."
    remedy = "Look at scale, mean and std, at the weights of the model, and at what outputs and targets it takes."
    raise found("Loss is no number", f"{trial.field}.hyperparameters.criterion", message, remedy)


def check_input_shape(trial: Trial, data: Dataset, entry: str) -> None:
    """Raise `BadInput` where samples have another shape than the model file says."""
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
        message = (
            f"{criterion} takes outputs {['batch', 'classes', *outputs.shape[2:]]} with class numbers {wanted}; these "
            f"are {given}.".replace("'", "")
        )
        remedy = "Store one class number for each, not one-hot rows."
        if outputs.dim() > 2 and data.targets.shape[1:] == outputs.shape[1:-1]:
            remedy = "Let the network return the classes in the second place: scores.transpose(1, -1)."
        raise found("Targets", field, message, remedy)
    ignored = trial.spec.hyperparameters.ignored_label
    labels, classes = data.targets if ignored is None else data.targets[data.targets != ignored], outputs.shape[1]
    outside = labels[(labels < 0) | (labels >= classes)].flatten()
    if len(outside):
        message = (
            f"The network tells {classes} classes apart (0 to {classes - 1}), but {len(outside)} targets are outside, "
            f"such as {int(outside[0])}."
        )
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


def found(title: str, field: str, message: str, remedy: str) -> BadInput:
    """One error finding, to be raised."""
    return BadInput([Finding(title=title, field=field, message=message, remedy=remedy)])


def dtype_name(tensor: Tensor) -> str:
    """Name of the type as people write it: `float32`."""
    return str(tensor.dtype).removeprefix("torch.")
