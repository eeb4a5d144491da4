"""Trains a few samples of a sub-model on the CPU and throws the result away, to find mistakes before the queue."""

import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.datasets import Dataset, to_model_input
from unifiednn_core.engine.step import build_criterion, build_lr_scheduler, build_optimizer, step_lr_scheduler
from unifiednn_core.preflight.trial import (
    Trial,
    Tried,
    batch_of_one,
    batch_sizes,
    check_batch_sizes,
    check_finite,
    check_input_shape,
    check_labels,
    check_statistics,
    check_values,
    dtype_name,
    found,
    part_sizes,
)
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, LR_SCHEDULERS
from unifiednn_core.spec.run import Hyperparameters

IMAGE_SCALE = 1 / 255
# Steps for which an LR scheduler is tried beforehand.
MOST_STEPS = 20_000
LARGEST_RATE = torch.finfo(torch.float32).max
# A weight that every optimizer takes.
_SHAPE = (1, 1)
# How far the inputs are moved to see whether something keeps the outputs where they are.
FAR = 1e4
TOLERANCE = 0.01
_OWNERS = {"optimizer_args": "optimizer", "criterion_args": "criterion", "lr_scheduler.args": "LR scheduler"}
_TORCH_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, ArithmeticError)


def dry_run(trial: Trial) -> Tried:
    """Run a training step of a few samples, the last partial batch and an evaluation; the default RNG stays as it was.

    Returns what was trained on the way. Raises `BadInput` with the first thing that goes wrong.
    """
    began_s = time.process_time()
    with torch.random.fork_rng(devices=[]):
        module = trial.definition.build()
        criterion, optimizer = _parts(trial, module)
        check_batch_sizes(trial)
        check_input_shape(trial, trial.train, "train_data")
        loss = _loss(trial, module, criterion, trial.train, range(trial.batch_size), "train_data")
        check_finite(trial, loss)
        _step(trial, loss, optimizer)
        # Some networks and criteria take one number of samples alone.
        hyper, samples = trial.spec.hyperparameters, trial.train.samples
        _check_sizes(trial, module.train(), criterion, trial.train, "train_data", part_sizes(hyper, samples))
        check_statistics(trial, module)
        _check_extreme_ids(trial, module, trial.train, "train_data")
        if trial.test is not None:
            check_input_shape(trial, trial.test, "test_data")
            sizes = batch_sizes(hyper, trial.test.samples, evaluated=True)
            _check_sizes(trial, module.eval(), criterion, trial.test, "test_data", sizes)
            _check_extreme_ids(trial, module, trial.test, "test_data")
        doubts = tuple(_doubts(trial, module.eval()))
        return Tried(module.train(), criterion, optimizer, doubts, time.process_time() - began_s)


