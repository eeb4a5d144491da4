"""The exactness recipe as a plain PyTorch loop over tensors, and the bits that a training leaves behind.

It knows nothing of the hybrid and its engine; of a sub-model it takes the hyper-parameters alone.
"""

import copy
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain, islice

import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler as lr_schedulers

from unifiednn_core.spec.run import Hyperparameters

# By hand, so that a wrong entry in the tables of the product is found.
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": optim.SGD,
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "rmsprop": optim.RMSprop,
    "adagrad": optim.Adagrad,
    "adadelta": optim.Adadelta,
    "adafactor": optim.Adafactor,
    "adamax": optim.Adamax,
    "asgd": optim.ASGD,
    "muon": optim.Muon,
    "nadam": optim.NAdam,
    "radam": optim.RAdam,
    "rprop": optim.Rprop,
}
LR_SCHEDULERS: dict[str, Callable[..., lr_schedulers.LRScheduler]] = {
    "step": lr_schedulers.StepLR,
    "multi_step": lr_schedulers.MultiStepLR,
    "exponential": lr_schedulers.ExponentialLR,
    "cosine": lr_schedulers.CosineAnnealingLR,
    "linear": lr_schedulers.LinearLR,
    "one_cycle": lr_schedulers.OneCycleLR,
    "reduce_on_plateau": lr_schedulers.ReduceLROnPlateau,
    "constant": lr_schedulers.ConstantLR,
    "cosine_warm_restarts": lr_schedulers.CosineAnnealingWarmRestarts,
    "cyclic": lr_schedulers.CyclicLR,
    "polynomial": lr_schedulers.PolynomialLR,
}


class MeanOfOutputs(nn.Module):
    """The network gives the loss itself."""

    def forward(self, outputs: Tensor, _: Tensor) -> Tensor:
        return outputs.mean()


CRITERIA: dict[str, Callable[..., nn.Module]] = {
    "none": MeanOfOutputs,
    "cross_entropy": nn.CrossEntropyLoss,
    "nll": nn.NLLLoss,
    "multi_margin": nn.MultiMarginLoss,
    "mse": nn.MSELoss,
    "l1": nn.L1Loss,
    "smooth_l1": nn.SmoothL1Loss,
    "huber": nn.HuberLoss,
    "bce": nn.BCELoss,
    "bce_with_logits": nn.BCEWithLogitsLoss,
    "multi_label_margin": nn.MultiLabelMarginLoss,
    "multi_label_soft_margin": nn.MultiLabelSoftMarginLoss,
    "hinge_embedding": nn.HingeEmbeddingLoss,
    "soft_margin": nn.SoftMarginLoss,
    "kl_div": nn.KLDivLoss,
    "poisson_nll": nn.PoissonNLLLoss,
}
Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Trained:
    """A network after its training."""

    module: nn.Module
    optimizer: optim.Optimizer
    lr_scheduler: lr_schedulers.LRScheduler | None
    losses: list[float]
    """Of every step, in order."""
    averaged: nn.Module | None = None
    """The network with averaged weights, if they are asked for."""

    def bits(self) -> dict[str, str]:
        """Everything that training changed, by where it stands: "optimizer.state.0.exp_avg"."""
        return dict(
            chain(
                _bits("weights", dict(self.module.named_parameters())),
                _bits("buffers", dict(self.module.named_buffers())),
                _bits("optimizer", self.optimizer.state_dict()),
                _bits("lr_scheduler", self.lr_scheduler and self.lr_scheduler.state_dict()),
                _bits("losses", self.losses),
                _bits("averaged", self.averaged and dict(self.averaged.state_dict())),
            )
        )


