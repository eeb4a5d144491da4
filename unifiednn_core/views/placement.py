"""What a check says of a sub-model on several devices."""

from collections.abc import Mapping

from unifiednn_core.base.units import memory_text, percent_text
from unifiednn_core.preflight.report import SubModelReport
from unifiednn_core.views.figures.board import Chart
from unifiednn_core.views.figures.placement import placement


def device_rows(reports: Mapping[str, SubModelReport]) -> list[dict[str, object]]:
    """A row for each device of each sub-model that has several."""
    rows: list[dict[str, object]] = []
    for name, report in reports.items():
        if report.placement is None:
            continue
        work_s = report.placement.plan.work_s or 1.0
        for number, device in enumerate(report.placement.plan.devices):
            counts = sum(count for place, count in report.placement.runs if place == number)
            limit = "none" if device.cap_bytes is None else memory_text(device.cap_bytes)
            rows.append(
                {
                    "Sub-model": name,
                    "Device": number,
                    "Operators": counts,
                    "Peak": memory_text(device.peak_bytes),
                    "Limit": limit,
                    "Weights": memory_text(device.weight_bytes),
                    "Work": percent_text(device.work_s / work_s),
                }
            )
    return rows


def device_line(report: SubModelReport) -> str:
    """Peak of each device in one line; empty for a sub-model without a placement."""
    if report.placement is None:
        return ""
    plan = report.placement.plan
    peaks = [
        f"device {number} needs {memory_text(device.peak_bytes)}"
        if device.cap_bytes is None
        else f"device {number} needs {memory_text(device.peak_bytes)} of {memory_text(device.cap_bytes)}"
        for number, device in enumerate(plan.devices)
    ]
    return f"{', '.join(peaks)}; a step sends {memory_text(plan.sent_bytes)}"


def plans(reports: Mapping[str, SubModelReport]) -> list[Chart]:
    """A drawing of the plan of each sub-model that has several devices; none of a plan without its tasks."""
    label = "What each device does in a step, and what it holds"
    drawn = {name: one.placement.plan for name, one in reports.items() if one.placement is not None}
    return [
        Chart(f"plan-{name}", name, placement(plan), label, "seconds", f"plan-{name}", wide=True)
        for name, plan in drawn.items()
        if any(device.tasks for device in plan.devices)
    ]