def _parts(trial: Trial, module: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    hyper, field = trial.spec.hyperparameters, f"{trial.field}.hyperparameters"
    if not any(parameter.requires_grad for parameter in module.parameters()):
        message = "The network has no trainable weight."
        raise found("Nothing to train", f"{trial.field}.model", message, "Give a network whose weights can be trained.")
    with _values_of(f"{field}.criterion_args", hyper.criterion):
        criterion = build_criterion(hyper)
    with _values_of(f"{field}.optimizer_args", hyper.optimizer):
        optimizer = build_optimizer(module.parameters(), hyper)
    return criterion, optimizer


def _step(trial: Trial, loss: Tensor, optimizer: torch.optim.Optimizer) -> None:
    hyper, field = trial.spec.hyperparameters, f"{trial.field}.hyperparameters"
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    except _TORCH_ERRORS as error:
        _require_memory(trial, error)
        message = f"The gradient cannot be computed: {_first_line(error)}."
        remedy = "Check that the output depends on weights that can be trained."
        raise found("No gradient", f"{trial.field}.model", message, remedy) from None
    asked = hyper.lr_scheduler
    with _values_of(f"{field}.lr_scheduler.args", asked.name if asked else ""):
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
    with _values_of(f"{field}.optimizer_args", hyper.optimizer):
        optimizer.step()
    if asked is not None:
        with _values_of(f"{field}.lr_scheduler.args", asked.name):
            step_lr_scheduler(lr_scheduler, hyper, after=asked.per, loss=loss.item())
        late = late_failure(hyper, hyper.steps_per_epoch(trial.train.samples))
        if late is not None:
            message, remedy = f"{asked.name} {late}.", "Change its arguments, or train for fewer epochs."
            raise found("LR scheduler", f"{field}.lr_scheduler.args", message, remedy)


def late_failure(hyper: Hyperparameters, steps_per_epoch: int) -> str | None:
    """How the LR scheduler fails in the first `MOST_STEPS` of the training, as the end of a sentence, or None."""
    asked = hyper.lr_scheduler
    if asked is None or LR_SCHEDULERS[asked.name].measured:
        return None
    needed = hyper.epochs * (steps_per_epoch if asked.per == "step" else 1)
    optimizer = build_optimizer([nn.Parameter(torch.zeros(_SHAPE))], hyper)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lr_scheduler = build_lr_scheduler(optimizer, hyper)
        for done in range(min(needed, MOST_STEPS)):
            rate = float(optimizer.param_groups[0]["lr"])
            if not 0 <= rate <= LARGEST_RATE:
                return f"makes the learning rate {rate:g} after {done} of {needed} steps"
            try:
                if lr_scheduler is not None:
                    lr_scheduler.step()
            except (ArithmeticError, RuntimeError, ValueError) as error:
                return f"fails after {done + 1} of {needed} steps ({error})"
    return None


@contextmanager
def _values_of(field: str, name: str) -> Iterator[None]:
    """Turn torch's complaints about argument values into findings on `field`."""
    try:
        yield
    except _TORCH_ERRORS as error:
        raise _not_taken(field, name, error) from None


def _loss(trial: Trial, module: nn.Module, criterion: nn.Module, data: Dataset, batch: range, entry: str) -> Tensor:
    targets = data.targets[batch.start : batch.stop]
    outputs = _outputs(trial, module, data, batch, entry)
    hyper = trial.spec.hyperparameters
    if hyper.criterion in CLASSIFICATION:
        check_labels(trial, data, outputs, entry)
    else:
        check_values(trial, targets, outputs, entry)
    try:
        loss: Tensor = criterion(outputs, targets)
    except _TORCH_ERRORS as error:
        if _runs(build_criterion(hyper.model_copy(update={"criterion_args": {}})), outputs, targets):
            raise _not_taken(f"{trial.field}.hyperparameters.criterion_args", hyper.criterion, error) from None
        message = f"{hyper.criterion} does not take outputs {_shape(outputs)} with targets {_shape(targets)}: "
        message += f"{_first_line(error)}."
        remedy = "Choose another criterion, or store targets of the shape and type that it takes."
        raise found("Outputs and targets", f"{trial.field}.{entry}", message, remedy) from None
    return loss


def _require_memory(trial: Trial, error: Exception) -> None:
    if "can't allocate memory" in str(error):
        message = f"{trial.batch_size} samples at once take more memory than this machine has free."
        remedy = "Give smaller batches, or a smaller network."
        raise found("Too large", f"{trial.field}.model", message, remedy) from None


def _outputs(trial: Trial, module: nn.Module, data: Dataset, batch: range, entry: str) -> Tensor:
    raw, spec = data.inputs[batch.start : batch.stop], trial.spec
    inputs = to_model_input(raw, spec.scale, spec.mean, spec.std)
    try:
        outputs: object = module(inputs)
    except _TORCH_ERRORS as error:
        _require_memory(trial, error)
        if isinstance(error, TypeError) and "required positional argument" in str(error):
            message = f"The network takes several inputs; a data set holds one tensor ({_first_line(error)})."
            raise found("Several inputs", f"{trial.field}.model", message, "Let forward take one tensor.") from None
        if not inputs.is_floating_point() and _runs(module, inputs.float() * IMAGE_SCALE):
            message = f"The inputs are {dtype_name(inputs)}, but the network computes with floating point numbers."
            remedy = f'Set "scale", for images {IMAGE_SCALE:.17g} (1/255), or store the inputs as float32.'
            raise found("Integer inputs", f"{trial.field}.scale", message, remedy) from None
        if len(raw) == 1 and entry == "train_data" and _runs(module, torch.cat([inputs, inputs])):
            raise batch_of_one(trial, _first_line(error)) from None
        if inputs.dtype is not torch.float32 and inputs.is_floating_point() and _runs(module, inputs.float()):
            message = f"The inputs are {dtype_name(inputs)}, but the network computes with float32."
            raise found("Type of data", f"{trial.field}.{entry}", message, "Store the inputs as float32.") from None
        if inputs.dtype is not torch.float64 and inputs.is_floating_point() and _runs(module, inputs.double()):
            message = f"The network computes with float64, but the inputs are {dtype_name(inputs)}."
            raise found("Type of weights", f"{trial.field}.model", message, "Save the network as float32.") from None
        message = f"The network does not take a batch {_shape(inputs)}: {_first_line(error)}."
        remedy = "Give data of the shape that the network takes, or the network that fits the data."
        raise found("Inputs", f"{trial.field}.{entry}", message, remedy) from None
    if isinstance(outputs, tuple | list | dict):
        message = f"The network returns several outputs (a {type(outputs).__name__}); a criterion compares one tensor."
        raise found("Several outputs", f"{trial.field}.model", message, "Let forward return the scores alone.")
    if not isinstance(outputs, Tensor) or outputs.dim() == 0 or len(outputs) != len(raw):
        message = "The network must return one tensor with one row for each sample."
        raise found("Output", f"{trial.field}.model", message, "Let forward return the scores alone.")
    return outputs


@torch.no_grad()
def _check_sizes(
    trial: Trial, module: nn.Module, criterion: nn.Module, data: Dataset, entry: str, sizes: Iterable[int]
) -> None:
    for size in sorted({min(size, trial.batch_size) for size in sizes}, reverse=True):
        _loss(trial, module, criterion, data, range(size), entry)


@torch.no_grad()
def _doubts(trial: Trial, module: nn.Module) -> Iterator[Finding]:
    """Warnings on outputs that are not what the criterion takes them for, and on an export as for evaluation."""
    spec, criterion = trial.spec, trial.spec.hyperparameters.criterion
    wanted, message, remedy = CRITERIA[criterion].outputs, "", ""
    if wanted != "scores":
        inputs = to_model_input(trial.train.inputs[: trial.batch_size], spec.scale, spec.mean, spec.std)
        if wanted == "log_probabilities":
            if not bool(((module(inputs).float().exp().sum(1) - 1).abs() < TOLERANCE).all()):
                message = f"{criterion} takes log-probabilities; the outputs of the network are not."
                remedy = "End the network with log_softmax, or choose cross_entropy, which takes plain scores."
        elif inputs.is_floating_point():
            far = torch.cat([module(inputs * by) for by in (FAR, -FAR)])
            if not bool(((far >= 0) & (far <= 1)).all()):
                message = f"{criterion} fails outside 0 to 1, and these outputs can leave that range."
                remedy = "End the network with a sigmoid, or choose bce_with_logits, which takes plain scores."
    if message:
        place = f"{trial.field}.hyperparameters.criterion"
        yield Finding(severity="warning", title="Outputs", field=place, message=message, remedy=remedy)
    if off := trial.definition.switched_off:
        message = f"The file has {', '.join(off)} switched off, as for evaluation; in training they stay off."
        remedy = "Export it in training mode: torch.export.export(network.train(), ...), unless that is meant."
        title, place = "Exported in evaluation", f"{trial.field}.model"
        yield Finding(severity="warning", title=title, field=place, message=message, remedy=remedy)


def _check_extreme_ids(trial: Trial, module: nn.Module, data: Dataset, entry: str) -> None:
    """Try the samples with the smallest and the largest number where inputs stay integers.

    They are ids of an embedding then; an id out of range would end the whole process on a GPU.
    """
    spec = trial.spec
    if data.inputs.is_floating_point() or (spec.scale, spec.mean, spec.std) != (None, None, None):
        return
    rows = data.inputs.flatten(1) if data.inputs.dim() > 1 else data.inputs.unsqueeze(1)
    least, most = rows.amin(1), rows.amax(1)
    extremes = data.inputs[torch.stack([least.argmin(), most.argmax()])]
    try:
        with torch.no_grad():
            module.eval()(extremes)
    except _TORCH_ERRORS as error:
        message = f"The network does not take all numbers from {int(least.min())} to {int(most.max())} as input: "
        remedy = "Number the inputs from 0, and let the network have an entry for each."
        message += f"{_first_line(error)}."
        raise found("Inputs out of range", f"{trial.field}.{entry}", message, remedy) from None


def _runs(module: nn.Module, *inputs: Tensor) -> bool:
    try:
        module(*inputs)
    except _TORCH_ERRORS:
        return False
    return True


def _not_taken(field: str, name: str, error: Exception) -> BadInput:
    message = f"{name} does not take these values: {_first_line(error)}."
    remedy = f"Change them, or choose another {_OWNERS[field.rpartition('hyperparameters.')[2]]}."
    return found(field.rpartition(".")[2].replace("_", " ").capitalize(), field, message, remedy)


def _shape(tensor: Tensor) -> str:
    return f"{list(tensor.shape)} of {dtype_name(tensor)}"


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:300]
