"""How one sub-model is trained: the hyper-parameter file that a user uploads."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.choices import (
    CLASSIFICATION,
    CRITERIA,
    IGNORE_INDEX,
    LR_SCHEDULERS,
    OPTIMIZERS,
    REFUSED_CRITERIA,
    REFUSED_LR_SCHEDULERS,
    REFUSED_OPTIMIZERS,
    checked_arguments,
    known,
)

# Arguments of LR schedulers that are learning rates themselves.
_RATES = ("max_lr", "base_lr", "min_lr", "eta_min")


class _Part(BaseModel):
    # Strict: true is no number, and "5" is a text, as torch sees it.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class LRSchedulerSpec(_Part):
    """LR scheduler by torch's arguments; stepped once per epoch unless `per` is "step".

    One that goes by a loss (`reduce_on_plateau`) is given that of the test data after each epoch, without test data
    that of the training.
    """

    name: str
    args: Annotated[dict[str, Any], Field(validate_default=True)] = {}
    per: Literal["epoch", "step"] = "epoch"

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return known(name, LR_SCHEDULERS, REFUSED_LR_SCHEDULERS, "LR scheduler")

    @field_validator("args")
    @classmethod
    def _arguments(cls, args: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return checked_arguments(args, LR_SCHEDULERS.get(info.data.get("name", "")))

    @field_validator("per")
    @classmethod
    def _per(cls, per: str, info: ValidationInfo) -> str:
        choice = LR_SCHEDULERS.get(info.data.get("name", ""))
        if choice is not None and choice.measured and per == "step":
            message = "{torch_class} goes by the loss of an epoch and cannot step after each batch. Set it to 'epoch'."
            raise PydanticCustomError("unknown_name", message, {"torch_class": choice.torch_class})
        return per


class GradientClipping(_Part):
    """Limit to the gradients of a step, once all its batches have gone through: one of the two."""

    norm: Annotated[float, Field(gt=0)] | None = None
    """Gradients whose common norm (2-norm over all weights) is larger are scaled down to it."""
    value: Annotated[float, Field(gt=0)] | None = None
    """Each entry is clamped to between minus and plus this."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.norm is None) == (self.value is None):
            raise PydanticCustomError("unknown_name", "Clipping is by norm or by value. Give one of the two.", {})
        return self


class WarmUp(_Part):
    """A linear start: step i of the training (from 1) is taken with min(1, i / `steps`) of the learning rate.

    It goes on top of the LR scheduler, which steps as if there were none; optimizer steps are counted.
    """

    steps: Annotated[int, Field(ge=1, le=1_000_000_000)]

    def factor(self, step: int) -> float:
        """Share of the learning rate that a step (from 1) is taken with."""
        return min(1.0, step / self.steps)


class EarlyStopping(_Part):
    """Ends the training after `patience` epochs in a row in which the metric was no better than the best before.

    Better is more than `min_delta` below the best (a loss) or above it (an accuracy). The weights handed back are
    those of the last epoch; the checkpoint of the best epoch is kept beside them.
    """

    metric: Literal["train_loss", "test_loss", "test_accuracy"] = "test_loss"
    patience: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    min_delta: Annotated[float, Field(ge=0)] = 0.0

    def sentence(self, epoch: int, epochs: int) -> str:
        """What is said of a training that ended early."""
        metric = self.metric.replace("_", " ")
        for_so_long = "1 epoch" if self.patience == 1 else f"{self.patience} epochs"
        return f"Stopped early at epoch {epoch} of {epochs}: the {metric} did not improve for {for_so_long}."


