"""A thing of torch that can be named, and how a name and its arguments are held against the table that it stands in."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import PydanticCustomError

from unifiednn_core.choices.argument import Argument

# What torch's classes take and no table has, with the reason.
_COMPUTING = ": how torch computes follows from the profile of the run"
_GIVEN_ELSEWHERE = {
    "lr": ": it is the entry learning_rate",
    "reduction": ": a loss is the mean over its batch",
    "mode": ": it goes by a loss, so lower is better",
    "last_epoch": ": a training goes on from its checkpoint",
    **dict.fromkeys(("foreach", "fused", "capturable", "differentiable"), _COMPUTING),
}
Targets = Literal["classes", "values", "shares", "signs", "counts", "lists"]
Outputs = Literal["scores", "probabilities", "log_probabilities"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One thing that can be named: its class in torch and the arguments that it takes."""

    torch_class: str
    """Name in `torch.optim`, `torch.nn` or `torch.optim.lr_scheduler`."""
    arguments: tuple[Argument, ...] = ()
    help: str = ""
    rate_once: bool = False
    """Whether an optimizer takes the learning rate for its first step alone."""

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the arguments that have to be given."""
        return tuple(argument.name for argument in self.arguments if argument.required)


@dataclass(frozen=True, slots=True)
class CriterionChoice(Choice):
    """A criterion, and what its targets are."""

    targets: Targets = "values"
    """Class numbers, any numbers, numbers from 0 to 1, -1 or 1, numbers from 0 on, or class numbers and then -1."""
    outputs: Outputs = "scores"
    """What it takes the outputs of the network for."""


@dataclass(frozen=True, slots=True)
class LRSchedulerChoice(Choice):
    """An LR scheduler, and how it relates to the length of a training."""

    per: Literal["", "epoch", "step"] = ""
    """What it is meant to be stepped after; empty where both make sense."""
    span: str = ""
    """Argument that says after how many of its steps the whole schedule has been gone through."""
    afterwards: Literal["", "fails", "rises"] = ""
    """What it does when it is stepped on after that; empty where it stays as it is."""
    first_change: str = ""
    """Argument that says after how many of its steps it changes anything at all; of a list, the smallest."""
    measured: bool = False
    """Whether its step takes a loss: that of the test data, without them that of the training."""


def known(name: str, table: Mapping[str, Choice], refused: Mapping[str, str], what: str) -> str:
    """Name in the table for a name in it or the name of torch's class.

    Raises a validation error that says why a thing of torch is not offered, or lists the valid names.
    """
    by_class = {choice.torch_class: short for short, choice in table.items()}
    if name in table or name in by_class:
        return by_class.get(name, name)
    reasons = {torch_class.lower(): (torch_class, reason) for torch_class, reason in refused.items()}
    if name.lower() in reasons:
        torch_class, reason = reasons[name.lower()]
        raise PydanticCustomError(
            "unknown_name",
            "{name} {reason}. Choose one of: {valid}.",
            {"name": torch_class, "reason": reason, "valid": ", ".join(table)},
        )
    letters = {word.lower(): word for word in (*by_class, *table)}
    close = difflib.get_close_matches(name.lower(), letters, n=1)
    guess = f" Did you mean '{letters[close[0]]}'?" if close else ""
    raise PydanticCustomError(
        "unknown_name",
        "There is no {what} '{name}'.{guess} Choose one of: {valid}.",
        {"what": what, "name": name, "guess": guess, "valid": ", ".join(table)},
    )


def checked_arguments(args: dict[str, Any], choice: Choice | None) -> dict[str, Any]:
    """Return the arguments as torch takes them.

    Raises a validation error for one that is unknown, missing, or not what it should be.
    """
    if choice is None:  # the name is wrong already; that finding says so
        return args
    taken = {argument.name: argument for argument in choice.arguments}
    for name, value in args.items():
        context = {"torch_class": choice.torch_class, "name": name, "argument": name}
        if name not in taken:
            context["reason"] = _GIVEN_ELSEWHERE.get(name, "")
            context["remedy"] = f"Choose from: {', '.join(taken)}." if taken else "Leave it out; it takes none."
            raise PydanticCustomError(
                "unknown_name", "{torch_class} has no argument '{name}' here{reason}. {remedy}", context
            )
        if not taken[name].accepts(value):
            context |= {"value": json.dumps(value, default=str)[:60], "takes": taken[name].takes}
            raise PydanticCustomError(
                "unknown_name", "{torch_class} does not take {name} = {value}. Give {takes}.", context
            )
    missing = [name for name in choice.required if name not in args]
    if missing:
        raise PydanticCustomError(
            "unknown_name",
            "{torch_class} needs the argument '{name}'. Add it.",
            {"torch_class": choice.torch_class, "name": missing[0]},
        )
    return {name: taken[name].plain(value) for name, value in args.items()}
