"""Arguments of torch's classes as plain values: name, kind, range and torch's own default of each."""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal

# Whole numbers of torch have 64 bits.
_LARGEST = 2**63 - 1
Kind = Literal["number", "integer", "flag", "word", "numbers", "integers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument that can be given, with the values that it takes."""

    name: str
    kind: Kind
    default: object = None
    """What torch takes where nothing is given; None also where the argument is required."""
    required: bool = False
    optional: bool = False
    """Whether None is a value too; in a list, whether it is one of its entries."""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    """Like `least`, but the bound itself is no value; so is `below`."""
    below: float | None = None
    length: int | None = None
    """Entries of a list; None for one or more."""
    options: tuple[str, ...] = ()
    """Words that it takes."""

    @property
    def takes(self) -> str:
        """What it takes, in words: "a number of at least 0"."""
        match self.kind:
            case "flag":
                return "true or false"
            case "word":
                return "one of " + ", ".join(self.options)
            case "number" | "integer":
                one = "a number" if self.kind == "number" else "a whole number"
                return f"{one}{self._range}"
            case "numbers" | "integers":
                many = "" if self.length is None else f"{self.length} "
                return f"a list of {many}{'whole ' if self.kind == 'integers' else ''}numbers{self._each}"

    def accepts(self, value: object) -> bool:
        """Whether it takes a value; the bounds are torch's own, so that torch takes what is accepted here."""
        match self.kind:
            case "flag":
                return isinstance(value, bool)
            case "word":
                return (value is None and self.optional) or value in self.options
            case "number" | "integer":
                return (value is None and self.optional) or self._within(value)
            case "numbers" | "integers":
                if not isinstance(value, list | tuple) or not value or self.length not in (None, len(value)):
                    return False
                return all((one is None and self.optional) or self._within(one) for one in value)

    def plain(self, value: Any) -> Any:
        """A value that it accepts, as torch takes it: Adam refuses betas of which one is a whole number."""
        if self.kind != "numbers":
            return value
        return [None if one is None else float(one) for one in value]

    def _within(self, value: object) -> bool:
        whole = self.kind in ("integer", "integers")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
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

    @property
    def _each(self) -> str:
        return f", each{self._range}" if self._range else ""


def number(name: str, default: float | None = None, **bounds: float) -> Argument:
    """Argument that is a number."""
    return Argument(name=name, kind="number", default=default, **bounds)  # type: ignore[arg-type]


def integer(name: str, default: int | None = None, *, least: int = 1, optional: bool = False) -> Argument:
    """Argument that is a whole number."""
    return Argument(name=name, kind="integer", default=default, least=least, optional=optional)


def flag(name: str, *, default: bool = False) -> Argument:
    """Argument that is true or false."""
    return Argument(name=name, kind="flag", default=default)


def word(name: str, default: str | None, *options: str) -> Argument:
    """Argument that is one of some words."""
    return Argument(name=name, kind="word", default=default, optional=default is None, options=options)


def numbers(name: str, default: tuple[float | None, ...] | None = None, **bounds: float) -> Argument:
    """Argument that is a list of numbers, as many as its default has."""
    length, optional = None if default is None else len(default), default is not None and None in default
    return Argument(
        name=name, kind="numbers", default=default, length=length, optional=optional, **bounds  # type: ignore[arg-type]
    )  # fmt: skip


def shown(value: object) -> str:
    """A value as it is typed: `[0.9, 0.999]`, `true`, `cos`."""
    return value if isinstance(value, str) else json.dumps(value, default=str)
