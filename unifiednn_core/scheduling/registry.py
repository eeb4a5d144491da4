"""All policies by name, with what the command line and the pages need to offer them."""

import difflib
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.priority import Priority
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.scheduling.sjf import ShortestJobFirst

POLICIES: tuple[type[Policy], ...] = (FirstComeFirstServed, Priority, ShortestJobFirst, RoundRobin)
"""Every policy that a spec can name, in the order in which they are offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCard:
    """One parameter of a policy."""

    name: str
    default: object
    valid: str
    """Valid values in words: "epochs, steps or seconds"."""
    choices: tuple[str, ...] = ()
    """The valid values where they are names; empty for numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyCard:
    """What a person reads before choosing a policy."""

    name: str
    summary: str
    parameters: tuple[ParameterCard, ...]


def describe() -> tuple[PolicyCard, ...]:
    """List a card for every policy, in the order in which they are offered."""
    return tuple(_card(policy) for policy in POLICIES)


def policy_text(policy: Policy) -> str:
    """Name a policy with its parameters as the operator reads it: "Round robin, 1 epoch each"."""
    return str(policy)


def policy_named(name: str, parameters: Mapping[str, object]) -> Policy:
    """Make the policy of this name; what is absent from `parameters` takes its default.

    Raises `BadInput` with a finding on `policy.name`, or with one on `policy.<parameter>` for each mistake.
    """
    policy = {policy.name: policy for policy in POLICIES}.get(name)
    if policy is None:
        raise BadInput([_unknown_name(name)])
    card = _card(policy)
    known = [parameter.name for parameter in card.parameters]
    findings = [_unknown_parameter(key, card) for key in parameters if key not in known]
    try:
        # Unknown entries are left out here because pydantic passes over them in a plain dataclass.
        made = TypeAdapter(policy).validate_python({key: parameters[key] for key in known if key in parameters})
    except ValidationError as error:
        findings += [finding for detail in error.errors() for finding in _wrong_value(detail, card)]
    if findings:
        raise BadInput(findings)
    return made


def _card(policy: type[Policy]) -> PolicyCard:
    hints = get_type_hints(policy)
    parameters = []
    for parameter in fields(policy):  # type: ignore[arg-type]  # a Protocol cannot say "is a dataclass"
        choices = get_args(hints[parameter.name]) if get_origin(hints[parameter.name]) is Literal else ()
        valid = parameter.metadata.get("valid") or " or ".join(", ".join(choices).rsplit(", ", 1))
        card = ParameterCard(name=parameter.name, default=parameter.default, valid=valid, choices=choices)
        parameters.append(card)
    return PolicyCard(name=policy.name, summary=policy.summary, parameters=tuple(parameters))


def _unknown_name(name: str) -> Finding:
    names = [policy.name for policy in POLICIES]
    close = difflib.get_close_matches(name.lower().replace("-", "_").replace(" ", "_"), names, n=1)
    guess = f" Did you mean '{close[0]}'?" if close else ""
    return Finding(
        title="Policy",
        field="policy.name",
        message=f"There is no policy '{name}'.{guess}",
        remedy=f"Choose one of: {', '.join(names)}.",
    )


def _unknown_parameter(key: str, card: PolicyCard) -> Finding:
    names = [parameter.name for parameter in card.parameters]
    close = difflib.get_close_matches(key.lower(), names, n=1)
    guess = f" Did you mean '{close[0]}'?" if close else ""
    return Finding(
        title="Policy",
        field=f"policy.{key}",
        message=f"The policy '{card.name}' has no parameter '{key}'.{guess}",
        remedy=f"Choose from: {', '.join(names)}." if names else "Remove it: this policy has no parameters.",
    )


def _wrong_value(detail: ErrorDetails, card: PolicyCard) -> tuple[Finding, ...]:
    own = detail.get("ctx", {}).get("error")
    if isinstance(own, BadInput):  # the policy's own check, which pydantic wraps as a ValueError
        return own.findings
    key = str(detail["loc"][0])
    valid = next(parameter.valid for parameter in card.parameters if parameter.name == key)
    message = f"{reprlib.repr(detail['input'])} is not valid for the parameter '{key}' of '{card.name}'."
    return (Finding(title="Policy", field=f"policy.{key}", message=message, remedy=f"Give {valid}."),)
