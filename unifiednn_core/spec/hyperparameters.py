"""Hyper-parameters of one sub-model: the file that a user uploads."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from unifiednn_core.spec import choices
from unifiednn_core.spec.choice import Choice, checked_arguments, known
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, IGNORE_INDEX, LR_SCHEDULERS, OPTIMIZERS

# Arguments of LR schedulers that are learning rates themselves.
_RATES = ("max_lr", "base_lr", "min_lr", "eta_min")


def _named(table: Mapping[str, Choice], refused: Mapping[str, str], what: str) -> AfterValidator:
    return AfterValidator(lambda name: known(name, table, refused, what))


def _arguments_of(entry: str, table: Mapping[str, Choice]) -> AfterValidator:
    """Check arguments against the choice that `entry` names."""

    def checked(args: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return checked_arguments(args, table.get(info.data.get(entry, "")))

    return AfterValidator(checked)


class _Part(BaseModel):
    # Strict as torch is: true is not a number and "5" is not 5.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class LRSchedulerSpec(_Part):
    """LR scheduler with torch's arguments; stepped once per epoch unless `per` is "step".

    `reduce_on_plateau` gets the test loss after each epoch, or the training loss if there is no test data.
    """

    name: Annotated[str, _named(LR_SCHEDULERS, choices.REFUSED_LR_SCHEDULERS, "LR scheduler")]
    args: Annotated[dict[str, Any], _arguments_of("name", LR_SCHEDULERS), Field(validate_default=True)] = {}
    per: Literal["epoch", "step"] = "epoch"

    @field_validator("per")
    @classmethod
    def _per(cls, per: str, info: ValidationInfo) -> str:
        choice = LR_SCHEDULERS.get(info.data.get("name", ""))
        if choice is not None and choice.measured and per == "step":
            message = "{torch_class} uses the loss of an epoch and cannot step after each batch. Set it to 'epoch'."
            raise PydanticCustomError("unknown_name", message, {"torch_class": choice.torch_class})
        return per


class GradientClipping(_Part):
    """Limit on the gradients of an optimizer step, by norm or by value."""

    norm: Annotated[float, Field(gt=0)] | None = None
    """Gradients with a larger 2-norm over all weights are scaled down to it."""
    value: Annotated[float, Field(gt=0)] | None = None
    """Each entry is clamped to [-value, value]."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.norm is None) == (self.value is None):
            raise PydanticCustomError("unknown_name", "Clipping is by norm or by value. Give exactly one.", {})
        return self


class WarmUp(_Part):
    """Linear warm-up: optimizer step i (from 1) uses min(1, i / `steps`) of the learning rate.

    It multiplies the learning rate of the LR scheduler, which steps as usual.
    """

    steps: Annotated[int, Field(ge=1, le=1_000_000_000)]

    def factor(self, step: int) -> float:
        """Factor on the learning rate of a step (from 1)."""
        return min(1.0, step / self.steps)


class EarlyStopping(_Part):
    """Ends training when the metric has not improved for `patience` epochs in a row.

    A loss improves by falling, an accuracy by rising, more than `min_delta` beyond its best. The trained model has the
    weights of the last epoch; the checkpoint of the best epoch is kept as well.
    """

    metric: Literal["train_loss", "test_loss", "test_accuracy"] = "test_loss"
    patience: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    min_delta: Annotated[float, Field(ge=0)] = 0.0

    def sentence(self, epoch: int, epochs: int) -> str:
        """Describe a training that stopped early."""
        metric = self.metric.replace("_", " ")
        for_so_long = "1 epoch" if self.patience == 1 else f"{self.patience} epochs"
        return f"Stopped early at epoch {epoch} of {epochs}: the {metric} did not improve for {for_so_long}."


class Hyperparameters(_Part):
    """Hyper-parameters of one sub-model; the JSON object that a user uploads."""

    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    batch_size: Annotated[int, Field(ge=1, le=10_000_000)] = 32
    optimizer: Annotated[str, _named(OPTIMIZERS, choices.REFUSED_OPTIMIZERS, "optimizer")] = "sgd"
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    optimizer_args: Annotated[dict[str, Any], _arguments_of("optimizer", OPTIMIZERS)] = {}
    criterion: Annotated[str, _named(CRITERIA, choices.REFUSED_CRITERIA, "criterion")] = "cross_entropy"
    criterion_args: Annotated[dict[str, Any], _arguments_of("criterion", CRITERIA)] = {}
    lr_scheduler: LRSchedulerSpec | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of this sub-model; by default the run's seed."""
    drop_last: bool = False
    batch_split: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Parts of a batch that pass through the network one after another within one optimizer step. More parts need less
    memory. The gradient equals that of the whole batch up to rounding; batch normalisation sees the parts."""
    accumulation_steps: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Batches per optimizer step. The gradient is that of their mean loss, with equal weight per sample: k batches
    of n samples equal one batch of k * n with `batch_split` k, up to rounding. The last step of an epoch takes the
    remaining batches. All step counts are optimizer steps."""
    gradient_clipping: GradientClipping | None = None
    warm_up: WarmUp | None = None
    early_stopping: EarlyStopping | None = None
    techniques: list[str] = []

    @field_validator("early_stopping")
    @classmethod
    def _early_stopping(cls, asked: EarlyStopping | None, info: ValidationInfo) -> EarlyStopping | None:
        criterion = info.data.get("criterion", "")
        if asked is not None and asked.metric == "test_accuracy" and criterion in CRITERIA.keys() - CLASSIFICATION:
            message = "{criterion} has no classes and therefore no accuracy. Choose the metric test_loss."
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
        """Class index that the criterion ignores; torch's default is -100."""
        own = next((a for a in CRITERIA[self.criterion].arguments if a.name == IGNORE_INDEX), None)
        label: int | None = None if own is None else self.criterion_args.get(IGNORE_INDEX, own.default)
        return label

    @property
    def failing_after(self) -> tuple[str, str, int] | None:
        """Class, argument and step count of an LR scheduler that raises when stepped further; None for all others."""
        asked = self.lr_scheduler
        choice = None if asked is None else LR_SCHEDULERS[asked.name]
        if asked is None or choice is None or choice.afterwards != "fails" or choice.span not in asked.args:
            return None
        return choice.torch_class, choice.span, int(asked.args[choice.span])

    def steps_per_epoch(self, samples: int) -> int:
        """Optimizer steps per epoch of `samples`; `drop_last` decides on the last partial batch."""
        return -(-self.batches_per_epoch(samples) // self.accumulation_steps)

    def batches_per_epoch(self, samples: int) -> int:
        """Batches per epoch of `samples`; `drop_last` decides on the last partial batch."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def at_learning_rate(now: Hyperparameters, learning_rate: float) -> dict[str, Any]:
    """Return the entries that change with the learning rate, the LR scheduler's own rates in proportion."""
    asked = now.lr_scheduler
    if asked is None:
        return {"learning_rate": learning_rate}
    factor = learning_rate / now.learning_rate
    scaled = {name: asked.args[name] * factor for name in _RATES if name in asked.args}
    schedule = {**asked.model_dump(mode="json"), "args": asked.args | scaled}
    return {"learning_rate": learning_rate, "lr_scheduler": schedule}
