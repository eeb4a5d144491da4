"""Hyper-parameters of one sub-model: the file that a user uploads."""

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from unifiednn_core.spec import choices
from unifiednn_core.spec.choice import Choice, checked_arguments, known
from unifiednn_core.spec.choices import (
    CLASSIFICATION,
    CRITERIA,
    IGNORE_INDEX,
    LR_SCHEDULES,
    LR_STAGES,
    OPTIMIZERS,
    SEQUENCE,
)
from unifiednn_core.spec.techniques import AnyTechnique, VirtualNodes, distinct

# Arguments of LR schedulers that are learning rates themselves.
_RATES = ("max_lr", "base_lr", "min_lr", "eta_min", "lr_end")


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


class LRStage(_Part):
    """One LR scheduler of a sequence, with torch's arguments."""

    name: Annotated[str, _named(LR_STAGES, choices.REFUSED_LR_STAGES, "LR scheduler for a sequence")]
    args: Annotated[dict[str, Any], _arguments_of("name", LR_STAGES), Field(validate_default=True)] = {}


class LRSchedulerSpec(_Part):
    """LR scheduler with torch's arguments; stepped once per epoch unless `per` is "step".

    `reduce_on_plateau` gets the test loss after each epoch, or the training loss if there is no test data. A `sequence`
    has no arguments of its own, but the entries `of` and `milestones`.
    """

    name: Annotated[str, _named(LR_SCHEDULES, choices.REFUSED_LR_SCHEDULERS, "LR scheduler")]
    args: Annotated[dict[str, Any], _arguments_of("name", LR_SCHEDULES), Field(validate_default=True)] = {}
    per: Literal["epoch", "step"] = "epoch"
    of: list[LRStage] = []
    """LR schedulers of a sequence, each with `name` and `args`; the first begins."""
    milestones: list[Annotated[int, Field(ge=1, le=1_000_000_000)]] = []
    """Epochs (or steps, as `per` says) after which the next one of a sequence begins: one less than there are."""

    @field_validator("per")
    @classmethod
    def _per(cls, per: str, info: ValidationInfo) -> str:
        choice = LR_SCHEDULES.get(info.data.get("name", ""))
        if choice is not None and choice.measured and per == "step":
            message = "{torch_class} uses the loss of an epoch and cannot step after each batch. Set it to 'epoch'."
            raise PydanticCustomError("unknown_name", message, {"torch_class": choice.torch_class})
        return per

    @model_validator(mode="after")
    def _sequence(self) -> Self:
        wrong, entry = "", "milestones"
        if self.name != SEQUENCE and (self.of or self.milestones):
            entry = "of" if self.of else entry
            wrong = f"Only the LR scheduler 'sequence' has the entry '{entry}'. Remove it, or set the name to sequence."
        elif self.name == SEQUENCE and len(self.of) < 2:
            entry, wrong = (
                "of",
                'A sequence has two LR schedulers or more. Give a list such as [{"name": "linear"}, ...].',
            )
        elif self.name == SEQUENCE and len(self.milestones) != len(self.of) - 1:
            wrong = f"{len(self.of)} LR schedulers have {len(self.of) - 1} milestones between them, "
            wrong += f"not {len(self.milestones)}. Say for each but the first when it begins."
        elif any(earlier >= later for earlier, later in pairwise(self.milestones)):
            wrong = f"The milestones {self.milestones} do not rise. Put them in order, each once."
        if wrong:
            raise PydanticCustomError("unknown_name", "{wrong}", {"wrong": wrong, "argument": entry})
        return self

    @property
    def stages(self) -> list[tuple["LRStage | LRSchedulerSpec", int, int | None]]:
        """Each LR scheduler with the place where it begins and ends; None for the last. Only a sequence has several."""
        if self.name != SEQUENCE:
            return [(self, 0, None)]
        return list(zip(self.of, [0, *self.milestones], [*self.milestones, None], strict=True))


class ParameterGroup(_Part):
    """Parameters of the network by name, with a learning rate and optimizer arguments of their own.

    Everything besides the entries below is an argument of the optimizer, such as `weight_decay`. What a group does not
    say it takes from the sub-model. A parameter belongs to the first group that names it; those that no group names
    train as the sub-model says. "No decay for biases and norms" is {"names": ["*.bias", "*norm*"], "weight_decay": 0}.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False, strict=True)

    names: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1),
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ]
    """Pattern or patterns of names, such as "backbone.*": `*` stands for any text, `?` for one character."""
    learning_rate: Annotated[float, Field(gt=0)] | None = None
    frozen: bool = False
    """Whether these parameters keep their values: they get no gradient. Running statistics go on."""

    @property
    def optimizer_args(self) -> dict[str, Any]:
        """Arguments of the optimizer that are its own."""
        return dict(self.model_extra or {})

    def takes(self, name: str) -> bool:
        """Whether a parameter has such a name."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)


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


