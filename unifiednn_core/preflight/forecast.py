"""Predicts the memory of a checked run and compares it with its device, before it is queued."""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from operator import itemgetter
from typing import Any, NamedTuple

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.units import memory_text
from unifiednn_core.machine import allocator
from unifiednn_core.machine.budget import Budget, budget_of, device_type, slot
from unifiednn_core.machine.cores import lanes_of
from unifiednn_core.machine.devices import best_match, threads_of
from unifiednn_core.preflight.estimate import (
    Part,
    baseline_bytes,
    context_key,
    context_of,
    holder_bytes,
    hybrid_bytes,
    predict,
)
from unifiednn_core.preflight.fixed_nodes import fixed
from unifiednn_core.preflight.prediction import MemoryNeed, Prediction
from unifiednn_core.preflight.report import CheckReport, SubModelReport
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.company import Fall, MemoryRoom
from unifiednn_core.scheduling.registry import POLICIES, policy_named
from unifiednn_core.spec.run import MEANING, Mode, RunSpec, SubModelSpec
from unifiednn_core.store.library import Measured

# The memory of a sub-model depends on these hyper-parameters, and on network, data and device.
_HYPERPARAMETERS = (
    "batch_size",
    "batch_split",
    "optimizer",
    "optimizer_args",
    "parameter_groups",
    "precision",
    "ema",
    "criterion",
    "criterion_args",
    "techniques",
)
_NETWORK: Any = {"split": True, "part": True, "placement": {"devices", "cap_mib", "claim", "schedule"}}

Peak = Callable[[Sequence[Part], Policy], int]
Found = tuple[int, str, str]
"""Peak after a change, entry of the spec that it changes, request without a full stop."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Memory that a run will need."""

    prediction: Prediction
    parts: tuple[Part, ...]
    findings: tuple[Finding, ...] = ()
    """An error if the device never has that much."""

    @property
    def document(self) -> dict[str, Any]:
        """The content of `RunRow.prediction`: the prediction, and the parts to repeat it from."""
        return {**asdict(self.prediction), "parts": [part.model_dump(mode="json") for part in self.parts]}


def parts_of(document: Mapping[str, Any]) -> tuple[Part, ...]:
    """The parts of a stored prediction; empty if nothing was predicted."""
    return tuple(Part.model_validate(part) for part in document.get("parts", ()))


def memory_room(document: Mapping[str, Any]) -> MemoryRoom:
    """What a stored prediction allows to sub-models that step at once."""
    if "company_bytes" not in document:  # nothing was predicted
        return MemoryRoom()
    parts, peak_bytes = document["submodels"], document["peak_bytes"]
    needs = {part.name: part.need for part in parts_of(document)}
    data = {sha256: size for need in needs.values() for sha256, size in need.data.items()}
    working = {part["name"]: part["gradients_bytes"] + part["transient_bytes"] for part in parts}
    budget_bytes = document["budget_bytes"]
    return MemoryRoom(
        working_bytes=working,
        weights_bytes={part["name"]: part["weights_bytes"] for part in parts},
        optimizer_bytes={part["name"]: part["optimizer_bytes"] for part in parts},
        falls={name: _falls(need, working.get(name, 0)) for name, need in needs.items()},
        company_bytes=document["company_bytes"],
        tensors_bytes=peak_bytes - document["context_bytes"] - sum(data.values()),
        spare_bytes=None if budget_bytes is None else budget_bytes - peak_bytes,
    )


def _falls(need: MemoryNeed, working_bytes: int) -> tuple[Fall, ...]:
    """Falls of a sub-model with what its allocator keeps, which does not come down."""
    kept_bytes = max(0, working_bytes - need.gradients_bytes - need.transient_bytes)
    return tuple(fall._replace(bytes=fall.bytes + kept_bytes) for fall in need.falls)