def train(
    module: nn.Module, hyper: Hyperparameters, data: Pair, steps: int | None = None, test: Pair | None = None
) -> Trained:
    """Train on (inputs, targets), all epochs or the given number of steps.

    It is evaluated only where something goes by that, which draws no random number and so changes nothing else.
    """
    optimizer = _optimizer(module, hyper)
    criterion = _criterion(hyper, data[1])
    asked, lr_scheduler = hyper.lr_scheduler, None
    if asked is not None and asked.name == "sequence":
        each = [_lr_scheduler(optimizer, one.name, one.args, hyper) for one in asked.of]
        lr_scheduler = lr_schedulers.SequentialLR(optimizer, each, asked.milestones)
    elif asked is not None:
        lr_scheduler = _lr_scheduler(optimizer, asked.name, asked.args, hyper)
    averaged = None if hyper.ema is None else copy.deepcopy(module)
    losses: list[float] = []
    epoch: list[tuple[float, int]] = []  # losses of the epoch, with their samples
    seen: list[tuple[float, float | None, float | None]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(hyper.seed or 0)
        for group, ends_epoch in islice(_groups(data, hyper), steps):
            samples = sum(len(batch) for batch in group)
            optimizer.zero_grad(set_to_none=True)
            parts = []
            for batch in group:
                for part in batch.chunk(hyper.batch_split):
                    loss = criterion(module(data[0][part]), data[1][part]) * (len(part) / samples)
                    loss.backward()
                    parts.append(loss.detach())
            losses.append(torch.stack(parts).sum().item())
            epoch.append((losses[-1], samples))
            _step(module, optimizer, hyper, len(losses))
            if averaged is not None and hyper.ema is not None:
                _average(averaged, module, 1 - hyper.ema.decay if len(losses) > 1 else 1.0)
            if asked is not None and lr_scheduler is not None and asked.per == "step":
                lr_scheduler.step()
            if not ends_epoch:
                continue
            train_loss = sum(value * count for value, count in epoch) / sum(count for _, count in epoch)
            by_test = (asked is not None and asked.name == "reduce_on_plateau") or hyper.early_stopping is not None
            seen.append(
                (
                    train_loss,
                    *(_evaluated(averaged or module, criterion, hyper, test) if test and by_test else (None, None)),
                )
            )
            epoch.clear()
            if asked is not None and lr_scheduler is not None and asked.per == "epoch":
                judged = seen[-1][0] if seen[-1][1] is None else seen[-1][1]
                lr_scheduler.step(*([judged] if asked.name == "reduce_on_plateau" else []))  # type: ignore[arg-type]
            if _has_stalled(hyper, seen):
                break
    return Trained(module, optimizer, lr_scheduler, losses, averaged)


def _optimizer(module: nn.Module, hyper: Hyperparameters) -> optim.Optimizer:
    """Base group, then the groups of the spec that are not frozen, each with what the earlier ones left."""
    left = dict(module.named_parameters())
    groups = []
    for asked in hyper.parameter_groups:
        own = {name: left[name] for name in left if any(fnmatchcase(name, pattern) for pattern in asked.names)}
        left = {name: parameter for name, parameter in left.items() if name not in own}
        for parameter in own.values():
            parameter.requires_grad_(not asked.frozen)
        given = {"lr": asked.learning_rate, **asked.optimizer_args}
        if not asked.frozen:
            groups.append({"params": [*own.values()], **{key: it for key, it in given.items() if it is not None}})
    base = [{"params": [*left.values()]}] if left else []
    return OPTIMIZERS[hyper.optimizer]([*base, *groups], lr=hyper.learning_rate, **hyper.optimizer_args)


def _lr_scheduler(
    optimizer: optim.Optimizer, name: str, args: Mapping[str, float], hyper: Hyperparameters
) -> lr_schedulers.LRScheduler:
    if name in LR_SCHEDULERS:
        return LR_SCHEDULERS[name](optimizer, **args)
    up, total, rate = args["num_warmup_steps"], args.get("num_training_steps", 0), hyper.learning_rate
    end, power, cycles = args.get("lr_end", 1e-7), args.get("power", 1.0), args.get("num_cycles", 0.5)
    down: dict[str, Callable[[int], float]] = {
        "warmup_constant": lambda step: 1.0,
        "warmup_linear": lambda step: max(0.0, (total - step) / max(1, total - up)),
        "warmup_cosine": lambda step: max(
            0.0, 0.5 * (1 + math.cos(math.pi * cycles * 2.0 * ((step - up) / max(1, total - up))))
        ),
        "warmup_polynomial": lambda step: (
            end / rate if step > total else ((rate - end) * (1 - (step - up) / (total - up)) ** power + end) / rate
        ),
    }
    return lr_schedulers.LambdaLR(optimizer, lambda step: step / max(1, up) if step < up else down[name](step))


def _criterion(hyper: Hyperparameters, targets: Tensor) -> nn.Module:
    lists: dict[str, object] = {
        key: torch.tensor(value).float() for key, value in hyper.criterion_args.items() if isinstance(value, list)
    }
    if hyper.class_weights == "balanced":
        labels = [label for label in targets.flatten().tolist() if label != -100]
        classes = range(max(labels) + 1)
        lists["weight"] = torch.tensor([len(labels) / (len(classes) * labels.count(each)) for each in classes])
    return CRITERIA[hyper.criterion](**{**hyper.criterion_args, **lists})


def _step(module: nn.Module, optimizer: optim.Optimizer, hyper: Hyperparameters, step: int) -> None:
    """Clip, and take one step with the share of the learning rate that the warm-up leaves."""
    if hyper.gradient_clipping is not None and hyper.gradient_clipping.norm is not None:
        nn.utils.clip_grad_norm_(module.parameters(), hyper.gradient_clipping.norm)
    if hyper.gradient_clipping is not None and hyper.gradient_clipping.value is not None:
        nn.utils.clip_grad_value_(module.parameters(), hyper.gradient_clipping.value)
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        if hyper.warm_up is not None and step < hyper.warm_up.steps:
            group["lr"] *= step / hyper.warm_up.steps
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate


@torch.no_grad()
def _average(averaged: nn.Module, module: nn.Module, share: float) -> None:
    """Move the averages by a share of the way to the weights; copy buffers."""
    for old, new in zip(averaged.parameters(), module.parameters(), strict=True):
        old.copy_(new if share == 1.0 else torch.lerp(old, new, share))
    for old, new in zip(averaged.buffers(), module.buffers(), strict=True):
        old.copy_(new)


@torch.no_grad()
def _evaluated(module: nn.Module, criterion: nn.Module, hyper: Hyperparameters, test: Pair) -> tuple[float, float]:
    """Mean loss and accuracy in file order."""
    module.eval()
    loss, right = 0.0, 0
    for inputs, targets in zip(*(whole.split(hyper.batch_size) for whole in test), strict=True):
        outputs = module(inputs.clone())  # it may write into its input
        loss += criterion(outputs, targets).item() * len(targets)
        right += int((outputs.argmax(1) == targets).sum()) if targets.dim() == 1 else 0
    module.train()
    return loss / len(test[1]), right / len(test[1])


def _has_stalled(hyper: Hyperparameters, seen: Sequence[tuple[float, float | None, float | None]]) -> bool:
    """Whether none of the last epochs was better than the best before them."""
    asked = hyper.early_stopping
    if asked is None:
        return False
    of = {"train_loss": 0, "test_loss": 1, "test_accuracy": 2}[asked.metric]
    values = [row[of] if asked.metric != "test_accuracy" else -(row[of] or 0.0) for row in seen]
    best_at = 0
    for at, value in enumerate(values):
        best = values[best_at]
        assert value is not None and best is not None, "no test data to go by"
        if value < best - asked.min_delta:
            best_at = at
    return len(values) - 1 - best_at >= asked.patience


def _order(data: Pair, hyper: Hyperparameters, generator: torch.Generator) -> Tensor:
    """Samples of an epoch."""
    samples, asked = len(data[1]), hyper.sampler
    if asked is not None and asked.name == "balanced":
        labels = data[1].tolist()
        weights = torch.tensor([1 / labels.count(label) for label in labels], dtype=torch.float64)
        return torch.multinomial(weights, samples, replacement=True, generator=generator)
    order = torch.randperm(samples, generator=generator).tolist()
    if asked is not None:
        rows, window = data[0].tolist(), asked.window * hyper.batch_size
        length = [max((place for place, one in enumerate(row, 1) if one != asked.pad), default=0) for row in rows]
        cut = [order[start : start + window] for start in range(0, samples, window)]
        order = [sample for part in cut for sample in sorted(part, key=length.__getitem__)]
    return torch.tensor(order)


def _groups(data: Pair, hyper: Hyperparameters) -> Iterator[tuple[list[Tensor], bool]]:
    """Yield the samples of each batch of a step, and whether it is the last step of its epoch."""
    generator, samples = torch.Generator().manual_seed(hyper.seed or 0), len(data[1])
    for _ in range(hyper.epochs):
        order = _order(data, hyper, generator)
        batches = [order[start : start + hyper.batch_size] for start in range(0, samples, hyper.batch_size)]
        if hyper.drop_last and len(batches[-1]) < hyper.batch_size:
            batches.pop()
        size = hyper.accumulation_steps
        groups = [batches[start : start + size] for start in range(0, len(batches), size)]
        for place, group in enumerate(groups, start=1):
            yield group, place == len(groups)


def _bits(where: str, value: object) -> Iterator[tuple[str, str]]:
    """Spell out every bit; refuses what it cannot spell, so that nothing goes uncompared."""
    match value:
        case Tensor():
            tensor = value.detach().contiguous()
            raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
            yield where, f"{tensor.dtype} {list(tensor.shape)} {hashlib.sha256(raw).hexdigest()}"
        case Mapping():
            for key, part in value.items():
                yield from _bits(f"{where}.{key}", part)
        case str() | bool() | int() | None:
            yield where, repr(value)
        case float():
            yield where, value.hex()
        case Sequence():
            yield f"{where}.length", str(len(value))
            for place, part in enumerate(value):
                yield from _bits(f"{where}.{place}", part)
        case _:
            raise TypeError(f"{where} holds a {type(value).__name__}, whose bits are not known here")