class Hyperparameters(_Part):
    """How one sub-model is trained. This object is the hyper-parameter file that a user uploads."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 32
    optimizer: str = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    optimizer_args: dict[str, Any] = {}
    criterion: str = "cross_entropy"
    criterion_args: dict[str, Any] = {}
    lr_scheduler: LRSchedulerSpec | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of this sub-model; without one the run's seed is taken."""
    drop_last: bool = False
    batch_split: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Parts in which a batch goes through the network, one after the other, for one optimizer step. More parts need
    less memory. The gradient is that of the whole batch but for rounding; batch normalisation sees the parts."""
    accumulation_steps: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Batches that make one optimizer step. The gradient is that of their mean loss, each sample counting alike: k
    batches of n samples are one batch of k * n with a `batch_split` of k, but for rounding. The last step of an epoch
    has the batches that are left. Everything that is counted in steps counts optimizer steps."""
    gradient_clipping: GradientClipping | None = None
    warm_up: WarmUp | None = None
    early_stopping: EarlyStopping | None = None
    techniques: list[str] = []

    @field_validator("optimizer")
    @classmethod
    def _optimizer(cls, name: str) -> str:
        return known(name, OPTIMIZERS, REFUSED_OPTIMIZERS, "optimizer")

    @field_validator("criterion")
    @classmethod
    def _criterion(cls, name: str) -> str:
        return known(name, CRITERIA, REFUSED_CRITERIA, "criterion")

    @field_validator("optimizer_args")
    @classmethod
    def _optimizer_args(cls, args: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return checked_arguments(args, OPTIMIZERS.get(info.data.get("optimizer", "")))

    @field_validator("criterion_args")
    @classmethod
    def _criterion_args(cls, args: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return checked_arguments(args, CRITERIA.get(info.data.get("criterion", "")))

    @field_validator("early_stopping")
    @classmethod
    def _early_stopping(cls, asked: EarlyStopping | None, info: ValidationInfo) -> EarlyStopping | None:
        criterion = info.data.get("criterion", "")
        if asked is not None and asked.metric == "test_accuracy" and criterion in CRITERIA.keys() - CLASSIFICATION:
            message = "With {criterion} there are no classes and no accuracy. Choose the metric test_loss."
            raise PydanticCustomError("unknown_name", message, {"criterion": criterion, "argument": "metric"})
        return asked

    @field_validator("techniques")
    @classmethod
    def _techniques(cls, names: list[str]) -> list[str]:
        if names:
            raise PydanticCustomError("unknown_name", "No techniques exist yet. Leave the list empty.")
        return names

    @property
    def ignored_label(self) -> int | None:
        """Class number whose samples the criterion leaves out; torch has one (-100) where none is given, too."""
        own = next((a for a in CRITERIA[self.criterion].arguments if a.name == IGNORE_INDEX), None)
        label: int | None = None if own is None else self.criterion_args.get(IGNORE_INDEX, own.default)
        return label

    @property
    def failing_after(self) -> tuple[str, str, int] | None:
        """Class, argument and number of steps of an LR scheduler that fails when it is stepped on after them."""
        asked = self.lr_scheduler
        choice = None if asked is None else LR_SCHEDULERS[asked.name]
        if asked is None or choice is None or choice.afterwards != "fails" or choice.span not in asked.args:
            return None
        return choice.torch_class, choice.span, int(asked.args[choice.span])

    def steps_per_epoch(self, samples: int) -> int:
        """Optimizer steps in one epoch of `samples`, with or without the last partial batch."""
        return -(-self.batches_per_epoch(samples) // self.accumulation_steps)

    def batches_per_epoch(self, samples: int) -> int:
        """Batches in one epoch of `samples`, with or without the last partial one."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def at_learning_rate(now: Hyperparameters, learning_rate: float) -> dict[str, Any]:
    """Entries that change with the learning rate: itself, and in proportion those that the LR scheduler is given."""
    asked = now.lr_scheduler
    if asked is None:
        return {"learning_rate": learning_rate}
    factor = learning_rate / now.learning_rate
    scaled = {name: asked.args[name] * factor for name in _RATES if name in asked.args}
    schedule = {**asked.model_dump(mode="json"), "args": asked.args | scaled}
    return {"learning_rate": learning_rate, "lr_scheduler": schedule}
