"""Findings on parameter groups: patterns that fit no parameter, nothing left to train, and arguments torch refuses."""

import torch
from torch import nn

from unifiednn_core.base.units import abbreviated
from unifiednn_core.engine.optimizers import optimizer_of
from unifiednn_core.preflight.trial import Trial

_NAMED = 8


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
