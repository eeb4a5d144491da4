"""All policies by name, and their descriptions for command line and pages.

Other packages add policies with an entry point: `[project.entry-points."unifiednn.policies"]` in `pyproject.toml`, then
`mine = "my_package:MyPolicy"`. A notebook adds one to its own process with `register_policy`.
"""

import difflib
import logging
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Literal, TypeVar, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.deadline import EarliestDeadlineFirst
from unifiednn_core.scheduling.fair import FairShares
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.finish_time import FinishTime
from unifiednn_core.scheduling.las import LeastAttainedService
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst
from unifiednn_core.scheduling.srtf import ShortestRemainingTime

POLICIES: tuple[type[Policy], ...] = (
    FirstComeFirstServed,
    Priority,
    ShortestJobFirst,
    RoundRobin,
    ShortestRemainingTime,
    FairShares,
    FinishTime,
    EarliestDeadlineFirst,
    LeastAttainedService,
)
"""The policies of this package, in display order: first the four of the paper."""
BY_PRIORITY = (Priority, FairShares)
"""Those of them that look at priorities."""
ENTRY_POINTS = "unifiednn.policies"
_REGISTERED: dict[str, type[Policy]] = {}
_log = logging.getLogger(__name__)
_AnyPolicy = TypeVar("_AnyPolicy", bound=type[Policy])


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCard:
    """One parameter of a policy."""

    name: str
    default: object
    valid: str
    """Valid values in words: "epochs, steps or seconds"."""
    choices: tuple[str, ...] = ()
    """The valid values if they are names; empty for numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCard:
    """Description of a policy."""

    name: str
    summary: str
    parameters: tuple[ParameterCard, ...]
    by_priority: bool = True
    """Whether priorities matter; of a policy from elsewhere they may."""


def policies() -> tuple[type[Policy], ...]:
    """All policies that a spec can name: of this package, of installed packages, and registered in this process."""
    return (*POLICIES, *_installed(), *_REGISTERED.values())


def register_policy(policy: _AnyPolicy) -> _AnyPolicy:
    """Add a policy in this process; usable as a class decorator. One that was registered before is replaced.

    Raises `ValueError` for the name of a policy of this or an installed package, and `TypeError` for a class that is
    not a frozen dataclass with `name`, `summary`, `decide` and a default for each parameter.
    `unifiednn_core.testing.policies.check_policy` checks the rest of the contract.
    """
    _require_form(policy)
    if policy.name in [known.name for known in (*POLICIES, *_installed())]:
        raise ValueError(f"the policy name '{policy.name}' is taken; choose another one")
    _REGISTERED[policy.name] = policy
    return policy


def describe() -> tuple[PolicyCard, ...]:
    """Describe every policy, in display order."""
    return tuple(_card(policy) for policy in policies())


def policy_named(name: str, parameters: Mapping[str, object]) -> Policy:
    """Make the policy of this name; missing parameters take their defaults.

    Raises `BadInput` with a finding on `policy.name`, or with one on `policy.<parameter>` for each mistake.
    """
    named = {policy.name: policy for policy in policies()}
    policy = named.get(name)
    if policy is None:
        remedy = f"Choose one of: {', '.join(named)}."
        raise BadInput([_unknown("name", name, list(named), f"There is no policy '{name}'", remedy)])
    card = _card(policy)
    known = [parameter.name for parameter in card.parameters]
    remedy = f"Choose from: {', '.join(known)}." if known else "Remove it: this policy has no parameters."
    wrong = [key for key in parameters if key not in known]
    findings = [_unknown(key, key, known, f"The policy '{name}' has no parameter '{key}'", remedy) for key in wrong]
    try:
        # Unknown entries are left out: pydantic ignores them in a plain dataclass.
        made = _adapter(policy).validate_python({key: parameters[key] for key in known if key in parameters})
    except ValidationError as error:
        findings += [finding for detail in error.errors() for finding in _wrong_value(detail, card)]
    if findings:
        raise BadInput(findings)
    return made


@cache
def _installed() -> tuple[type[Policy], ...]:
    """Policies of other packages. Unusable ones are left out and logged."""
    found: list[type[Policy]] = []
    for point in entry_points(group=ENTRY_POINTS):
        try:
            policy = point.load()
            _require_form(policy)
            if policy.name in [known.name for known in (*POLICIES, *found)]:
                raise ValueError(f"the policy name '{policy.name}' is taken")
        except Exception:  # the code of another package can raise anything
            _log.exception("The policy '%s' (%s) cannot be used.", point.name, point.value)
        else:
            found.append(policy)
    return tuple(found)


def _require_form(policy: type[Policy]) -> None:
    settings = getattr(policy, "__dataclass_params__", None)
    texts = [getattr(policy, name, None) for name in ("name", "summary")]
    if not (settings and settings.frozen and callable(getattr(policy, "decide", None))):
        raise TypeError(f"{policy!r} is not a policy: a frozen dataclass with a method 'decide'")
    if not all(isinstance(text, str) and text for text in texts):
        raise TypeError(f"{policy!r} lacks a name or a summary")
    if any(field.default is MISSING for field in fields(policy)):  # type: ignore[arg-type]
        raise TypeError(f"{policy!r} has a parameter without a default")


@cache
def _adapter(policy: type[Policy]) -> TypeAdapter[Policy]:
    return TypeAdapter(policy)  # it takes milliseconds


@cache
def _card(policy: type[Policy]) -> PolicyCard:
    hints = get_type_hints(policy)
    parameters = []
    for parameter in fields(policy):  # type: ignore[arg-type]  # a Protocol cannot say "is a dataclass"
        choices = get_args(hints[parameter.name]) if get_origin(hints[parameter.name]) is Literal else ()
        valid = parameter.metadata.get("valid") or " or ".join(", ".join(choices).rsplit(", ", 1))
        valid = valid or f"a value of type {getattr(hints[parameter.name], '__name__', hints[parameter.name])}"
        parameters.append(ParameterCard(name=parameter.name, default=parameter.default, valid=valid, choices=choices))
    ranked = policy in BY_PRIORITY or policy not in POLICIES
    return PolicyCard(name=policy.name, summary=policy.summary, parameters=tuple(parameters), by_priority=ranked)


def _unknown(field: str, given: str, valid: Sequence[str], message: str, remedy: str) -> Finding:
    close = difflib.get_close_matches(given.lower().replace("-", "_").replace(" ", "_"), valid, n=1)
    guess = f" Did you mean '{close[0]}'?" if close else ""
    return Finding(title="Policy", field=f"policy.{field}", message=f"{message}.{guess}", remedy=remedy)


def _wrong_value(detail: ErrorDetails, card: PolicyCard) -> tuple[Finding, ...]:
    own = detail.get("ctx", {}).get("error")
    if isinstance(own, BadInput):  # the policy's own check, which pydantic wraps as a ValueError
        return own.findings
    key = str(detail["loc"][0])
    valid = next(parameter.valid for parameter in card.parameters if parameter.name == key)
    message = f"{reprlib.repr(detail['input'])} is not valid for the parameter '{key}' of '{card.name}'."
    return (Finding(title="Policy", field=f"policy.{key}", message=message, remedy=f"Give {valid}."),)
