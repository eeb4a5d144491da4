"""Trains a few samples of a sub-model on the CPU and throws the result away, to find mistakes before the queue."""

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from unifiednn_core.base.errors import BadInput, ContractBroken, Finding, Fix, first_line
from unifiednn_core.base.units import abbreviated
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset, dtype_name, in_blocks, targets_in_blocks
from unifiednn_core.data.preview import look_like_pixels
from unifiednn_core.data.values import BYTE, pixel_divisor
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.optimizers import (
    build_criterion,
    build_lr_scheduler,
    build_optimizer,
    optimizer_of,
    step_lr_scheduler,
)
from unifiednn_core.engine.step import TARGETS, Step
from unifiednn_core.preflight.extremes import Extremes
from unifiednn_core.preflight.trial import TORCH_ERRORS, Trial, Tried, batch_sizes, part_sizes
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, LR_SCHEDULES, NO_CRITERION
from unifiednn_core.spec.run import Hyperparameters
from unifiednn_core.techniques import build as techniques

# A network that needs more processor time for its outputs of the fewest samples is tried with no more.
SLOW_FORWARD_CPU_S = 1.0
# Steps for which an LR scheduler is tried beforehand.
MOST_STEPS = 20_000
LARGEST_RATE = torch.finfo(torch.float32).max
# A weight that every optimizer takes.
_SHAPE = (1, 1)
# Samples that show the shapes of a batch.
FEWEST = 1
# How far the inputs are moved to see whether something keeps the outputs in their range.
FAR = 1e4
TOLERANCE = 0.01
_NAMED = 8


def dry_run(trial: Trial) -> Tried:
    """Run a training step of a few samples, the last partial batch and an evaluation; the default RNG stays the same.

    Returns the trained network. Raises `BadInput` with the first mistake.
    """
    began_s = time.process_time()
    hyper = trial.spec.hyperparameters
    with torch.random.fork_rng(devices=[]):
        module = trial.definition.build()
        if not any(parameter.requires_grad for parameter in module.parameters()):
            remedy = "Give a network whose weights can be trained."
            raise trial.refusal("Nothing to train", "model", "The network has no trainable weight.", remedy)
        with _arguments(trial, "criterion_args", hyper.criterion):
            criterion = build_criterion(hyper, targets_in_blocks(trial.train))
        check_groups(trial, module)
        with _arguments(trial, "optimizer_args", hyper.optimizer):
            optimizer = build_optimizer(module.named_parameters(), hyper)
        _check_batch_sizes(trial)
        has_targets = trial.train.targets is not None
        step = training_step(trial.spec, trial.definition, tuple(trial.train.inputs), has_targets=has_targets)
        train = _Tryout(replace(trial, slow=True), step, module, criterion, trial.train, "train_data")
        trial = replace(trial, slow=train.is_slow())
        train = replace(train, trial=trial)
        loss = train.loss(trial.batch_size)
        if not bool(loss.isfinite()):  # and it stays so
            message = f"The {hyper.criterion} of the first batch is {loss.item():g}: the network cannot learn from it."
            remedy = "Check scale, mean, std and the weights of the model, and which outputs and targets it takes."
            raise trial.refusal("Loss not finite", "hyperparameters.criterion", message, remedy)
        _try_precision(trial, train)
        _step(trial, loss, optimizer)
        # Some networks and criteria take only one number of samples.
        train.check_sizes(part_sizes(hyper, trial.train.samples))
        if part_sizes(hyper, trial.train.samples)[-1] == 1 and any(bool(b.isnan().any()) for b in module.buffers()):
            raise _batch_of_one(trial, "its running statistics become NaN")  # exported graphs allow that
        train.check_extreme_ids()
        if trial.test is not None:
            test = _Tryout(trial, step, module.eval(), criterion, trial.test, "test_data")
            test.check_sizes(batch_sizes(hyper, trial.test.samples, evaluated=True))
            test.check_extreme_ids()
        doubts = tuple(_doubts(trial, step, module.eval()))
        cpu_s = time.process_time() - began_s
        own = techniques.built(hyper.techniques)
        return Tried(module.train(), step, criterion, optimizer, doubts, cpu_s / trial.batch_size, own)


