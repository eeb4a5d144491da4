"""Whether a waiting run may start: who may share its process, and the memory it needs against what is free."""

import logging
from collections.abc import Sequence

from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import Budget, shortage
from unifiednn_core.preflight.estimate import baseline_bytes, hybrid_bytes
from unifiednn_core.preflight.forecast import parts_of
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec, is_concurrent
from unifiednn_core.spec.sharing import SharingRule
from unifiednn_core.store.people import parties_of
from unifiednn_core.store.schema import HYBRID, RunRow, SubModelRow

_log = logging.getLogger(__name__)


def lacks_permission(run: RunRow, rows: Sequence[SubModelRow], rule: SharingRule) -> str | None:
    """Permission that the people of a run lack, as text after "waits for".

    A baseline trains each by itself. If all is to be stopped, the worker only saves the progress and nothing trains.
    """
    trains = any(State(row.state) not in ENDED | {State.STOPPING} for row in rows)
    if run.mode != HYBRID or not trains:
        return None
    return rule.permission_for(party.person for party in parties_of(run, rows))


def waits_for(run: RunRow, rows: Sequence[SubModelRow], budget: Budget) -> str | None:
    """Reason why a run cannot start yet, as text after "waits for"; None if it can.

    A run that is to be stopped needs next to nothing. A concurrent baseline that can never fit starts all the same:
    not to fit is its result.
    """
    needed_bytes = None if State(run.state) is State.STOPPING else now_needed_bytes(run, rows)
    if needed_bytes is None:
        return None
    hopeless = budget.total_bytes is not None and needed_bytes > budget.total_bytes
    return None if is_concurrent(run.mode) and hopeless else shortage(run.device, needed_bytes, budget)


def now_needed_bytes(run: RunRow, rows: Sequence[SubModelRow]) -> int | None:
    """Predicted peak of the rest of a run under its current policy and batch splits; None without a prediction."""
    try:
        predicted = {part.name: part for part in parts_of(run.prediction)}
        splits = {part["name"]: part["hyperparameters"].get("batch_split", 1) for part in run.spec["submodels"]}
        open_names = [row.name for row in rows if State(row.state) not in ENDED]
        parts = [predicted[name].with_split(splits[name]) for name in open_names if name in predicted]
        if not parts:
            return None
        kind, context_bytes = run.device.partition(":")[0], int(run.prediction["context_bytes"])
        if run.mode != HYBRID:
            return baseline_bytes(parts, run.mode, device_type=kind, context_bytes=context_bytes)
        policy = PolicySpec.model_validate(run.spec.get("policy", {}))
        chosen = policy_named(policy.name, policy.parameters)
        used = allocator.of_workers()
        company_bytes = int(run.prediction.get("company_bytes", 0)) if len(parts) > 1 else 0
        peak_bytes = hybrid_bytes(parts, chosen, device_type=kind, context_bytes=context_bytes, allocator=used)
        return peak_bytes + company_bytes
    except (BadInput, ValueError, KeyError, TypeError):  # another version wrote it; it must not keep a run waiting
        _log.exception("The prediction of run %s cannot be read; it starts without regard to memory.", run.id)
        return None