class Averaging(_Part):
    """Exponential moving average (EMA) of the weights, updated after each step.

    The first step copies the weights; each later one gives the average `decay` of itself and the rest of the weights.
    Buffers, such as running statistics, are copied. Evaluation and the trained model use the averages; training and
    "weights" of a checkpoint use the weights themselves.
    """

    decay: Annotated[float, Field(gt=0, lt=1)] = 0.999


class Sampling(_Part):
    """How an epoch draws its samples, instead of each once in random order.

    `balanced` draws with replacement, each class equally often (as many draws as there are samples). `by_length` draws
    each sample once and sorts by length within windows of some batches, so that a batch has samples of similar length.
    """

    name: Literal["balanced", "by_length"]
    pad: int = 0
    """Of `by_length`: the id that fills up short samples; a sample ends at its last other id."""
    window: Annotated[int, Field(ge=1, le=1_000_000)] = 50
    """Of `by_length`: batches that are sorted together. More make batches more even, and less random."""
    input: Annotated[str, Field(min_length=1)] | None = None
    """Of `by_length`: the input of the data whose length counts; by default the first."""

    @model_validator(mode="after")
    def _own_entries(self) -> Self:
        others = [
            name for name in ("pad", "window", "input") if getattr(self, name) != type(self).model_fields[name].default
        ]
        if self.name == "balanced" and others:
            context = {"argument": others[0]}
            raise PydanticCustomError("unknown_name", "Only by_length has '{argument}'. Leave it out.", context)
        return self


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
    """A name of the table of optimizers, or torch's."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    optimizer_args: Annotated[dict[str, Any], _arguments_of("optimizer", OPTIMIZERS)] = {}
    """Arguments of torch's class, but for the learning rate."""
    parameter_groups: list[ParameterGroup] = []
    """Parameters that train in another way, or not at all; the first group whose pattern fits a name counts."""
    criterion: Annotated[str, _named(CRITERIA, choices.REFUSED_CRITERIA, "criterion")] = "cross_entropy"
    """A name of the table of criteria, or torch's."""
    criterion_args: Annotated[dict[str, Any], _arguments_of("criterion", CRITERIA)] = {}
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Type in which layers such as convolutions and products compute, by torch's autocast; only under the profile
    `fast`. Weights and losses stay float32. float16 is for GPUs, where its loss is scaled."""
    class_weights: Literal["balanced"] | None = None
    """`balanced`: the criterion weights each class by labels / (classes * labels of the class) of the training data."""
    sampler: Sampling | None = None
    lr_scheduler: LRSchedulerSpec | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of this sub-model; by default the run's seed."""
    drop_last: bool = False
    """Whether the last, smaller batch of an epoch is left out."""
    batch_split: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Parts of a batch that pass through the network one after another within one optimizer step. More parts need less
    memory. The gradient equals that of the whole batch up to rounding; batch normalisation sees the parts."""
    accumulation_steps: Annotated[int, Field(ge=1, le=65_536)] = 1
    """Batches per optimizer step. The gradient is that of their mean loss, with equal weight per sample: k batches
    of n samples equal one batch of k * n with `batch_split` k, up to rounding. The last step of an epoch takes the
    remaining batches. All step counts are optimizer steps."""
    gradient_clipping: GradientClipping | None = None
    warm_up: WarmUp | None = None
    ema: Averaging | None = None
    early_stopping: EarlyStopping | None = None
    techniques: list[AnyTechnique] = []
    """Ways to train it in less memory; each at most once. They apply in this order."""

    @field_validator("parameter_groups")
    @classmethod
    def _parameter_groups(cls, asked: list[ParameterGroup], info: ValidationInfo) -> list[ParameterGroup]:
        return [_checked_group(group, place, info.data.get("optimizer", "")) for place, group in enumerate(asked)]

    @field_validator("class_weights")
    @classmethod
    def _class_weights(cls, asked: str | None, info: ValidationInfo) -> str | None:
        criterion, given = info.data.get("criterion", ""), info.data.get("criterion_args", {})
        if asked is not None and criterion in CRITERIA.keys() - CLASSIFICATION:
            message = "{criterion} has no classes. Leave class_weights out, or choose cross_entropy."
            raise PydanticCustomError("unknown_name", message, {"criterion": criterion})
        if asked is not None and "weight" in given:
            message = "The criterion has weights already. Leave out class_weights, or criterion_args.weight."
            raise PydanticCustomError("unknown_name", message, {})
        return asked

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
    def _techniques(cls, asked: list[AnyTechnique], info: ValidationInfo) -> list[AnyTechnique]:
        distinct(asked)
        nodes = next((one for one in asked if isinstance(one, VirtualNodes)), None)
        if nodes is not None and info.data.get("batch_split", 1) > 1:
            message = "Virtual nodes and batch_split both cut a batch. Set batch_split to 1."
            raise PydanticCustomError("unknown_name", message, {})
        if nodes is not None and sum(nodes.proportions) > (size := info.data.get("batch_size", math.inf)):
            message = "The shares of virtual nodes add up to {sum}; a batch has {size} samples. Give at most {size}."
            raise PydanticCustomError("unknown_name", message, {"sum": sum(nodes.proportions), "size": size})
        return asked

    @property
    def nodes(self) -> VirtualNodes | None:
        """Virtual nodes, if it has them."""
        return next((one for one in self.techniques if isinstance(one, VirtualNodes)), None)

    @property
    def in_one_part(self) -> bool:
        """Whether a step is one batch, computed as a whole."""
        return self.nodes is None and sum(self.shares) * self.accumulation_steps == 1

    @property
    def shares(self) -> tuple[int, ...]:
        """Shares of the parts into which a batch is cut, by virtual nodes or as `batch_split`."""
        return (1,) * self.batch_split if self.nodes is None else self.nodes.proportions

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
        choice = None if asked is None else LR_SCHEDULES[asked.name]
        if asked is None or choice is None or choice.afterwards != "fails" or choice.span not in asked.args:
            return None
        return choice.torch_class, choice.span, int(asked.args[choice.span])

    def group_of(self, name: str) -> int | None:
        """Place of the parameter group that a parameter of this name belongs to; None if it is in none."""
        return next((place for place, group in enumerate(self.parameter_groups) if group.takes(name)), None)

    def steps_per_epoch(self, samples: int) -> int:
        """Optimizer steps per epoch of `samples`; `drop_last` decides on the last partial batch."""
        return -(-self.batches_per_epoch(samples) // self.accumulation_steps)

    def batches_per_epoch(self, samples: int) -> int:
        """Batches per epoch of `samples`; `drop_last` decides on the last partial batch."""
        return samples // self.batch_size if self.drop_last else -(-samples // self.batch_size)


def _checked_group(group: ParameterGroup, place: int, optimizer: str) -> ParameterGroup:
    """Return a group whose arguments are as torch expects them; raises a validation error that names the entry."""
    given = group.optimizer_args
    said = [*(["learning_rate"] if group.learning_rate is not None else []), *given]
    if group.frozen and said:
        context = {"name": said[0], "argument": f"{place}.{said[0]}"}
        raise PydanticCustomError("unknown_name", "Frozen parameters do not use {name}. Leave it out.", context)
    try:
        return group.model_copy(update=checked_arguments(given, OPTIMIZERS.get(optimizer)))
    except PydanticCustomError as error:
        context = dict(error.context or {})
        context["argument"] = f"{place}.{context.get('argument', '')}".rstrip(".")
        raise PydanticCustomError("unknown_name", error.message_template, context) from None


def with_nodes(now: Hyperparameters, **changes: Any) -> dict[str, Any]:
    """Return the hyper-parameters with other virtual nodes, as a document that may be invalid."""
    changed = [
        one.model_dump(mode="json") | (changes if isinstance(one, VirtualNodes) else {}) for one in now.techniques
    ]
    return now.model_dump(mode="json") | {"techniques": changed}


def at_learning_rate(now: Hyperparameters, learning_rate: float) -> dict[str, Any]:
    """Return the entries that change with the learning rate, all other rates in proportion."""
    factor, changed = learning_rate / now.learning_rate, dict[str, Any]({"learning_rate": learning_rate})
    if now.parameter_groups:
        changed["parameter_groups"] = [
            {**group.model_dump(mode="json"), "learning_rate": _scaled(group.learning_rate, factor)}
            for group in now.parameter_groups
        ]
    if now.lr_scheduler is not None:
        schedule = now.lr_scheduler.model_dump(mode="json")
        for stage in (schedule, *schedule["of"]):
            defaults = {argument.name: argument.default for argument in LR_SCHEDULES[stage["name"]].arguments}
            rates = {name: stage["args"].get(name, defaults[name]) for name in _RATES if name in defaults}
            stage["args"] |= {name: rate * factor for name, rate in rates.items() if rate}
        changed["lr_scheduler"] = schedule
    return changed


def _scaled(rate: float | None, factor: float) -> float | None:
    return None if rate is None else rate * factor
