"""What a hyper-parameter file may name: optimizers, criteria and LR schedulers, by torch's own names and arguments.

Forms, JSON validation and the trainer are all built from these tables. This room has no torch; a test holds the
tables against torch's signatures.
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticCustomError


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be named: its class in torch and the arguments that it takes."""

    torch_class: str
    """Name in `torch.optim`, `torch.nn` or `torch.optim.lr_scheduler`."""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    help: str = ""


OPTIMIZERS: dict[str, Choice] = {
    "sgd": Choice(
        "SGD",
        ("momentum", "dampening", "weight_decay", "nesterov", "maximize"),
        help="Stochastic gradient descent.",
    ),
    "adam": Choice("Adam", ("betas", "eps", "weight_decay", "amsgrad", "maximize"), help="Adam (Kingma and Ba 2015)."),
    "adamw": Choice(
        "AdamW",
        ("betas", "eps", "weight_decay", "amsgrad", "maximize"),
        help="Adam with decoupled weight decay (Loshchilov and Hutter 2019).",
    ),
    "rmsprop": Choice(
        "RMSprop",
        ("alpha", "eps", "weight_decay", "momentum", "centered", "maximize"),
        help="RMSprop (Hinton).",
    ),
    "adagrad": Choice(
        "Adagrad",
        ("lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize"),
        help="Adagrad (Duchi et al. 2011).",
    ),
    "adadelta": Choice("Adadelta", ("rho", "eps", "weight_decay", "maximize"), help="Adadelta (Zeiler 2012)."),
    "nadam": Choice(
        "NAdam",
        ("betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay", "maximize"),
        help="Adam with Nesterov momentum (Dozat 2016).",
    ),
    "radam": Choice(
        "RAdam",
        ("betas", "eps", "weight_decay", "decoupled_weight_decay", "maximize"),
        help="Rectified Adam (Liu et al. 2020).",
    ),
}

CRITERIA: dict[str, Choice] = {
    "cross_entropy": Choice("CrossEntropyLoss", ("label_smoothing",), help="Class scores against class numbers."),
    "nll": Choice("NLLLoss", help="Log-probabilities against class numbers."),
    "mse": Choice("MSELoss", help="Mean squared error."),
    "l1": Choice("L1Loss", help="Mean absolute error."),
    "huber": Choice("HuberLoss", ("delta",), help="Squared near zero, absolute beyond delta."),
    "bce_with_logits": Choice("BCEWithLogitsLoss", help="Yes/no scores against 0 and 1."),
}
# Criteria whose targets are class numbers, so that an accuracy exists.
CLASSIFICATION = frozenset({"cross_entropy", "nll"})

LR_SCHEDULERS: dict[str, Choice] = {
    "step": Choice("StepLR", ("step_size", "gamma"), ("step_size",), "Times gamma every step_size epochs."),
    "multi_step": Choice("MultiStepLR", ("milestones", "gamma"), ("milestones",), "Times gamma at each milestone."),
    "exponential": Choice("ExponentialLR", ("gamma",), ("gamma",), "Times gamma every epoch."),
    "cosine": Choice("CosineAnnealingLR", ("T_max", "eta_min"), ("T_max",), "A half cosine down to eta_min."),
    "linear": Choice("LinearLR", ("start_factor", "end_factor", "total_iters"), (), "A line between two factors."),
    "one_cycle": Choice(
        "OneCycleLR",
        (
            "max_lr",
            "total_steps",
            "pct_start",
            "anneal_strategy",
            "cycle_momentum",
            "base_momentum",
            "max_momentum",
            "div_factor",
            "final_div_factor",
            "three_phase",
        ),
        ("max_lr", "total_steps"),
        'Up and down once; use with "per": "step".',
    ),
}


def known(name: str, table: Mapping[str, Choice], what: str) -> str:
    """Return the name; raises a validation error that lists the valid ones where the table lacks it."""
    if name in table:
        return name
    close = difflib.get_close_matches(name.lower(), table, n=1)
    guess = f" Did you mean '{close[0]}'?" if close else ""
    raise PydanticCustomError(
        "unknown_name",
        "There is no {what} '{name}'.{guess} Choose one of: {valid}.",
        {"what": what, "name": name, "guess": guess, "valid": ", ".join(table)},
    )


def checked_arguments(args: dict[str, Any], choice: Choice | None) -> dict[str, Any]:
    """Return the arguments; raises a validation error for an unknown, missing or endless one."""
    if choice is None:  # the name is wrong already; that finding says so
        return args
    endless = [name for name, value in args.items() if isinstance(value, float) and not math.isfinite(value)]
    if endless:
        raise PydanticCustomError(
            "unknown_name", "The argument '{name}' is not finite. Give a number.", {"name": endless[0]}
        )
    unknown = [name for name in args if name not in choice.arguments]
    missing = [name for name in choice.required if name not in args]
    valid = ", ".join(choice.arguments) or "none"
    if unknown:
        raise PydanticCustomError(
            "unknown_name",
            "{torch_class} has no argument '{name}' here. Choose from: {valid}.",
            {"torch_class": choice.torch_class, "name": unknown[0], "valid": valid},
        )
    if missing:
        raise PydanticCustomError(
            "unknown_name",
            "{torch_class} needs the argument '{name}'. Add it.",
            {"torch_class": choice.torch_class, "name": missing[0]},
        )
    return args
