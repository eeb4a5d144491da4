"""Trains one batch of a sub-model on the CPU and throws it away, so that mistakes are found before the queue."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from unifiednn_core.choices import CLASSIFICATION, CRITERIA
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.intake.batch_sizes import batch_of_one, batch_sizes, check_batch_sizes, check_statistics, part_sizes
from unifiednn_core.intake.datasets import Dataset, to_model_input
from unifiednn_core.intake.rehearsal import late_failure
from unifiednn_core.intake.trial import (
    Trial,
    Tried,
    check_finite,
    check_input_shape,
    check_labels,
    check_values,
    dtype_name,
    found,
)
from unifiednn_core.spec import Hyperparameters
from unifiednn_core.training_parts import build_criterion, build_lr_scheduler, build_optimizer, step_lr_scheduler

IMAGE_SCALE = 1 / 255
# How far the inputs are moved to see whether something keeps the outputs where they are.
FAR = 1e4
TOLERANCE = 0.01
_OWNERS = {"optimizer_args": "optimizer", "criterion_args": "criterion", "lr_scheduler.args": "LR scheduler"}
_TORCH_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, ArithmeticError)


def dry_run(trial: Trial) -> Tried:
    """Run a training step, the last partial batch and an evaluation; the default RNG is left as it was.

    Returns what was trained on the way. Raises `BadInput` with the first thing that goes wrong.
    """
    with torch.random.fork_rng(devices=[]):
        module = trial.definition.build()
        criterion, optimizer = _parts(trial, module)
        check_batch_sizes(trial)
        check_input_shape(trial, trial.train, "train_data")
        loss = _loss(trial, module, criterion, trial.train, range(trial.batch_size), "train_data")
        check_finite(trial, loss)
        _step(trial, loss, optimizer)
        _check_other_sizes(trial, module.train(), criterion)
        _check_extreme_ids(trial, module, trial.train, "train_data")
        if trial.test is not None:
            _check_test(trial, module, criterion, trial.test)
        return Tried(module.train(), criterion, optimizer, (*_doubts(trial, module), *_frozen(trial)))


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
    if _criterion(trial) in CLASSIFICATION:
        check_labels(trial, data, outputs, entry)
    else:
        check_values(trial, targets, outputs, entry)
    try:
        loss: Tensor = criterion(outputs, targets)
    except _TORCH_ERRORS as error:
        if _takes(build_criterion(_without_arguments(trial)), outputs, targets):
            raise _not_taken(f"{trial.field}.hyperparameters.criterion_args", _criterion(trial), error) from None
        message = (
            f"{_criterion(trial)} does not take outputs {_shape(outputs)} with targets "
            f"{_shape(targets)}: {_first_line(error)}."
        )
        remedy = "Choose another criterion, or store targets of the shape and type that it takes."
        raise found("Outputs and targets", f"{trial.field}.{entry}", message, remedy) from None
    return loss


def _require_memory(trial: Trial, error: Exception) -> None:
    if "can't allocate memory" in str(error):
        message = f"A batch of {trial.batch_size} takes more memory than this machine has free."
        raise found(
            "Too large", f"{trial.field}.model", message, "Give smaller batches, or a smaller network."
        ) from None


def _outputs(trial: Trial, module: nn.Module, data: Dataset, batch: range, entry: str) -> Tensor:
    raw, spec = data.inputs[batch.start : batch.stop], trial.spec
    inputs = to_model_input(raw, spec.scale, spec.mean, spec.std)
    try:
        outputs: object = module(inputs)
    except _TORCH_ERRORS as error:
        _require_memory(trial, error)
        if isinstance(error, TypeError) and "required positional argument" in str(error):
            message = f"The network takes several inputs; a data set has one tensor of them ({_first_line(error)})."
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


def _check_other_sizes(trial: Trial, module: nn.Module, criterion: nn.Module) -> None:
    """Run as many samples as each part of a batch has: some networks and criteria take one number of them alone."""
    for size in part_sizes(trial.spec.hyperparameters, trial.train.samples):
        with torch.no_grad():
            _loss(trial, module, criterion, trial.train, range(min(size, trial.batch_size)), "train_data")
    check_statistics(trial, module)


def _check_test(trial: Trial, module: nn.Module, criterion: nn.Module, test: Dataset) -> None:
    check_input_shape(trial, test, "test_data")
    for size in batch_sizes(trial.spec.hyperparameters, test.samples, evaluated=True):
        with torch.no_grad():
            _loss(trial, module.eval(), criterion, test, range(min(size, trial.batch_size)), "test_data")
    _check_extreme_ids(trial, module, test, "test_data")


def _doubts(trial: Trial, module: nn.Module) -> tuple[Finding, ...]:
    """Warnings on outputs that are not what the criterion takes them for."""
    wanted, place = CRITERIA[_criterion(trial)].outputs, f"{trial.field}.hyperparameters.criterion"
    if wanted == "scores":
        return ()
    raw, spec = trial.train.inputs[: trial.batch_size], trial.spec
    inputs = to_model_input(raw, spec.scale, spec.mean, spec.std)
    with torch.no_grad():
        if wanted == "log_probabilities":
            outputs = module.eval()(inputs).float()
            sound = bool(((outputs.exp().sum(1) - 1).abs() < TOLERANCE).all())
            message = f"{spec.hyperparameters.criterion} takes log-probabilities; the outputs of the network are none."
            remedy = "End the network with log_softmax, or choose cross_entropy, which takes plain scores."
        else:
            far = [module.eval()(inputs * by) for by in (FAR, -FAR)] if inputs.is_floating_point() else []
            sound = all(bool(((outputs >= 0) & (outputs <= 1)).all()) for outputs in far)
            message = f"{spec.hyperparameters.criterion} fails outside 0 to 1, where nothing keeps these outputs."
            remedy = "End the network with a sigmoid, or choose bce_with_logits, which takes plain scores."
    return () if sound else (Finding(severity="warning", title="Outputs", field=place, message=message, remedy=remedy),)


def _frozen(trial: Trial) -> tuple[Finding, ...]:
    """A warning where a network was exported as for evaluation."""
    off = trial.definition.switched_off
    if not off:
        return ()
    message = f"The file has {', '.join(off)} switched off, as for evaluation; in training they stay off."
    remedy = "Export it in training mode: torch.export.export(network.train(), ...), unless that is meant."
    place = f"{trial.field}.model"
    return (Finding(severity="warning", title="Exported in evaluation", field=place, message=message, remedy=remedy),)


def _check_extreme_ids(trial: Trial, module: nn.Module, data: Dataset, entry: str) -> None:
    """Try the samples with the smallest and the largest number where inputs stay integers.

    They are ids of an embedding then; one that it does not have would end the process of everybody on a GPU.
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
        raise found(
            "Inputs out of range", f"{trial.field}.{entry}", message + _first_line(error) + ".", remedy
        ) from None


def _criterion(trial: Trial) -> str:
    return trial.spec.hyperparameters.criterion


def _without_arguments(trial: Trial) -> Hyperparameters:
    return trial.spec.hyperparameters.model_copy(update={"criterion_args": {}})


def _takes(criterion: nn.Module, outputs: Tensor, targets: Tensor) -> bool:
    try:
        criterion(outputs, targets)
    except _TORCH_ERRORS:
        return False
    return True


def _runs(module: nn.Module, inputs: Tensor) -> bool:
    try:
        module(inputs)
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
