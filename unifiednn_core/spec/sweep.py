"""Sweeps: one entry of a spec that stands for many sub-models. Pure.

`"sweep": {"learning_rate": [0.01, 0.1], "seed": [1, 2]}` on a sub-model says that it trains once with each combination.
Where a spec is read it is replaced by these sub-models, its members, so that nothing else has to know of sweeps.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from pydantic import ValidationError

from unifiednn_core.base.errors import Finding
from unifiednn_core.spec.choice import shown
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.spec.hyperparameters import Hyperparameters

SWEEP, SWEEP_OF = "sweep", "sweep_of"
MOST_MEMBERS = 256
LONGEST_NAME = 64
_SHORT = {"learning_rate": "lr", "batch_size": "batch", "accumulation_steps": "accumulate", "weight_decay": "decay"}
ENTRIES = tuple(name for name in Hyperparameters.model_fields if name != "techniques")
"""Hyper-parameters that a sweep can vary; an argument by its path: `optimizer_args.momentum`."""


def expanded(data: object, is_valid: Callable[[object], bool]) -> tuple[object, tuple[Finding, ...]]:
    """Return a spec with its sweeps replaced by their members, and findings about its sweeps.

    `is_valid` says whether a sub-model without its sweep is valid. If it is not, or its sweep has findings, it stays
    one sub-model without sweep, so that each mistake is reported once.
    """
    parts = data.get("submodels") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(parts, list | tuple):
        return data, ()
    if not any(isinstance(part, Mapping) and SWEEP in part for part in parts):
        return data, ()
    findings: list[Finding] = []
    found: list[object] = []
    for part in parts:
        if not isinstance(part, Mapping) or SWEEP not in part:
            found.append(part)
            continue
        alone = {entry: value for entry, value in part.items() if entry != SWEEP}
        values, wrong = _values(part[SWEEP], _field(part.get("name")))
        if wrong or not is_valid(alone):
            findings += wrong
            found.append(alone)
            continue
        members = _members(alone, values)
        wrong = _wrong_members(members, values, str(alone["name"]))
        findings += wrong
        found += [alone] if wrong else members
    return {**data, "submodels": found}, tuple(findings)


def members_by_sweep(submodels: Iterable[Any]) -> dict[str, list[str]]:
    """Names of the members of each sweep, in order; `submodels` are those of a `RunSpec`."""
    found: dict[str, list[str]] = {}
    for part in submodels:
        if part.sweep_of is not None:
            found.setdefault(part.sweep_of, []).append(part.name)
    return found


def told_once(findings: Iterable[Finding], submodels: Sequence[Any]) -> tuple[Finding, ...]:
    """Merge findings that all members of a sweep share; `submodels` are those of a `RunSpec`."""
    sweeps = members_by_sweep(submodels)
    sweep_of = {name: sweep for sweep, names in sweeps.items() for name in names}
    merged: dict[tuple[str | None, Finding], list[Finding]] = {}
    for finding in findings:
        top, *path = finding.field.split(".")
        sweep = sweep_of.get(path[0]) if top == "submodels" and path else None
        field = finding.field if sweep is None else ".".join((top, sweep, *path[1:]))
        merged.setdefault((sweep, finding.model_copy(update={"field": field})), []).append(finding)
    told = ([one] if sweep and len(each) == len(sweeps[sweep]) else each for (sweep, one), each in merged.items())
    return tuple(one for some in told for one in some)


def spaced(first: float, last: float, count: int, *, log: bool) -> list[float]:
    """Return `count` numbers from `first` to `last`, to four digits; with `log` each is the same multiple of the one
    before, and both ends have to be above 0.
    """
    shares = [place / max(1, count - 1) for place in range(count)]
    exact = [first * (last / first) ** share if log else first + (last - first) * share for share in shares]
    return [float(f"{value:.4g}") for value in exact]


def _values(sweep: object, field: str) -> tuple[dict[str, Sequence[object]], list[Finding]]:
    """Values by entry, and findings about the sweep itself."""
    if not isinstance(sweep, Mapping) or not sweep:
        message = f"A sweep cannot be {_text(sweep)}."
        remedy = 'Give hyper-parameters with their values, such as {"learning_rate": [0.01, 0.1]}.'
        return {}, [_finding(field, message, remedy)]
    findings = [
        _finding(f"{field}.{entry}", *wrong) for entry, values in sweep.items() if (wrong := _wrong(str(entry), values))
    ]
    count = prod(len(values) for values in sweep.values() if isinstance(values, list | tuple))
    if not findings and count > MOST_MEMBERS:
        message = f"This sweep has {count} combinations."
        findings.append(_finding(field, message, f"Leave out values: a sweep has at most {MOST_MEMBERS}."))
    return {str(entry): values for entry, values in sweep.items()}, findings


def _wrong(entry: str, values: object) -> tuple[str, str] | None:
    """Message and remedy about one entry of a sweep; None if it is in order."""
    first, *more = entry.split(".")
    nested = first.endswith("_args") or first in _EXAMPLES
    if first not in ENTRIES or (more and not nested) or "" in more:
        close = difflib.get_close_matches(first, ENTRIES, 1)
        guess = f"Did you mean '{close[0]}'? " if close and close[0] != entry else ""
        return f"There is no hyper-parameter '{entry[:60]}' to vary.", f"{guess}Choose one of {', '.join(ENTRIES)}."
    if not more and nested:
        return f"'{entry}' has entries of its own.", f"Name one of them, such as '{_EXAMPLES.get(entry, entry)}'."
    if not isinstance(values, list | tuple):
        return f"The values cannot be {_text(values)}.", "Give a list in brackets, [...]."
    if not values:
        return "The list of values is empty.", "Give at least one value, or leave this entry out."
    if again := next((value for place, value in enumerate(values) if value in values[:place]), None):
        return f"The value {_text(again)} occurs twice.", "Keep one of them."
    return None


_EXAMPLES = {
    "optimizer_args": "optimizer_args.weight_decay",
    "criterion_args": "criterion_args.label_smoothing",
    "lr_scheduler": "lr_scheduler.args.gamma",
    "gradient_clipping": "gradient_clipping.norm",
    "warm_up": "warm_up.steps",
    "sampler": "sampler.window",
    "ema": "ema.decay",
    "early_stopping": "early_stopping.patience",
}


def _members(alone: Mapping[str, Any], values: Mapping[str, Sequence[object]]) -> list[dict[str, Any]]:
    """Sub-models of all combinations; the last entry varies fastest."""
    combinations = [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]
    named = zip(_names(str(alone["name"]), combinations), combinations, strict=True)
    return [
        {**alone, "name": name, SWEEP_OF: alone["name"], "hyperparameters": _with(alone, combination)}
        for name, combination in named
    ]


def _with(alone: Mapping[str, Any], combination: Mapping[str, object]) -> dict[str, Any]:
    """Hyper-parameters of a sub-model with the values of one combination."""
    found: dict[str, Any] = dict(alone.get("hyperparameters") or {})
    for entry, value in combination.items():
        *path, last = entry.split(".")
        here = found
        for step in path:
            inner = here.get(step)
            here[step] = here = dict(inner) if isinstance(inner, Mapping) else {}
        here[last] = value
    return found


def _names(name: str, combinations: Sequence[Mapping[str, object]]) -> list[str]:
    """Name each combination by its values, or by its number where such names are too long or not distinct."""
    named = ["-".join([name, *(_suffix(entry, value) for entry, value in one.items())]) for one in combinations]
    if len({one.lower() for one in named}) == len(named) and max(map(len, named)) <= LONGEST_NAME:
        return named
    digits = len(str(len(combinations)))
    return [f"{name[: LONGEST_NAME - 1 - digits]}-{place:0{digits}}" for place in range(1, len(combinations) + 1)]


def _suffix(entry: str, value: object) -> str:
    """`lr0_01` for the learning rate 0.01."""
    last = entry.rpartition(".")[2]
    return re.sub(r"[^A-Za-z0-9-]+", "_", f"{_SHORT.get(last, last)}{shown(value)}").strip("_")


def _wrong_members(members: Iterable[Mapping[str, Any]], values: Mapping[str, object], name: str) -> list[Finding]:
    """Findings about the values of a sweep, each once."""
    found: dict[tuple[str, str], Finding] = {}
    for member in members:
        try:
            Hyperparameters.model_validate(member["hyperparameters"])
        except ValidationError as error:
            for detail in error.errors():
                told = finding_of(detail, member["hyperparameters"])
                entry = next((one for one in values if told.field.startswith(one)), None)
                entry = entry or next((one for one in values if one.split(".")[0] == str(detail["loc"][0])), None)
                field = f"submodels.{name}.hyperparameters.{told.field}" if entry is None else f"{_field(name)}.{entry}"
                found.setdefault((field, told.message), told.model_copy(update={"field": field}))
    return list(found.values())


def _field(name: object) -> str:
    return f"submodels.{name if isinstance(name, str) and name else '?'}.{SWEEP}"


def _text(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _finding(field: str, message: str, remedy: str) -> Finding:
    return Finding(
        title=field.rpartition(".")[2].replace("_", " ").capitalize(), field=field, message=message, remedy=remedy
    )
