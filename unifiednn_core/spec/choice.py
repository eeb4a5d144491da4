"""torch's classes that a spec can name: their arguments as plain values, and the checks on names and arguments."""

import difflib
import json
import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Literal

from pydantic_core import PydanticCustomError

# Whole numbers of torch have 64 bits.
_LARGEST = 2**63 - 1
Kind = Literal["number", "integer", "flag", "word", "numbers", "integers"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a torch class and the values it accepts."""

    kind: Kind
    name: str
    default: object = None
    """torch's default; None if the argument is required."""
    _: KW_ONLY
    required: bool = False
    optional: bool = False
    """Whether None is valid; for a list, whether its entries may be None."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """Exclusive lower bound; `below` is the exclusive upper bound."""
    below: float | None = None
    length: int | None = None
    """Length of a list; None for any length above 0."""
    options: tuple[str, ...] = ()
    """Valid words."""

    @property
    def takes(self) -> str:
        """Describe the valid values: "a number of at least 0"."""
        if self.kind == "flag":
            return "true or false"
        if self.kind == "word":
            return "one of " + ", ".join(self.options)
        whole = "whole " if self._whole else ""
        if self.kind in ("number", "integer"):
            return f"a {whole}number{self._range}"
        many = "" if self.length is None else f"{self.length} "
        each = f", each{self._range}" if self._range else ""
        return f"a list of {many}{whole}numbers{each}"

    def accepts(self, value: object) -> bool:
        """Whether a value is valid. The bounds are torch's own, so torch accepts every value accepted here."""
        if self.kind not in ("numbers", "integers"):
            return self._accepts_one(value)
        if not isinstance(value, list | tuple) or not value or self.length not in (None, len(value)):
            return False
        return all(map(self._accepts_one, value))

    def plain(self, value: Any) -> Any:
        """Convert a valid value to the type torch expects: Adam refuses integer betas."""
        if self.kind != "numbers":
            return value
        return [None if one is None else float(one) for one in value]

    @property
    def _whole(self) -> bool:
        return self.kind in ("integer", "integers")

    def _accepts_one(self, value: object) -> bool:
        if value is None:
            return self.optional
        if self.kind == "word":
            return value in self.options
        if self.kind == "flag" or isinstance(value, bool):
            return self.kind == "flag" and isinstance(value, bool)
        if not isinstance(value, int if self._whole else int | float):
            return False
        if isinstance(value, int) and abs(value) > _LARGEST:
            return False
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def _range(self) -> str:
        bounds = (("of at least", self.least), ("above", self.above), ("of at most", self.most), ("below", self.below))
        said = " and ".join(f"{word} {bound:g}" for word, bound in bounds if bound is not None)
        return f" {said}" if said else ""


number = partial(Argument, "number")
integer = partial(Argument, "integer", least=1)
flag = partial(Argument, "flag", default=False)


def word(name: str, default: str | None, *options: str) -> Argument:
    """Build an argument that takes one of several words."""
    return Argument("word", name, default, optional=default is None, options=options)


def numbers(name: str, default: tuple[float | None, ...] | None = None, **bounds: float) -> Argument:
    """Build an argument that takes a list of numbers, as long as its default."""
    shape = {} if default is None else {"length": len(default), "optional": None in default}
    return Argument("numbers", name, default, **shape, **bounds)  # type: ignore[arg-type]


def shown(value: object) -> str:
    """Format a value the way a user types it: `[0.9, 0.999]`, `true`, `cos`."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


# Arguments of torch's classes that no table offers, with the reason.
_COMPUTING = ": how torch computes follows from the profile of the run"
_GIVEN_ELSEWHERE = {
    "lr": ": it is the entry learning_rate",
    "reduction": ": a loss is the mean over its batch",
    "mode": ": it goes by a loss, so lower is better",
    "last_epoch": ": a run resumes from its checkpoint",
    **dict.fromkeys(("foreach", "fused", "capturable", "differentiable"), _COMPUTING),
}
Targets = Literal["classes", "values", "shares", "signs", "counts", "lists"]
Outputs = Literal["scores", "probabilities", "log_probabilities"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A class of torch that a spec can name, with its arguments."""

    torch_class: str
    """Name in `torch.optim`, `torch.nn` or `torch.optim.lr_scheduler`."""
    arguments: tuple[Argument, ...] = ()
    help: str = ""
    rate_once: bool = field(default=False, kw_only=True)
    """Whether an optimizer uses the learning rate only for its first step."""

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the required arguments."""
        return tuple(argument.name for argument in self.arguments if argument.required)


@dataclass(frozen=True, slots=True)
class CriterionChoice(Choice):
    """A criterion and the kind of targets it expects."""

    targets: Targets = "values"
    """Class indices; any numbers; 0 to 1; -1 or 1; 0 and above; or class indices padded with -1."""
    outputs: Outputs = "scores"
    """How it interprets the outputs of the network."""


@dataclass(frozen=True, slots=True)
class LRSchedulerChoice(Choice):
    """An LR scheduler and how it relates to the length of the training."""

    per: Literal["", "epoch", "step"] = ""
    """When to step it; empty if both make sense."""
    span: str = ""
    """Argument that holds the number of steps of the whole schedule."""
    afterwards: Literal["", "fails", "rises"] = ""
    """What further steps do; empty if the learning rate stays constant."""
    first_change: str = ""
    """Argument that holds the number of steps before the first change; of a list, the smallest entry."""
    measured: bool = False
    """Whether its step takes a loss: the test loss, or the training loss if there is no test data."""


def known(name: str, table: Mapping[str, Choice], refused: Mapping[str, str], what: str) -> str:
    """Return the short name for a short name or a torch class name.

    Raises a validation error that says why a torch class is not offered, or lists the valid names.
    """
    by_class = {choice.torch_class: short for short, choice in table.items()}
    if name in table or name in by_class:
        return by_class.get(name, name)
    reasons = {torch_class.lower(): (torch_class, reason) for torch_class, reason in refused.items()}
    if name.lower() in reasons:
        torch_class, reason = reasons[name.lower()]
        context = {"name": torch_class, "reason": reason, "valid": ", ".join(table)}
        raise PydanticCustomError("unknown_name", "{name} {reason}. Choose one of: {valid}.", context)
    letters = {word.lower(): word for word in (*by_class, *table)}
    close = difflib.get_close_matches(name.lower(), letters, n=1)
    guess = f" Did you mean '{letters[close[0]]}'?" if close else ""
    context = {"what": what, "name": name, "guess": guess, "valid": ", ".join(table)}
    raise PydanticCustomError("unknown_name", "There is no {what} '{name}'.{guess} Choose one of: {valid}.", context)


def checked_arguments(
    args: dict[str, Any], choice: Choice | None, elsewhere: Mapping[str, str] = _GIVEN_ELSEWHERE
) -> dict[str, Any]:
    """Return the arguments in the types torch expects; `elsewhere` says why an argument is not among them.

    Raises a validation error for an unknown, missing or invalid argument.
    """
    if choice is None:  # the name is wrong already; that finding says so
        return args
    taken = {argument.name: argument for argument in choice.arguments}
    for name, value in args.items():
        context = {"torch_class": choice.torch_class, "name": name, "argument": name}
        if name not in taken:
            context["reason"] = elsewhere.get(name, "")
            context["remedy"] = f"Choose from: {', '.join(taken)}." if taken else "Leave it out; it takes none."
            message = "{torch_class} has no argument '{name}' here{reason}. {remedy}"
            raise PydanticCustomError("unknown_name", message, context)
        if not taken[name].accepts(value):
            context |= {"value": json.dumps(value, default=str)[:60], "takes": taken[name].takes}
            message = "{torch_class} does not accept {name} = {value}. Give {takes}."
            raise PydanticCustomError("unknown_name", message, context)
    for name in choice.required:
        if name not in args:
            context = {"torch_class": choice.torch_class, "name": name}
            raise PydanticCustomError("unknown_name", "{torch_class} needs the argument '{name}'. Add it.", context)
    return {name: taken[name].plain(value) for name, value in args.items()}