def try_numbers(trial: Trial) -> None:
    """Check the labels and ids of all samples with one forward pass of few, for a network too slow for a step.

    Raises `BadInput`.
    """
    trial = replace(trial, slow=True)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        module, has_targets = trial.definition.build(), trial.train.targets is not None
        with _arguments(trial, "criterion_args", trial.spec.hyperparameters.criterion):
            criterion = build_criterion(trial.spec.hyperparameters, targets_in_blocks(trial.train))
        step = training_step(trial.spec, trial.definition, tuple(trial.train.inputs), has_targets=has_targets)
        for entry, data in (("train_data", trial.train), ("test_data", trial.test)):
            if data is not None:
                module.train(entry == "train_data")
                tryout = _Tryout(trial, step, module, criterion, data, entry)
                tryout.loss(min(trial.batch_size, data.samples))
                tryout.check_extreme_ids()


@contextmanager
def _arguments(trial: Trial, entry: str, name: str) -> Iterator[None]:
    """Turn torch's errors into a finding on `entry`, the arguments of `name`."""
    try:
        yield
    except TORCH_ERRORS as error:
        message = f"{name} does not take these values: {first_line(error)}."
        raise trial.refusal("Arguments", f"hyperparameters.{entry}", message, "Change or remove them.") from None


def _step(trial: Trial, loss: Tensor, optimizer: Optimizer) -> None:
    hyper = trial.spec.hyperparameters
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    except TORCH_ERRORS as error:
        _require_memory(trial, error)
        message = f"The gradient cannot be computed: {first_line(error)}."
        remedy = "Check that the output depends on weights that can be trained."
        raise trial.refusal("No gradient", "model", message, remedy) from None
    asked, entry = hyper.lr_scheduler, "lr_scheduler.args"
    name = "" if asked is None else asked.name
    with _arguments(trial, entry, name):
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
    with _arguments(trial, "optimizer_args", hyper.optimizer):
        optimizer.step()
    if asked is not None:
        with _arguments(trial, entry, name):
            step_lr_scheduler(lr_scheduler, hyper, after=asked.per, loss=loss.item())
        if late := _late_failure(hyper, hyper.steps_per_epoch(trial.train.samples)):
            remedy = "Change its arguments, or train for fewer epochs."
            raise trial.refusal("LR scheduler", f"hyperparameters.{entry}", f"{name} {late}.", remedy)


@torch.no_grad()
def _try_precision(trial: Trial, train: "_Tryout") -> None:
    """Raise `BadInput` if the network does not compute in the precision of the spec; tried as bfloat16, on the CPU."""
    precision = trial.spec.hyperparameters.precision
    if precision == "float32":
        return
    try:
        with torch.autocast("cpu", torch.bfloat16):
            train.loss(trial.batch_size)
    except (BadInput, *TORCH_ERRORS) as error:
        message = f"The network does not compute in {precision}: {first_line(error)}."
        remedy = "Set precision to float32."
        raise trial.refusal("Precision", "hyperparameters.precision", message, remedy) from None


