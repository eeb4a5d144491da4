"""What a waiting run may do: who may share its process, and the memory that it is predicted to need."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine import allocator
from unifiednn_core.machine.cores import lanes_of
from unifiednn_core.preflight.estimate import Part, baseline_bytes, hybrid_bytes, predict
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.devices import type_named
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import HybridSettings, PolicySpec
from unifiednn_core.spec.sharing import SharingRule
from unifiednn_core.spec.techniques import VirtualNodes, stored_nodes
from unifiednn_core.store.hybrids import Resident
from unifiednn_core.store.people import parties_of
from unifiednn_core.store.schema import HYBRID, HybridRow, RunRow, SubModelRow

_log = logging.getLogger(__name__)


def lacks_permission(run: RunRow, rows: Sequence[SubModelRow], rule: SharingRule) -> str | None:
    """Permission that the people of a run lack, as text after "waits for".

    A baseline trains each by itself. If all is to be stopped, the worker only saves the progress and nothing trains.
    """
    trains = any(State(row.state) not in ENDED | {State.STOPPING} for row in rows)
    if run.mode != HYBRID or not trains:
        return None
    return rule.permission_for(party.person for party in parties_of(run, rows))


def now_needed_bytes(run: RunRow, rows: Sequence[SubModelRow], device_type: str, used: str) -> int | None:
    """Predicted peak of the rest of a run under its current policy and batch splits; None without a prediction.

    `used` is the allocator of workers.
    """
    try:
        still = [row.name for row in rows if State(row.state) not in ENDED]
        asked = [(part["name"], part["hyperparameters"]) for part in run.spec["submodels"] if part["name"] in still]
        said = json.dumps([run.prediction, asked, run.spec.get("policy", {})])
        return _needed_bytes(said, tuple(still), run.mode, device_type, used)
    except (BadInput, ValueError, KeyError, TypeError):  # another version wrote it; it must not keep a run waiting
        _log.exception("The prediction of run %s cannot be read; it starts without regard to memory.", run.id)
        return None


@lru_cache(maxsize=4096)
def _needed_bytes(said: str, still: tuple[str, ...], mode: str, device_type: str, used: str) -> int | None:
    """The same, from what a run says as JSON and its open sub-models: placement asks it for all runs in each tick."""
    prediction, asked, policy = json.loads(said)
    parts = _parts_of(prediction, dict(asked), still)
    if not parts:
        return None
    context_bytes = int(prediction["context_bytes"])
    if mode != HYBRID:
        return baseline_bytes(parts, mode, device_type=device_type, context_bytes=context_bytes)
    named = PolicySpec.model_validate(policy)
    chosen = policy_named(named.name, named.parameters)
    company_bytes = int(prediction.get("company_bytes", 0)) if len(parts) > 1 else 0
    peak_bytes = hybrid_bytes(parts, chosen, device_type=device_type, context_bytes=context_bytes, allocator=used)
    return peak_bytes + company_bytes


def shared_prediction(hybrid: HybridRow, members: Sequence[Resident], most_bytes: int | None) -> dict[str, Any]:
    """Memory prediction of a shared hybrid, made of those of its members; empty if one of them has none."""
    parts = [
        part.model_copy(update={"name": member.key})
        for member in members
        for part in open_parts(member.run, [member.row])
    ]
    if not parts or len(parts) < len(members):
        return {}
    settings, kind = HybridSettings.model_validate(hybrid.settings), type_named(hybrid.device or "")
    found = predict(
        parts,
        policy_named(settings.policy.name, settings.policy.parameters),
        device_type=kind,
        context_bytes=max(int(member.run.prediction["context_bytes"]) for member in members),
        allocator=allocator.of_workers(),
        lanes=lanes_of(settings.lanes, hybrid.threads, kind),
        most_bytes=most_bytes,
    )
    return {**asdict(found), "budget_bytes": most_bytes, "parts": [part.model_dump(mode="json") for part in parts]}


def open_parts(run: RunRow, rows: Sequence[SubModelRow]) -> list[Part]:
    """The predicted parts of these sub-models that have not ended, with their batch splits and nodes of now."""
    asked = {part["name"]: part["hyperparameters"] for part in run.spec["submodels"]}
    return _parts_of(run.prediction, asked, [row.name for row in rows if State(row.state) not in ENDED])


def _parts_of(prediction: Mapping[str, Any], asked: Mapping[str, Any], still: Sequence[str]) -> list[Part]:
    predicted = {part["name"]: part for part in prediction.get("parts", ())}
    now = [
        (predicted[name], stored_nodes(asked[name]), int(asked[name].get("batch_split", 1)))
        for name in still
        if name in predicted
    ]
    return [_part_of(json.dumps(one)) for one in now]


@lru_cache(maxsize=16_384)
def _part_of(said: str) -> Part:
    """A part as of now, from what its run says of it as JSON: placement asks for all that is open in each tick."""
    predicted, nodes, split = json.loads(said)
    part = Part.model_validate(predicted)
    return part.with_nodes(VirtualNodes.model_validate(nodes)) if nodes else part.with_split(split)
