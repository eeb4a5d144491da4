"""Techniques and placements tried on a network at the check: whether they work for it, and keep the bits.

Also what they save: a step is measured again without them, and a technique that saves nothing gets a warning.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from unifiednn_core.base.errors import Finding, Fix, NotApplicable
from unifiednn_core.base.units import memory_text, percent_text
from unifiednn_core.engine.placed import placed
from unifiednn_core.formats.draws import draws
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import PlacementReport, WithoutTechniques
from unifiednn_core.preflight.trial import OutOfTime, Trial, Tried, at_most_cpu
from unifiednn_core.spec.placement import runs_of
from unifiednn_core.spec.techniques import Technique, VirtualNodes, name_of
from unifiednn_core.techniques.build import NONE, Techniques, built
from unifiednn_core.techniques.placement.place import planned
from unifiednn_core.techniques.placement.plan import PlacementPlan


def check_techniques(trial: Trial, tried: Tried) -> None:
    """Raise `BadInput` if a technique does not work for the network, or changes a bit although it is exact.

    The network and the default generator stay as they are.
    """
    if not tried.techniques.in_steps:
        return
    title, entry = "Technique does not work", "hyperparameters.techniques"
    try:
        with_them = _learned(trial, tried, tried.techniques)
    except NotApplicable as error:
        raise trial.refusal(title, entry, str(error), error.remedy) from None
    if not tried.techniques.exact or _same_bits(with_them, without := _learned(trial, tried, NONE)):
        return
    if _same_bits(without, _learned(trial, tried, NONE)):  # else it gives other bits each time, which says nothing
        message = "The techniques would change the bits of this network: it keeps something between two calls besides "
        message += "weights, buffers and random numbers."
        raise trial.refusal(title, entry, message, "Leave them out, or try each by itself.")


def has_same_bits(trial: Trial, other: Trial, tried: Tried) -> bool:
    """Whether a step of few samples has the same bits by the networks of two trials, or other ones each time."""
    ours = _learned(trial, tried, NONE)
    return _same_bits(ours, _learned(other, tried, NONE)) or not _same_bits(ours, _learned(trial, tried, NONE))


def _learned(trial: Trial, tried: Tried, techniques: Techniques) -> list[Tensor]:
    """Gradients, buffers and loss of a step of few samples, by the network as its file has it."""
    step = tried.step
    with torch.random.fork_rng(devices=[]):
        module = trial.definition.build()
        torch.manual_seed(trial.spec.hyperparameters.seed or 0)
        batch = step.prepare(trial.train.batch(slice(0, trial.batch_size)), training=True)
        with techniques.part(module, batch.tensors):
            loss = step.loss(tried.criterion, step.forward(module, batch), batch)
            loss.backward()  # type: ignore[no-untyped-call]
    gradients = [one.grad for one in module.parameters() if one.grad is not None]
    return [*gradients, *module.buffers(), loss.detach()]


def _same_bits(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> bool:
    return len(ours) == len(theirs) and all(
        torch.equal(_bits(one), _bits(other)) for one, other in zip(ours, theirs, strict=True)
    )


def _bits(tensor: Tensor) -> Tensor:
    """Its bytes: NaN equals itself, and 0.0 is not -0.0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


LEAST_SHARE = 0.02
"""A technique that saves less of the temporary memory of a step gets a warning."""


def without(trial: Trial, tried: Tried, measured: Callable[[Trial, Tried], MemoryNeed]) -> WithoutTechniques:
    """Measure a step without all techniques, and without each of several."""
    asked = trial.spec.hyperparameters.techniques
    plain = measured(*left_out(trial, tried))
    if len(asked) == 1:
        return WithoutTechniques(memory=plain, without_one={_name(asked[0]): plain.transient_bytes})
    each = {_name(one): measured(*left_out(trial, tried, one)).transient_bytes for one in asked}
    return WithoutTechniques(memory=plain, without_one=each)


def left_out(trial: Trial, tried: Tried, technique: Technique | None = None) -> tuple[Trial, Tried]:
    """The same sub-model without one technique, or without any."""
    hyper = trial.spec.hyperparameters
    kept = [one for one in hyper.techniques if technique is not None and one != technique]
    spec = trial.spec.model_copy(update={"hyperparameters": hyper.model_copy(update={"techniques": kept})})
    return replace(trial, spec=spec), replace(tried, techniques=built(kept))


def useless(trial: Trial, memory: MemoryNeed, found: WithoutTechniques | None) -> list[Finding]:
    """A warning for each technique that should save memory of a step and does not."""
    if found is None:
        return []
    asked = [one for one in trial.spec.hyperparameters.techniques if one.saves == "step" and not _is_open(one)]
    pairs = [(one, memory.transient_bytes, found.without_one[_name(one)]) for one in asked]
    return [
        trial.warning(
            "Technique saves nothing",
            "hyperparameters.techniques",
            _message(trial, one, with_bytes, without_bytes),
            one.remedy,
            Fix(label="Remove it", value=_name(one), verb="remove"),
        )
        for one, with_bytes, without_bytes in pairs
        if with_bytes > (1 - LEAST_SHARE) * without_bytes
    ]