def forecast(
    spec: RunSpec, report: CheckReport, measured: Measured | None, *, mode: Mode = "hybrid", others: Sequence[Part] = ()
) -> Forecast | None:
    """Predict the memory of a checked run; None if the need of a sub-model is not known.

    `others` are already in the hybrid. A concurrent baseline never gets a finding: "it does not fit" is a result.
    """
    known = _known(spec, report, measured, others)
    if known is None:
        return None
    parts, policy, kind, used, context_bytes = known
    device = slot(spec.device)
    most_bytes, most_text = _most(spec, device, budget_of(device))
    place = best_match(spec.device)
    own_cores = 0 if place is None else len(place.cpus)
    lanes = lanes_of(spec.lanes, spec.threads or threads_of(spec.device), kind, own_cores)
    predicted = predict(
        parts, policy, device_type=kind, context_bytes=context_bytes, allocator=used, lanes=lanes, most_bytes=most_bytes
    )
    prediction = replace(predicted, budget_bytes=most_bytes, budget_text=most_text)

    def peak(parts: Sequence[Part], policy: Policy) -> int:
        if mode == "hybrid":
            return hybrid_bytes(parts, policy, device_type=kind, context_bytes=context_bytes, allocator=used)
        return baseline_bytes(parts, mode, device_type=kind, context_bytes=context_bytes)

    needed_bytes = peak(parts, policy)
    if most_bytes is None or needed_bytes <= most_bytes or mode == "concurrent":
        return Forecast(prediction, parts)
    message = f"The run needs {memory_text(needed_bytes)} on {device} with the policy {spec.policy.name}, "
    message += f"{memory_text(context_bytes)} of it for the process itself; "
    message += f"there are {memory_text(most_bytes)} {most_text}."
    no_change = "device", "No single change is enough. Use smaller networks or batches, or fewer sub-models."
    field, remedy = smallest_change(parts, policy, peak, most_bytes, report.submodels) or no_change
    finding = Finding(title="Too little memory", field=field, message=message, remedy=remedy)
    return Forecast(prediction, parts, (finding,))


class _Known(NamedTuple):
    """What the memory of a checked run depends on."""

    parts: tuple[Part, ...]
    policy: Policy
    device_type: str
    allocator: str
    context_bytes: int


def _known(spec: RunSpec, report: CheckReport, measured: Measured | None, others: Sequence[Part]) -> _Known | None:
    needs = {name: facts.memory for name, facts in report.submodels.items() if facts.memory is not None}
    try:
        policy = policy_named(spec.policy.name, spec.policy.parameters)
    except BadInput:
        return None
    if any(part.name not in needs for part in spec.submodels):
        return None
    kind, used = device_type(spec.device), allocator.of_workers()
    keys = {part.name: memory_key(spec, part, report) for part in spec.submodels}
    remembered_context = context_key(kind, version("torch"), used)
    known = {} if measured is None else measured.recall([*keys.values(), remembered_context])
    asked = [
        Part(
            name=part.name,
            need=needs[part.name],
            plain=_plain(report.submodels[part.name]),
            priority=part.priority,
            deadline_s=part.deadline_s,
            parameters=report.submodels[part.name].parameters,
            epochs=part.hyperparameters.epochs,
            steps_per_epoch=max(1, report.submodels[part.name].steps_per_epoch),
            measured_bytes=known.get(keys[part.name]),
        )
        for part in spec.submodels
    ]
    context_bytes = context_of(kind, known.get(remembered_context), used)
    return _Known((*others, *asked), policy, kind, used, context_bytes)


def _plain(facts: SubModelReport) -> MemoryNeed | None:
    return facts.whole or (None if facts.without_techniques is None else facts.without_techniques.memory)


def with_fixed_nodes(
    spec: RunSpec, report: CheckReport, measured: Measured | None, others: Sequence[Part] = ()
) -> CheckReport:
    """The report with numbers for the virtual nodes that the spec leaves open, such that the hybrid fits if it can."""

    def fitting(spec: RunSpec, report: CheckReport) -> Collection[str]:
        most_bytes, _ = _most(spec, slot(spec.device), budget_of(slot(spec.device)))
        known = _known(spec, report, measured, others)
        if known is None or most_bytes is None:
            return report.submodels.keys()
        parts, policy, kind, used, context_bytes = known
        peaks = holder_bytes(parts, policy, device_type=kind, context_bytes=context_bytes, allocator=used)
        return {name for name, peak_bytes in peaks.items() if peak_bytes <= most_bytes}

    return fixed(spec, report, fitting)


