"""Events and commands as the sentences that people read. Pure."""

from collections.abc import Mapping
from typing import Any

from unifiednn_core.base.errors import DamagedData
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.events import Code
from unifiednn_core.store.schema import EventRow
from unifiednn_core.views.not_learning import sentence


def event_text(event: EventRow) -> str:
    """Sentence for one event of a run's history."""
    fields, name = event.fields, event.submodel
    match event.code:
        case Code.ENTERED:
            cause = f" {fields['cause']}" if "cause" in fields else ""
            return f"{name or fields['name']} is {event.state}.{cause}"
        case Code.ASKED:
            return f"Requested: {command_text(name, fields)}."
        case Code.APPLIED:
            at_step = f", at step {fields['step']}" if "step" in fields else ""
            return _sentence(f"{command_text(name, fields)}{at_step}")
        case Code.DECLINED:
            return _sentence(fields["reason"])
        case Code.UNDONE:
            return _sentence(f"{fields['verb']}: undone by a later {fields['by']}")
        case Code.OBSOLETE:
            return _sentence(f"{fields['verb']}: came too late: {fields['name']} is {fields['found']}")
        case Code.DONE:
            return _sentence(f"{fields['verb']}: done")
        case Code.CONTINUED:
            return f"{name} continues at step {fields['step']}; {fields['lost_steps']} steps are trained again."
        case Code.RESTARTED:
            return "The baseline starts again: a measurement has to run in one piece."
        case Code.PLACED:
            return f"{name} was placed on {fields['device']}."
        case Code.LEFT:
            return f"{name} left {fields['device']}: {fields['reason'].rstrip('.')}."
        case Code.WORKER_LOST:
            wait = f", in {fields['wait_s']:g} s" if fields.get("wait_s") else ""
            return f"{fields['cause']} It continues from its last checkpoints{wait}."
        case Code.FAILED:
            return f"{fields['cause']} {fields['remedy']}"
        case Code.DATA_CHANGED:
            return f"{DamagedData(name or '', fields['data'])} Its results cannot be trusted."
        case Code.PROCESS_CHANGED:
            settings = ", ".join(fields["settings"])
            return f"{name} changed settings of the whole process ({settings}). They were put back after its step."
        case Code.NOT_LEARNING if fields.get("over"):
            return f"{name} learns, as of epoch {fields['epoch']}."
        case Code.NOT_LEARNING:
            return f"{sentence(name or '', fields)}."
        case Code.UNRECORDED:
            return f"A report could not be recorded: {fields['error']}."
        case Code.RECORDED if "refused" in fields:
            return f"Steps of {name} run operator by operator: {fields['refused']}."
        case Code.RECORDED:
            return f"Steps of {name} are replayed from a CUDA graph, {fields['gain']:.1f} times as fast."
        case Code.GANGED if "parted" in fields:
            return f"{name} steps by itself. {fields['parted']}"
        case Code.GANGED:
            return f"{name} steps together with {fields['others']} others, {fields['gain']:.1f} times as fast."
        case Code.CHECKPOINT:
            return f"Checkpoint of {name} at step {fields['step']}."
        case Code.SEPARATED:
            return f"{name} was separated: {fields['archive']}."
        case Code.CERTIFIED:
            return f"The certificate of {name} holds: its file gives what the hybrid gave."
        case Code.UNCERTIFIED:
            return f"The certificate of {name} does not hold. {' '.join(fields['findings'])}"
        case _:  # warned, refused, illegal move
            return str(fields.get("text", ""))


def command_text(submodel: str | None, brief: Mapping[str, Any]) -> str:
    """Text for a command, from `commands.brief_of`: "priority 3 for lenet"."""
    whom = f" for {submodel}" if submodel else ""
    match brief["verb"]:
        case Verb.PRIORITY | Verb.EPOCHS | Verb.DEVICES | Verb.MOVES as verb:
            return f"{verb} {brief['value']}{whom}"
        case Verb.DEADLINE:
            return f"no deadline{whom}" if brief["value"] is None else f"deadline {brief['value']:g} s{whom}"
        case Verb.ORDER:
            return f"order {', '.join(brief['names'])}"
        case Verb.POLICY:
            return f"policy {brief['policy']}"
        case Verb.ADD:
            return f"add {brief['added']}"
        case verb:
            return f"{verb}{whom}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