def _message(trial: Trial, technique: Technique, with_bytes: int, without_bytes: int) -> str:
    of_what = f"the temporary memory of a step of {trial.spec.name}"
    sizes = f"{memory_text(with_bytes)} instead of {memory_text(without_bytes)}"
    if with_bytes > without_bytes:
        return f"{technique.title} makes {of_what} larger ({sizes})."
    saved = percent_text(1 - with_bytes / without_bytes) if without_bytes else percent_text(0.0)
    return f"{technique.title} saves {saved} of {of_what} ({sizes})."


def _is_open(technique: Technique) -> bool:
    """Whether it saves as much as is left to it."""
    return isinstance(technique, VirtualNodes) and technique.is_open


def _name(technique: Technique) -> str:
    return name_of(type(technique))


PLACE_CPU_S = 150.0
LEAST_WORK = 0.01
"""Share of the work below which a device does nothing."""
MOST_TASKS = 6000
"""A plan of more tasks is reported without them."""


def check_placement(trial: Trial, tried: Tried, device_type: str) -> tuple[Trial, PlacementReport | None]:
    """Place the network that was tried, if its spec asks for it; returns the trial of the placed network.

    Raises `BadInput` if it cannot be placed within its limits.
    """
    asked = trial.spec.placement
    if asked is None:
        return trial, None
    if asked.claim and device_type == "cuda" and (reason := _differs_on_gpus(trial, tried)):
        message = f"On several GPUs its bits would be others than on one: {reason}."
        raise trial.refusal("Placement", "placement.claim", message, "Change that, or leave out 'claim'.")
    try:
        with at_most_cpu(PLACE_CPU_S):
            found = placed(trial.spec, trial.definition, trial.train, by_clock=True)
    except OutOfTime:
        message = f"No placement was found within {PLACE_CPU_S:g} s of processor time."
        raise trial.refusal("Placement", "placement", message, "Remove 'placement', or give looser limits.") from None
    if found is None or found.ops is None:
        return trial, None
    other = replace(trial, definition=found.of(trial.definition))
    if not has_same_bits(trial, other, tried):
        message = "The placed network would have other bits: it keeps something between two calls besides weights, "
        message += "buffers and random numbers."
        raise trial.refusal("Placement", "placement", message, "Remove 'placement'.")
    found.apply(tried.module)
    plan = _short(planned(found.graph, found.ops, asked.caps_bytes))
    return other, PlacementReport(runs=runs_of(found.device_of), plan=plan)


def need_of_each(need: MemoryNeed, trial: Trial, report: PlacementReport | None, device_type: str) -> MemoryNeed:
    """The need on the fullest of several GPUs; that of logical devices, which share one memory, stays that of all."""
    asked = trial.spec.placement
    if asked is None or report is None or not asked.claim or device_type != "cuda":
        return need
    fullest = max(report.plan.devices, key=lambda device: device.peak_bytes)
    steps = dict.fromkeys(need.whole, fullest.peak_bytes - fullest.weight_bytes)
    changes = {"weights_bytes": fullest.weight_bytes, "gradients_bytes": 0, "optimizer_bytes": 0}
    return need.model_copy(update={**changes, "whole": steps, "parts": steps, "evaluation": {}}).changed()


def _differs_on_gpus(trial: Trial, tried: Tried) -> str:
    """Why several GPUs would give other bits than one; empty if they would not."""
    hyper = trial.spec.hyperparameters
    if tried.step.draws or draws(tried.module):
        return "it draws random numbers, and each GPU has its own"
    if hyper.gradient_clipping is not None and hyper.gradient_clipping.norm is not None:
        return "a norm over gradients of several GPUs is summed in another order"
    return "its moving average is on one device" if hyper.ema is not None else ""


def placement_doubts(trial: Trial, report: PlacementReport | None) -> list[Finding]:
    """A warning where one device does all the work."""
    devices = () if report is None else report.plan.devices
    used = [device for device in devices if device.work_s > LEAST_WORK * sum(one.work_s for one in devices)]
    if len(used) != 1 or len(devices) == 1:
        return []
    message = f"One of {len(devices)} devices computes the whole network of {trial.spec.name}: it needs "
    message += f"{memory_text(used[0].peak_bytes)} there, and more devices would not be faster."
    remedy = "Remove 'placement', or give each device a lower limit."
    return [trial.warning("One device does all", "placement", message, remedy)]


def _short(plan: PlacementPlan) -> PlacementPlan:
    if sum(len(device.tasks) for device in plan.devices) <= MOST_TASKS:
        return plan
    return replace(plan, devices=tuple(replace(device, tasks=()) for device in plan.devices))
