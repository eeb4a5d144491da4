"""What a shared submission cannot set, because it belongs to the hybrids that it shares."""

from unifiednn_core.base.errors import Finding
from unifiednn_core.machine.budget import device_type
from unifiednn_core.machine.devices import threads_of
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.devices import CPU
from unifiednn_core.spec.run import RunSpec, parse_run

WORDS = {
    "policy": "policy",
    "lanes": "number of lanes",
    "checkpoint": "checkpoint period",
    "recovery": "recovery",
    "step_limit_s": "step limit",
}
"""Settings of a hybrid that an operator chooses for all who share it."""
PRIVATE = 'or submit it with "hybrid": "private"'


def as_shared(document: object, name: str, device: str | None = None) -> RunSpec:
    """Spec of a shared submission from the fields of one network, by default called `name`, or from a whole spec.

    Raises `BadInput`.
    """
    if isinstance(document, dict) and "submodels" not in document:
        name = str(document.get("name", name))
        document = {"name": name, "submodels": [{"name": name, **document}]}
    if isinstance(document, dict):
        document = {**document, "hybrid": "shared", **({} if device is None else {"device": device})}
    return parse_run(document)


def shared_findings(spec: RunSpec, actor: Actor) -> tuple[Finding, ...]:
    """One finding for each field that a shared submission may not set; none for a private one."""
    if spec.hybrid != "shared":
        return ()
    findings = [
        _finding(field, f"The {words} of shared hybrids is the operator's choice.", f"Leave it out, {PRIVATE}.")
        for field, words in WORDS.items()
        if getattr(spec, field) != RunSpec.model_fields[field].get_default(call_default_factory=True)
    ]
    if spec.memory_limit_bytes is not None:
        message = "A shared hybrid has no memory limit of its own; an operator limits its device."
        findings.append(_finding("memory_limit_bytes", message, f"Leave it out, {PRIVATE}."))
    there = threads_of(spec.device)
    if spec.threads not in (None, there) and device_type(spec.device) == CPU:  # on a GPU they decide no bit
        message = f"Shared hybrids step with {there} threads on '{spec.device}'; this asks for {spec.threads}."
        findings.append(_finding("threads", message, f"Leave it out, {PRIVATE}."))
    for part in spec.submodels if actor.sees_only_own else ():
        if part.priority != 0:
            message = "The priority decides between people, so an operator sets it."
            findings.append(_finding(f"submodels.{part.name}.priority", message, "Leave it out, or ask an operator."))
    return tuple(findings)


def _finding(field: str, message: str, remedy: str) -> Finding:
    return Finding(title="Shared hybrid", field=field, message=message, remedy=remedy)
