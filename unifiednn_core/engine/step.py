"""The parts of a step: optimizer, criterion and LR scheduler, the update at its end, and its right answers."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, LR_SCHEDULERS, OPTIMIZERS
from unifiednn_core.spec.run import Hyperparameters


def build_optimizer(parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters) -> Optimizer:
    """Build the optimizer; raises what torch raises for values that it refuses."""
    optimizer: Callable[..., Optimizer] = getattr(torch.optim, OPTIMIZERS[hyperparameters.optimizer].torch_class)
    return optimizer(parameters, lr=hyperparameters.learning_rate, **hyperparameters.optimizer_args)


def build_criterion(hyperparameters: Hyperparameters) -> nn.Module:
    """Build the criterion, with lists as tensors; raises what torch raises for values that it refuses.

    Class weights and the like are its buffers, so it has to follow the network to its device.
    """
    criterion = getattr(nn, CRITERIA[hyperparameters.criterion].torch_class)
    given = {
        name: torch.tensor(value, dtype=torch.float32) if isinstance(value, list) else value
        for name, value in hyperparameters.criterion_args.items()
    }
    built: nn.Module = criterion(**given)
    if isinstance(built, nn.BCELoss):
        built.register_forward_pre_hook(_require_probabilities)
    return built


def _require_probabilities(_: nn.Module, given: tuple[Tensor, ...]) -> None:
    """Raise here, because the assertion on a GPU would end the process, and so all trainings."""
    if not bool(((given[0] >= 0) & (given[0] <= 1)).all()):
        raise ValueError("the outputs of the network are not all between 0 and 1")


def build_lr_scheduler(optimizer: Optimizer, hyperparameters: Hyperparameters) -> LRScheduler | None:
    """Build the LR scheduler, if the spec has one; raises what torch raises for values that it refuses."""
    asked = hyperparameters.lr_scheduler
    if asked is None:
        return None
    lr_scheduler: type[LRScheduler] = getattr(torch.optim.lr_scheduler, LR_SCHEDULERS[asked.name].torch_class)
    return lr_scheduler(optimizer, **asked.args)


def step_lr_scheduler(
    lr_scheduler: LRScheduler | None, hyperparameters: Hyperparameters, *, after: str, loss: float | None = None
) -> None:
    """Step the LR scheduler if it steps after this: an "epoch" with its `loss`, or a "step"."""
    asked = hyperparameters.lr_scheduler
    if lr_scheduler is None or asked is None or asked.per != after:
        return
    if LR_SCHEDULERS[asked.name].measured:
        lr_scheduler.step(loss)  # type: ignore[arg-type]  # ReduceLROnPlateau
    else:
        lr_scheduler.step()


def update(
    optimizer: Optimizer, parameters: Iterable[nn.Parameter], hyperparameters: Hyperparameters, step: int
) -> None:
    """Finish step `step` (from 1): clip the gradients of `parameters` and step the optimizer.

    A warm-up scales the learning rates for this step only. The host does not wait for the device.
    """
    clipping, share = hyperparameters.gradient_clipping, share_of_rate(hyperparameters, step)
    if clipping is not None and clipping.norm is not None:
        clip_grad_norm_(parameters, clipping.norm)
    if clipping is not None and clipping.value is not None:
        clip_grad_value_(parameters, clipping.value)
    if share == 1.0:
        optimizer.step()
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * share
        optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def share_of_rate(hyperparameters: Hyperparameters, step: int) -> float:
    """Share of the learning rate that a step (from 1) uses."""
    return 1.0 if hyperparameters.warm_up is None else hyperparameters.warm_up.factor(step)


class Scorer:
    """Counts right answers and labels the way the criterion of one sub-model does."""

    def __init__(self, hyperparameters: Hyperparameters):
        self._classes, self._label = hyperparameters.criterion in CLASSIFICATION, hyperparameters.ignored_label
        self._counting: dict[str, Tensor | None] = {}

    def ignored_in(self, data: Lease) -> int | None:
        """Label that does not count, if the data set has it; the host waits for the device only at the first call."""
        return None if self._label is None or self._counts(data) is None else self._label

    def counted(self, data: Lease, places: slice, order: Tensor | None = None) -> tuple[int, int]:
        """Weight of the mean loss of some samples, and their number of labels.

        The samples are those at `places` in `order` (indices on the host), or in the file. Some labels may not count:
        then the mean is that over the others.
        """
        counts = self._counts(data)
        if counts is not None:
            labels = int(counts[places if order is None else order[places]].sum())
            return labels, labels
        samples = min(places.stop, data.samples) - places.start
        return samples, samples * (data.use().targets.numel() // data.samples)

    def answers(self, outputs: Tensor, targets: Tensor, ignored: int | None) -> Tensor | None:
        """Right answers, a scalar on the device; None if there are no classes."""
        if not self._classes:
            return None
        right = outputs.argmax(1) == targets
        return torch.count_nonzero(right if ignored is None else right & (targets != ignored))

    def _counts(self, data: Lease) -> Tensor | None:
        """Labels of each sample that count, int64 [samples] on the host; None if all do."""
        if self._label is None:
            return None
        if data.sha256 not in self._counting:
            counting = data.use().targets != self._label
            all_count = bool(counting.all())
            self._counting[data.sha256] = None if all_count else counting.reshape(data.samples, -1).sum(1).cpu()
        return self._counting[data.sha256]
