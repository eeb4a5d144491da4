"""The parts of a contract: rules on the arguments of one operator, in words and as a check.

The kernels of torch are no security boundary: some read beyond a tensor that is smaller than they assume. So a contract
says what must hold, and the call is checked against it, on the very tensors that the kernel would get.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Arguments = Mapping[str, Any]
"""Arguments of a call by their names in the schema, defaults filled in; a tensor may be given as a plain number."""


class Broken(Exception):
    """A rule does not hold; the text says what is wrong, with the sizes and types that were found."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One condition on a call, in words and as a check that raises `Broken`."""

    text: str
    check: Callable[[Arguments], None]


def never(arguments: Arguments) -> bool:
    """Return False: the shape of a result depends on the shapes of the arguments alone."""
    return False


@dataclass(frozen=True, slots=True)
class Contract:
    """All that must hold for one operator, beside the general rules."""

    rules: tuple[Rule, ...] = ()
    depends_on_values: Callable[[Arguments], bool] = never
    """Whether the shape of the result depends on values; then every call is checked, not only new shapes."""


def rule(text: str) -> Callable[[Callable[..., None]], Rule]:
    """Make a rule of a function whose parameters have the names of the arguments that it looks at."""

    def make(function: Callable[..., None]) -> Rule:
        names = tuple(inspect.signature(function).parameters)
        return Rule(text, lambda arguments: function(*(arguments[name] for name in names)))

    return make


def note(text: str) -> Rule:
    """Say what holds without a check of ours: the kernel checks it, or the reader of graphs sees to it."""
    return Rule(text, lambda arguments: None)


def require(condition: bool, problem: str) -> None:
    """Raise `Broken` unless the condition holds."""
    if not condition:
        raise Broken(problem)


def each(names: str, *rules: Rule) -> dict[str, Contract]:
    """Give several operators of `aten` (`relu.default`, or `relu` for short) the same rules."""
    contract = Contract(rules)
    return {full_name(name): contract for name in names.split()}


def full_name(name: str) -> str:
    """Name an operator as exported graphs do; the overload `default` may be left out."""
    return f"torch.ops.aten.{name if '.' in name else f'{name}.default'}"
