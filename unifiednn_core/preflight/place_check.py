"""A sub-model on several devices, tried at the check: where its operators run, what each device needs, its bits."""

from dataclasses import replace

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.units import memory_text
from unifiednn_core.engine.placed import placed
from unifiednn_core.formats.draws import draws
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import PlacementReport
from unifiednn_core.preflight.technique_check import has_same_bits
from unifiednn_core.preflight.trial import OutOfTime, Trial, Tried, at_most_cpu
from unifiednn_core.spec.placement import runs_of
from unifiednn_core.techniques.placement.place import planned
from unifiednn_core.techniques.placement.plan import PlacementPlan

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