def memory_key(spec: RunSpec, submodel: SubModelSpec, report: CheckReport) -> str:
    """Key of the measured memory of a sub-model: graph, shape of the data, training, device, torch version."""
    facts, hyper = report.submodels[submodel.name], submodel.hyperparameters
    document = {
        # The graph without its weights: architecture, or operators in order, and their sizes.
        "graph": (facts.format, facts.operators, facts.parameters, facts.weights_bytes),
        "architecture": None if submodel.architecture is None else submodel.architecture.model_dump(mode="json"),
        "input_shape": facts.input_shape,
        "scaled": (submodel.scale, submodel.mean, submodel.std) != (None, None, None),
        "step": submodel.model_dump(mode="json", include=MEANING - {"scale", "mean", "std"}),
        **submodel.model_dump(mode="json", include=_NETWORK, exclude_none=True),
        "tested": submodel.test_data is not None,
        **hyper.model_dump(mode="json", include=set(_HYPERPARAMETERS)),
        "profile": spec.profile,
        "device": device_type(spec.device),
        "torch": version("torch"),
        "allocator": allocator.of_workers(),  # a measurement on the host includes what it keeps
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _most(spec: RunSpec, device: str, budget: Budget) -> tuple[int | None, str]:
    """Limit of the run, and its source."""
    limit_bytes, total_bytes = spec.memory_limit_bytes, budget.total_bytes
    if limit_bytes is not None and (total_bytes is None or limit_bytes < total_bytes):
        return limit_bytes, "by memory_limit_bytes of the spec"
    return total_bytes, "" if total_bytes is None else f"on {device} in all"


def smallest_change(
    parts: Sequence[Part], policy: Policy, peak: Peak, most_bytes: int, names: Collection[str]
) -> tuple[str, str] | None:
    """Entry of the spec and remedy of the first change after which `peak` is at most `most_bytes`; None without one.

    `names` are the sub-models that can still be changed. Another policy trains the same weights, a larger batch split
    differs in rounding, a smaller batch trains differently, and a run without one sub-model trains that later.
    """
    for peak_bytes, entry, text in _changes(parts, policy, peak, names):
        if peak_bytes <= most_bytes:
            return entry, f"{text}: then {memory_text(peak_bytes)} are needed."
    return None


def _changes(parts: Sequence[Part], policy: Policy, peak: Peak, names: Collection[str]) -> Iterator[Found]:
    now_bytes = peak(parts, policy)
    peaks = [(peak(parts, other()), other.name) for other in POLICIES]
    for peak_bytes, name in sorted(peaks, key=itemgetter(0)):  # of equals, the first in display order
        if peak_bytes < now_bytes and name != policy.name:
            yield peak_bytes, "policy.name", f'Choose the policy "{name}"'
    open_parts = [part for part in parts if part.name in names]
    factors = [2**n for n in range(1, max((part.need.batch_size for part in open_parts), default=1).bit_length())]
    asked = [
        ("batch_split", part, factor)
        for factor in factors
        for part in open_parts
        if not part.need.nodes and part.need.batch_split < factor <= part.need.batch_size
    ]
    asked += [
        ("batch_size", part, part.need.batch_size // factor)
        for factor in factors
        for part in open_parts
        if part.need.batch_size // factor >= part.need.batch_split
    ]
    for entry, part, value in asked:
        changed = [part.changed(**{entry: value}) if other is part else other for other in parts]
        field = f"submodels.{part.name}.hyperparameters.{entry}"
        yield peak(changed, policy), field, f'Set "{entry}" of {part.name} to {value}'
    if len(parts) > 1:
        rests = [(peak([other for other in parts if other is not part], policy), part.name) for part in open_parts]
        for peak_bytes, name in sorted(rests, reverse=True):  # the smallest sub-model that is enough
            yield peak_bytes, f"submodels.{name}", f"Submit {name} as a separate run"
