"""What must hold of a cluster, as pure functions over what its store wrote down."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A hybrid as one commit left it."""

    at_s: float
    hybrid_id: str
    devices: tuple[str, ...]
    held: bool
    """Whether it holds them: it has a worker, or one is being started."""
    attempt: int
    """Number of workers that it has had."""
    worker: str = ""
    """Process id; empty while none is known."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A recorded checkpoint, or the begin of an attempt, with its step."""

    at_s: float
    run_id: str
    submodel: str
    what: str
    attempt: int
    step: int


def double_claims(claims: Iterable[Claim]) -> list[str]:
    """Moments at which two hybrids held one device, from the history of all hybrids."""
    holders: dict[str, str] = {}
    held: dict[str, tuple[str, ...]] = {}
    wrong = []
    for claim in claims:
        for device in held.pop(claim.hybrid_id, ()):
            if holders.get(device) == claim.hybrid_id:
                del holders[device]
        if not claim.held:
            continue
        held[claim.hybrid_id] = claim.devices
        for device in claim.devices:
            other = holders.get(device)
            if other is not None:
                wrong.append(f"{other} and {claim.hybrid_id} held {device} at the same time")
            holders[device] = claim.hybrid_id
    return list(dict.fromkeys(wrong))


def two_workers(claims: Iterable[Claim]) -> list[str]:
    """Hybrids in which a second worker registered for one claim."""
    claimed_at: dict[str, int] = {}
    """Number of earlier workers at the begin of each claim that lasts."""
    wrong = []
    for claim in claims:
        if not claim.held:
            claimed_at.pop(claim.hybrid_id, None)
        elif claim.attempt > claimed_at.setdefault(claim.hybrid_id, claim.attempt) + 1:
            wrong.append(f"{claim.hybrid_id} got worker {claim.attempt} before the one before it was given up")
    return list(dict.fromkeys(wrong))


def lost_checkpoints(marks: Iterable[Mark]) -> list[str]:
    """Attempts that began before the newest checkpoint that was recorded: that one was lost."""
    newest: dict[tuple[str, str], int] = {}
    wrong = []
    for mark in marks:
        key = mark.run_id, mark.submodel
        if mark.what == "checkpoint":
            newest[key] = mark.step
        elif mark.step < newest.get(key, 0):
            wrong.append(
                f"attempt {mark.attempt} of {mark.submodel} of {mark.run_id} began at step {mark.step}, though the"
                f" checkpoint of step {newest[key]} was recorded"
            )
    return wrong


def backward_checkpoints(marks: Iterable[Mark]) -> list[str]:
    """Checkpoints that replaced a newer one of the same sub-model without a new attempt in between."""
    newest: dict[tuple[str, str], int] = {}
    wrong = []
    for mark in marks:
        key = mark.run_id, mark.submodel
        if mark.what == "attempt":
            newest[key] = mark.step
        elif 0 < mark.step < newest.get(key, 0):
            wrong.append(f"{mark.submodel} of {mark.run_id}: checkpoint {mark.step} was recorded after {newest[key]}")
        else:
            newest[key] = mark.step
    return wrong


def unsaved_s(marks: Sequence[Mark], deaths: Iterable[tuple[str, str, float]]) -> list[float]:
    """Seconds since the newest recorded checkpoint, or the begin of the attempt, at each death of a sub-model's worker.

    `deaths` are run, sub-model and moment.
    """
    ages = []
    for run_id, submodel, died_at_s in deaths:
        own = [one.at_s for one in marks if (one.run_id, one.submodel) == (run_id, submodel) and one.at_s <= died_at_s]
        if own:
            ages.append(died_at_s - max(own))
    return ages


def orphaned(files: Iterable[str], known: Iterable[str]) -> list[str]:
    """Files of the blob store that belong to no row, by their keys.

    Part of a file that its writer's death cut off goes with its row.
    """
    rows = set(known)
    keys = {re.sub(r"(^|/)\.([^/]*?)\.[^/.]+\.part$", r"\1\2", file): file for file in files}
    return [f"the blob {file} belongs to nothing" for key, file in sorted(keys.items()) if key not in rows]
