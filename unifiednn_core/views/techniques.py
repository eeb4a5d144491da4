"""The techniques of a sub-model as people read them: which it uses, what they save, whether they are lossy. Pure."""

import ast
import inspect
import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin

from pydantic import TypeAdapter, ValidationError

from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight.report import SubModelReport
from unifiednn_core.spec.techniques import AnyTechnique, Technique, name_of, stored_nodes

_LIST: TypeAdapter[list[AnyTechnique]] = TypeAdapter(list[AnyTechnique])


@dataclass(frozen=True, slots=True)
class Used:
    """One technique of a sub-model."""

    name: str
    """As in the spec."""
    title: str
    parameters: str
    """Those that differ from the defaults: "bfloat16: true"."""
    exact: bool


def used(hyperparameters: Mapping[str, Any]) -> tuple[Used, ...]:
    """Techniques of hyper-parameters as a stored spec has them; one of another version is told as it is written."""
    return _parsed(json.dumps(asked)) if (asked := hyperparameters.get("techniques")) else ()


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[Used, ...]:
    try:
        return tuple(map(_used, _LIST.validate_json(text)))
    except ValidationError:
        entries = [one if isinstance(one, dict) else {"name": str(one)} for one in json.loads(text)]
        return tuple(Used(str(one.get("name")), str(one.get("name")), "", exact=False) for one in entries)


def _used(technique: Technique) -> Used:
    given = technique.model_dump(mode="json", exclude_defaults=True)
    parameters = ", ".join(f"{name}: {json.dumps(value)}" for name, value in given.items() if name != "name")
    return Used(name_of(type(technique)), technique.title, parameters, technique.exact)


@dataclass(frozen=True, slots=True)
class Nodes:
    """Virtual nodes of a sub-model, and the logical devices that compute them."""

    count: int
    shares: tuple[int, ...] | None
    """In proportion to each other; None if they are equal."""
    devices: int


def nodes_of(hyperparameters: Mapping[str, Any]) -> Nodes | None:
    """Virtual nodes of hyper-parameters as a stored spec has them; None without any, and while they are open."""
    asked = stored_nodes(hyperparameters)
    count, shares = asked.get("nodes"), asked.get("shares")
    if not isinstance(count, int) or isinstance(shares, str):
        return None
    return Nodes(count, None if shares is None else tuple(shares), asked.get("devices", 1))


def nodes_text(count: int, shares: Sequence[int] | None) -> str:
    """How virtual nodes cut a batch: "8 virtual nodes", "3 virtual nodes, shares 5:2:1"."""
    words = "1 virtual node" if count == 1 else f"{count:,} virtual nodes"
    return f"{words}, shares {':'.join(map(str, shares))}" if shares else words


def chosen_text(report: SubModelReport) -> str:
    """Virtual nodes that the check chose, where the spec left them open; else empty."""
    if (nodes := report.nodes) is None:
        return ""
    return f"the check chose {nodes_text(nodes.nodes, nodes.shares)}"


def checked_text(report: SubModelReport) -> str:
    """What a check found about the techniques of a sub-model, in one line; empty if that is nothing."""
    return "; ".join(text for text in (chosen_text(report), saving_text(report)) if text)


def lossy_of(spec: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Names of the lossy techniques of each sub-model of a stored spec that has any."""
    found = {
        str(part.get("name")): tuple(one.name for one in used(part.get("hyperparameters", {})) if not one.exact)
        for part in spec.get("submodels", ())
    }
    return {name: lossy for name, lossy in found.items() if lossy}


def line(techniques: Iterable[Used]) -> str:
    """All of them in one line, each with what it does to the bits."""
    return "; ".join(f"{_titled(one)}, {bits_text(exact=one.exact)}" for one in techniques)


def written(techniques: Sequence[Used]) -> list[str]:
    """The same for documents: `compression (bfloat16: true), lossy`."""
    titles = (f"{one.name} ({one.parameters})" if one.parameters else one.name for one in techniques)
    return [f"{title}, {'exact' if one.exact else 'lossy'}" for title, one in zip(titles, techniques, strict=True)]


def _titled(one: Used) -> str:
    return f"{one.title} ({one.parameters})" if one.parameters else one.title


def bits_text(*, exact: bool) -> str:
    """Whether the trained weights are the same, in one word."""
    return "exact" if exact else "lossy"


def saving_text(report: SubModelReport) -> str:
    """What the techniques of a checked sub-model save and cost; empty without any, and where it was not measured."""
    memory, without = report.memory, report.without_techniques
    if memory is None or without is None or not without.transient_bytes:
        return ""
    share = 1 - memory.transient_bytes / without.transient_bytes
    percent = f"{abs(100 * share):.0f} %"
    told = f"saves {percent} of the step's memory" if share >= 0 else f"needs {percent} more memory for a step"
    told += f": {memory_text(memory.transient_bytes)} instead of {memory_text(without.transient_bytes)}"
    if report.seconds_per_step and without.seconds_per_step:
        told += f"; a step takes {report.seconds_per_step / without.seconds_per_step:.2g} times as long"
    return told


@dataclass(frozen=True, slots=True)
class TechniqueParameter:
    """One parameter of a technique, as a form needs it."""

    name: str
    default: Any
    """None without one."""
    required: bool
    options: tuple[Any, ...]
    """Valid words, if it takes nothing else."""
    help: str
    """Its description in the table."""


@lru_cache(maxsize=64)
def parameters_of(technique: type[Technique]) -> tuple[TechniqueParameter, ...]:
    """All parameters of a technique."""
    told = _descriptions(technique)
    return tuple(
        TechniqueParameter(
            name,
            None if field.is_required() else field.get_default(call_default_factory=True),
            field.is_required(),
            get_args(field.annotation) if get_origin(field.annotation) is Literal else (),
            told.get(name, ""),
        )
        for name, field in technique.model_fields.items()
        if name != "name"
    )


def _descriptions(technique: type[Technique]) -> dict[str, str]:
    """What the source says below each field."""
    body = ast.parse(textwrap.dedent(inspect.getsource(technique))).body[0]
    found: dict[str, str] = {}
    for field, told in pairwise(getattr(body, "body", ())):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(told, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(told.value)).split())
    return found


def is_exact(technique: type[Technique], entry: Mapping[str, Any]) -> bool | None:
    """Whether an entry of a spec leaves every bit; None while it is not valid."""
    try:
        return technique.model_validate(entry).exact
    except ValidationError:
        return None