def _late_failure(hyper: Hyperparameters, steps_per_epoch: int) -> str | None:
    """How the LR scheduler fails in the first `MOST_STEPS` of the training, as the end of a sentence, or None."""
    asked = hyper.lr_scheduler
    if asked is None or LR_SCHEDULES[asked.name].measured:
        return None
    needed = hyper.epochs * (steps_per_epoch if asked.per == "step" else 1)
    optimizer = optimizer_of([{"params": [nn.Parameter(torch.zeros(_SHAPE))]}], hyper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
        for done in range(min(needed, MOST_STEPS)):
            rate = float(optimizer.param_groups[0]["lr"])
            if not 0 <= rate <= LARGEST_RATE:
                return f"makes the learning rate {rate:g} after {done} of {needed} steps"
            try:
                step_lr_scheduler(lr_scheduler, hyper, after=asked.per)
            except (ArithmeticError, RuntimeError, ValueError) as error:
                return f"fails after {done + 1} of {needed} steps ({error})"
    return None


@dataclass(frozen=True, slots=True)
class _Tryout:
    """A network on one data set, which is the `entry` of its sub-model. Every method but `loss` leaves no gradients."""

    trial: Trial
    step: Step
    module: nn.Module
    criterion: nn.Module
    data: Dataset
    entry: str
    _right: set[int] = field(default_factory=set)
    """Numbers of classes that all targets are known to be among."""

    @torch.no_grad()
    def is_slow(self) -> bool:
        """Whether the network takes long for a batch; one that it does not take is told later."""
        began_s = time.process_time()
        with suppress(BadInput, *TORCH_ERRORS):
            self.step.forward(self.module, self._prepared(self.trial.batch_size))
        return time.process_time() - began_s > SLOW_FORWARD_CPU_S

    @torch.no_grad()
    def check_sizes(self, sizes: Iterable[int]) -> None:
        """Raise `BadInput` if a batch of one of these sizes fails."""
        for size in sorted({min(size, self.trial.batch_size) for size in sizes}, reverse=True):
            self.loss(size)

    def loss(self, size: int) -> Tensor:
        """The loss of the first samples; raises `BadInput`."""
        self._check_inputs()
        training, hyper = self.entry == "train_data", self.trial.spec.hyperparameters
        batch = self._prepared(size)
        outputs = self._outputs(batch)
        targets = batch.targets
        scores = self.step.scores(outputs)
        if hyper.criterion == NO_CRITERION:
            self._check_own_loss(scores, size)
            return self.step.loss(self.criterion, outputs, batch, training=training)
        if scores.dim() == 0 or len(scores) != size:
            message = "The network must return one tensor with one row for each sample."
            remedy = 'Let forward return the scores, or choose the criterion "none" if its output is the loss itself.'
            raise self.trial.refusal("Output", "model", message, remedy)
        if targets is None:
            message = f"{hyper.criterion} needs targets, and the data have none."
            remedy = 'Say where they come from: "targets": "inputs" or "next".'
            raise self.trial.refusal("No targets", self.entry, message, remedy)
        if hyper.criterion in CLASSIFICATION:
            for one in (scores, *(self.step.auxiliary_scores(outputs) if training else ())):
                self._check_labels(one, targets)
            self._check_class_weights(scores)
        else:
            self._check_values(targets, scores)
        try:
            return self.step.loss(self.criterion, outputs, batch, training=training)
        except TORCH_ERRORS as error:
            bare = hyper.model_copy(update={"criterion_args": {}, "class_weights": None})
            if _runs(build_criterion(bare), scores, targets):
                with _arguments(self.trial, "criterion_args", hyper.criterion):  # they are the mistake
                    raise
            message = f"{hyper.criterion} does not take outputs {_shape(scores)} with targets {_shape(targets)}: "
            message += f"{first_line(error)}."
            remedy = "Choose another criterion, or store targets of the shape and type that it takes."
            raise self.trial.refusal("Outputs and targets", self.entry, message, remedy) from None

    def check_extreme_ids(self) -> None:
        """Raise `BadInput` if the network does not take an id of the data, or one that transforms put in."""
        self._extremes().try_inputs(self.trial, self.module, self.entry)

    def _extremes(self) -> Extremes:
        return Extremes(self.step, self.data, self.entry == "train_data")

    def _check_own_loss(self, loss: Tensor, size: int) -> None:
        """Raise `BadInput` unless an output is a loss: of `size` samples, one for each or one for all."""
        if not loss.is_floating_point() or loss.numel() not in (1, size) or (loss.dim() and loss.numel() != len(loss)):
            message = "Without a criterion the output is the loss: one real number for each sample, or a single one; "
            message += f"this is {_shape(loss)}."
            remedy = "Choose a criterion, or let the network return its loss."
            raise self.trial.refusal("Output", "hyperparameters.criterion", message, remedy)

    def _check_class_weights(self, scores: Tensor) -> None:
        """Raise `BadInput` if balanced weights, one for each class of the targets, are not one for each output."""
        weight, asked = getattr(self.criterion, "weight", None), self.trial.spec.hyperparameters.class_weights
        if asked is None or weight is None or len(weight) == scores.shape[1]:
            return
        message = f"The training data have {len(weight)} classes, and so many weights, but the network scores "
        message += f"{scores.shape[1]} classes."
        remedy = 'Leave "class_weights" out, or give a network with one score for each class of the data.'
        raise self.trial.refusal("Weights of classes", "hyperparameters.class_weights", message, remedy)

    def _check_inputs(self) -> None:
        """Raise `BadInput` if an input is missing, or has another shape than the network takes."""
        missing = sorted(set(self.step.inputs) - {*self.data.inputs, TARGETS})
        if missing:
            message = f"The data have no input '{missing[0]}'; they have {', '.join(self.data.inputs)}."
            raise self.trial.refusal("Inputs", self.entry, message, "Store the same inputs in training and test data.")
        given = self._prepared(FEWEST).inputs
        for wanted, name in zip(self.trial.definition.inputs, self.step.inputs, strict=True):
            if name == TARGETS or wanted.shape is None:
                continue
            shape = given[name].shape[1:]
            fits = len(wanted.shape) == len(shape)
            if not fits or any(e not in (None, g) for e, g in zip(wanted.shape, shape, strict=True)):
                sizes = ["any" if size is None else size for size in wanted.shape]
                which = f" as '{wanted.name}'" if len(self.step.inputs) > 1 else ""
                message = f"The samples have the shape {list(shape)}; the network takes {sizes}{which}."
                remedy = "Give data of that shape, or a network that fits the data."
                raise self.trial.refusal("Shape of data", self.entry, message, remedy)

    def _prepared(self, size: int) -> Batch:
        batch = self.data.batch(slice(0, size))
        try:
            return self.step.prepare(batch, training=self.entry == "train_data")
        except BadInput as error:  # in a transform's own words
            [found] = error.findings
            raise self.trial.refusal(found.title, found.field, found.message, found.remedy) from None
        except TORCH_ERRORS as error:
            message = f"The inputs cannot be transformed: {first_line(error)}."
            remedy = "Check the transforms: which sizes and types of inputs they take."
            raise self.trial.refusal("Transforms", "transforms", message, remedy) from None

    def _outputs(self, batch: Batch) -> tuple[Tensor, ...]:
        try:
            outputs = self.step.forward(self.module, batch)
        except TORCH_ERRORS as error:
            _require_memory(self.trial, error)
            raise self._not_run(batch, error) from None
        named, other = (
            self.trial.definition.outputs,
            next((one for one in outputs if not isinstance(one, Tensor)), None),
        )
        if len(outputs) > len(named):
            message = f"The network returns several outputs ({len(outputs)}), which this format of file does not name."
            remedy = "Let forward return only the scores, or submit a .pt2 file, from `unifiednn pack`."
            raise self.trial.refusal("Several outputs", "model", message, remedy)
        if other is not None:
            message = f"The network returns a {type(other).__name__}; a criterion needs one tensor."
            raise self.trial.refusal("Output", "model", message, "Let forward return only the scores.")
        return outputs

    def _not_run(self, batch: Batch, error: Exception) -> BadInput:
        """Why the network does not take the inputs, by which other inputs it takes."""
        refusal, why = self.trial.refusal, first_line(error)
        if len(self.step.inputs) > 1:
            if isinstance(error, ContractBroken):
                return refusal("Operator refused", "model", str(error), error.remedy)
            pairs = zip(self.step.inputs, self.step.given(batch), strict=True)
            given = (f"'{name}' {_shape(one)}" for name, one in pairs if one is not None)
            message = f"The network does not take {', '.join(given)}: {why}."
            return refusal("Inputs", self.entry, message, "Give data of the shapes and types that the network takes.")
        inputs = next(iter(batch.inputs.values()))
        dtype = dtype_name(inputs.dtype)
        if isinstance(error, TypeError) and "required positional argument" in str(error):
            message = f"The network takes several inputs, which this format of file does not name ({why})."
            return refusal("Several inputs", "model", message, "Submit it as a .pt2 file, from `unifiednn pack`.")
        if not inputs.is_floating_point() and _runs(self.module, inputs.float() / BYTE):
            message = f"The inputs are {dtype}, but the network computes with floating point numbers."
            if inputs.dtype is not torch.uint8 and not look_like_pixels(inputs.float()):
                return refusal("Integer inputs", "scale", message, 'Store the inputs as float32, or set "scale".')
            [name] = self.data.inputs
            divisor = pixel_divisor(max(float(block.max()) for block in in_blocks(self.data, name)))
            remedy = f'Set "scale" to {1 / divisor:.17g} (1/{divisor:g}), or store the inputs as float32.'
            fix = Fix(label=f"Use 1/{divisor:g}", value=1 / divisor)
            return refusal("Integer inputs", "scale", message, remedy, fix)
        if len(inputs) == 1 and self.entry == "train_data" and _runs(self.module, torch.cat([inputs, inputs])):
            return _batch_of_one(self.trial, why)
        if inputs.dtype is not torch.float32 and inputs.is_floating_point() and _runs(self.module, inputs.float()):
            message = f"The inputs are {dtype}, but the network computes with float32."
            return refusal("Type of data", self.entry, message, "Store the inputs as float32.")
        if inputs.dtype is not torch.float64 and inputs.is_floating_point() and _runs(self.module, inputs.double()):
            message = f"The network computes with float64, but the inputs are {dtype}."
            return refusal("Type of weights", "model", message, "Save the network as float32.")
        if isinstance(error, ContractBroken):
            return refusal("Operator refused", "model", str(error), error.remedy)
        message = f"The network does not take a batch {_shape(inputs)}: {why}."
        remedy = "Give data of the shape that the network takes, or a network that fits the data."
        return refusal("Inputs", self.entry, message, remedy)

    def _check_labels(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise `BadInput` if targets are not among the classes that the outputs score, [batch, classes, ...]."""
        refusal, hyper = self.trial.refusal, self.trial.spec.hyperparameters
        if targets.is_floating_point():
            message = f"{hyper.criterion} needs class numbers, but the targets are {dtype_name(targets.dtype)}."
            remedy = "Store class numbers as integers, or choose another criterion."
            raise refusal("Targets", self.entry, message, remedy)
        if outputs.dim() < 2:
            message = f"{hyper.criterion} needs one score for each class, but a sample's output is a single number."
            raise refusal("Outputs", "model", message, "Let the network return [batch, classes].")
        if targets.shape[1:] != outputs.shape[2:]:
            places = ["batch", *outputs.shape[2:]]
            message = f"{hyper.criterion} takes outputs {['batch', 'classes', *outputs.shape[2:]]} with class numbers "
            message += f"{places}; these are {['batch', *targets.shape[1:]]}."
            remedy = "Store one class number for each, not one-hot rows."
            if outputs.dim() > 2 and targets.shape[1:] == outputs.shape[1:-1]:
                remedy = 'Set "classes" to "last": the network returns the scores of classes in the last dimension.'
            raise refusal("Targets", self.entry, message.replace("'", ""), remedy)
        classes, outside, such = outputs.shape[1], 0, 0
        for block in self._extremes().labels(targets) if classes not in self._right else [targets]:
            wrong = block[((block < 0) | (block >= classes)) & (block != hyper.ignored_label)]
            outside, such = outside + len(wrong), such if outside or not len(wrong) else int(wrong[0])
        self._right.add(classes)
        if outside:
            message = f"The network has {classes} classes (0 to {classes - 1}), but {outside} targets are outside, "
            message += f"such as {such}."
            remedy = "Number the classes from 0, or use a larger network."
            raise refusal("Labels outside the classes", self.entry, message, remedy)

    def _check_values(self, targets: Tensor, outputs: Tensor) -> None:
        """Raise `BadInput` if targets differ from outputs in shape: torch would stretch them without an error."""
        refusal, criterion = self.trial.refusal, self.trial.spec.hyperparameters.criterion
        if targets.shape != outputs.shape:
            shapes = f"{list(outputs.shape)} and {list(targets.shape)}"
            message = f"{criterion} compares outputs with targets one by one, but their shapes are {shapes}."
            remedy = "Give targets of the shape of the outputs, or choose another criterion."
            raise refusal("Outputs and targets", self.entry, message, remedy)
        if CRITERIA[criterion].targets == "lists":
            classes = outputs.shape[-1]
            blocks = () if targets.is_floating_point() else self._extremes().labels(targets)
            if targets.is_floating_point() or not all(bool(((t >= -1) & (t < classes)).all()) for t in blocks):
                message = f"{criterion} takes lists of class numbers from 0 to {classes - 1}, filled up with -1."
                remedy = "Store such lists, or 0 and 1 for multi_label_soft_margin."
                raise refusal("Targets", self.entry, message, remedy)
        elif not targets.is_floating_point():
            message = f"{criterion} needs targets that are real numbers, but they are {dtype_name(targets.dtype)}."
            remedy = "Store the targets as float32, or choose another criterion."
            raise refusal("Targets", self.entry, message, remedy)


@torch.no_grad()
def _doubts(trial: Trial, step: Step, module: nn.Module) -> Iterator[Finding]:
    """Warnings on outputs that do not suit the criterion, and on a network exported for evaluation."""
    criterion = trial.spec.hyperparameters.criterion
    wanted, message, remedy = CRITERIA[criterion].outputs, "", ""
    if wanted != "scores":
        batch = step.prepare(trial.train.batch(slice(0, trial.batch_size)), training=False)
        if wanted == "log_probabilities":
            if not bool(((_scores(step, module, batch).float().exp().sum(1) - 1).abs() < TOLERANCE).all()):
                message = f"{criterion} takes log-probabilities; the outputs of the network are not."
                remedy = "End the network with log_softmax, or choose cross_entropy, which takes plain scores."
        elif all(one.is_floating_point() for one in batch.inputs.values()):
            moved = ({name: one * by for name, one in batch.inputs.items()} for by in (FAR, -FAR))
            far = torch.cat([_scores(step, module, replace(batch, inputs=inputs)) for inputs in moved])
            if not bool(((far >= 0) & (far <= 1)).all()):
                message = f"{criterion} fails outside 0 to 1, and these outputs can leave that range."
                remedy = "End the network with a sigmoid, or choose bce_with_logits, which takes plain scores."
    if message:
        yield trial.warning("Outputs", "hyperparameters.criterion", message, remedy)
    if off := trial.definition.switched_off:
        message = f"The file has {', '.join(off)} switched off, as for evaluation; in training they stay off."
        remedy = "Export it in training mode: torch.export.export(network.train(), ...), unless you want that."
        yield trial.warning("Exported in evaluation", "model", message, remedy)


def _scores(step: Step, module: nn.Module, batch: Batch) -> Tensor:
    return step.scores(step.forward(module, batch))


def _check_batch_sizes(trial: Trial) -> None:
    """Raise `BadInput` if the smallest batch of training or evaluation is too small for the network."""
    hyper, least = trial.spec.hyperparameters, trial.definition.min_batch
    message = f"The network takes at least {least} samples at once; the "
    in_training = part_sizes(hyper, trial.train.samples)[-1]
    if in_training < least:
        message += f"smallest batch of an epoch has {in_training}."
        raise _small_batch(trial, "Batch too small", message, in_training)
    if trial.test is not None and (in_testing := batch_sizes(hyper, trial.test.samples, evaluated=True)[-1]) < least:
        message += f"last batch of a test has {in_testing}."
        raise trial.refusal("Batch too small", "test_data", message, "Choose another batch size.")


def _batch_of_one(trial: Trial, reason: str) -> BadInput:
    message = f"An epoch has a batch of one sample, which the network does not take: {reason}."
    return _small_batch(trial, "Batch of one", message, 1)


def _small_batch(trial: Trial, title: str, message: str, smallest: int) -> BadInput:
    hyper, samples = trial.spec.hyperparameters, trial.train.samples
    last = batch_sizes(hyper, samples)[-1]
    if samples == smallest:
        remedy = "Give more samples."
    elif hyper.batch_size == smallest:
        remedy = "Choose a larger batch size."
    elif last > smallest:
        remedy = 'Choose fewer parts, or set "drop_last" to true if only the last batch is too small.'
    else:
        remedy = 'Set "drop_last" to true, or choose another batch size.'
    cut_by = "batch_split" if hyper.nodes is None else "techniques"
    entry = cut_by if len(hyper.shares) > 1 and last > 1 else "batch_size"
    return trial.refusal(title, f"hyperparameters.{entry}", message, remedy)


def _require_memory(trial: Trial, error: Exception) -> None:
    if "can't allocate memory" in str(error):
        message = f"{trial.batch_size} samples at once take more memory than this machine has free."
        raise trial.refusal("Too large", "model", message, "Give smaller batches, or a smaller network.") from None


def _runs(module: nn.Module, *inputs: Tensor) -> bool:
    try:
        module(*inputs)
    except TORCH_ERRORS:
        return False
    return True


def _shape(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {dtype_name(tensor.dtype)}"


def check_groups(trial: Trial, module: nn.Module) -> None:
    """Raise `BadInput` for the first parameter group that does not fit the network."""
    hyper, names = trial.spec.hyperparameters, [name for name, _ in module.named_parameters()]
    belong = [hyper.group_of(name) for name in names]
    for place, group in enumerate(hyper.parameter_groups):
        entry = f"hyperparameters.parameter_groups.{place}"
        if place not in belong:
            patterns = ", ".join(f"'{pattern}'" for pattern in group.names)
            message = f"No parameter fits {patterns}. The network has {abbreviated(names, _NAMED)}."
            remedy = "Give a pattern that fits some of them: * stands for any text."
            if taken := [name for name in names if group.takes(name)]:
                message = f"Earlier groups have all parameters that fit {patterns}: {abbreviated(taken, _NAMED)}."
                remedy = "Put this group before them: the first that fits a name counts."
            raise trial.refusal("Parameter group", f"{entry}.names", message, remedy)
        try:  # torch compares arguments with one another only where they are those of the whole optimizer
            args = hyper.optimizer_args | group.optimizer_args
            optimizer_of(
                [{"params": [nn.Parameter(torch.zeros(1, 1))]}], hyper.model_copy(update={"optimizer_args": args})
            )
        except (RuntimeError, ValueError, TypeError) as error:
            message = f"{hyper.optimizer} does not take these values together: {error}."
            raise trial.refusal("Arguments", entry, message, "Change or remove them.") from None
    trained = {
        name
        for (name, parameter), place in zip(module.named_parameters(), belong, strict=True)
        if parameter.requires_grad and (place is None or not hyper.parameter_groups[place].frozen)
    }
    if not trained:
        remedy = "Leave some of its weights to be trained."
        message = "The parameter groups freeze every weight of the network."
        raise trial.refusal("Nothing to train", "hyperparameters.parameter_groups", message, remedy)
