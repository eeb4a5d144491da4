"""How many samples go through a network at once in a training, and what it makes of few of them."""

from torch import nn

from unifiednn_core.errors import BadInput
from unifiednn_core.intake.trial import Trial, found
from unifiednn_core.spec import Hyperparameters

_OTHER_BATCH = 'Set "drop_last" to true, or choose another batch size.'


def part_sizes(hyper: Hyperparameters, samples: int) -> tuple[int, ...]:
    """Every size of a part of a batch in an epoch of so many samples, the largest first."""
    batches = batch_sizes(hyper, samples)
    parts = [-(-batch // hyper.batch_split) for batch in batches]  # as torch.chunk cuts
    ends = [batch % part or part for batch, part in zip(batches, parts, strict=True)]
    return tuple(sorted({*parts, *ends}, reverse=True))


def batch_sizes(hyper: Hyperparameters, samples: int, *, evaluated: bool = False) -> tuple[int, ...]:
    """Sizes of the batches of an epoch, or where it is `evaluated` of a test, which leaves none out."""
    full = (hyper.batch_size,) if samples >= hyper.batch_size else ()
    last = samples % hyper.batch_size
    return (*full, last) if last and (evaluated or not hyper.drop_last) else full


def check_batch_sizes(trial: Trial) -> None:
    """Hold the smallest batches, in training and in evaluation, against what the network takes."""
    hyper, least = trial.spec.hyperparameters, trial.definition.min_batch
    in_training = part_sizes(hyper, trial.train.samples)[-1]
    if in_training < least:
        message = f"The network takes at least {least} samples at once; the smallest batch of an epoch has "
        raise found("Batch too small", *_place_and(trial, f"{message}{in_training}."), _remedy(trial, in_training))
    if trial.test is not None and (in_testing := batch_sizes(hyper, trial.test.samples, evaluated=True)[-1]) < least:
        message = f"The network takes at least {least} samples at once; the last batch of a test has {in_testing}."
        raise found("Batch too small", f"{trial.field}.test_data", message, "Choose another batch size.")


def batch_of_one(trial: Trial, reason: str) -> BadInput:
    """To be raised where the network does not take the single sample that an epoch gives it."""
    message = f"An epoch has a batch of one sample, which the network does not take: {reason}."
    return found("Batch of one", *_place_and(trial, message), _remedy(trial, 1))


def check_statistics(trial: Trial, module: nn.Module) -> None:
    """Raise `BadInput` where a single sample has spoilt the statistics of a normalisation: exported graphs take it."""
    alone = part_sizes(trial.spec.hyperparameters, trial.train.samples)[-1] == 1
    if alone and any(bool(buffer.isnan().any()) for buffer in module.buffers()):
        raise batch_of_one(trial, "its running statistics are no numbers any more")


def _place_and(trial: Trial, message: str) -> tuple[str, str]:
    """Entry that a small batch comes from, and the message."""
    hyper = trial.spec.hyperparameters
    split = hyper.batch_split > 1 and batch_sizes(hyper, trial.train.samples)[-1] > 1
    return f"{trial.field}.hyperparameters.{'batch_split' if split else 'batch_size'}", message


def _remedy(trial: Trial, smallest: int) -> str:
    hyper, samples = trial.spec.hyperparameters, trial.train.samples
    if samples == smallest:
        return "Give more samples."
    if hyper.batch_size == smallest:
        return "Choose a larger batch size."
    if batch_sizes(hyper, samples)[-1] > smallest:
        return 'Choose fewer parts, or set "drop_last" to true where only the last batch is too small.'
    return _OTHER_BATCH
