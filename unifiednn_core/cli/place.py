"""`unifiednn place`: which operators of a network would run on which of several devices. Nothing is trained."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from unifiednn_core.base.units import memory_text, step_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import BAD_INPUT, DONE, AsJson, bad_option, opened
from unifiednn_core.preflight.report import PlacementReport
from unifiednn_core.spec.placement import MOST_DEVICES, PLACEMENT
from unifiednn_core.spec.run import RunSpec, load_run, parse_run
from unifiednn_core.views.placement import device_rows


def place(
    file: Annotated[Path, typer.Argument(metavar="SPEC_OR_MODEL", help="Run spec (JSON), or a .pt2 file.")],
    devices: Annotated[int, typer.Option(help="Number of devices.", min=1, max=MOST_DEVICES)] = 2,
    cap: Annotated[list[float] | None, typer.Option(help="MiB of each device; one for all, or one for each.")] = None,
    data: Annotated[Path | None, typer.Option(help="For a .pt2 file: labelled data of its classes.")] = None,
    batch: Annotated[int, typer.Option(help="For a .pt2 file: batch size.", min=1)] = 32,
    only: Annotated[str | None, typer.Option("--submodel", help="One sub-model of a spec; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Place a network on several devices under hard limits of memory: what each does and needs, and how fast it is.

    Costs are measured on this machine. To train so, write "placement" into the spec.
    """
    with opened(as_json) as service:
        asked = _placed(_asked(file, data, batch), only, {"devices": devices, "cap_mib": _caps(cap or [])})
        with terminal.checking(quiet=as_json) as tell:
            report = service.runs.check(asked, file.resolve().parent, on_progress=tell)
        found = {name: one.placement for name, one in report.submodels.items() if one.placement is not None}
        told = [one for one in report.findings if one.severity == "error" or one.field.endswith(f".{PLACEMENT}")]
        if as_json:
            findings = [finding.model_dump(mode="json") for finding in told]
            plans = {name: _without_tasks(one).model_dump(mode="json") for name, one in found.items()}
            terminal.print_json({"findings": findings, "placements": plans})
        else:
            terminal.print_findings(told)
            if rows := device_rows(report.submodels):
                terminal.print_table(rows[0], [tuple(map(str, row.values())) for row in rows])
            for name, one in found.items():
                terminal.say(f"{name}: {_speed(one)}")
        raise typer.Exit(BAD_INPUT if report.has_errors else DONE)


def _asked(file: Path, data: Path | None, batch: int) -> RunSpec:
    if file.suffix == ".json":
        return load_run(file)
    if data is None:
        message = f"The operators of {file.name} are measured on samples."
        raise bad_option("--data", message, "Name a data file with --data, or give a run spec.")
    one = {"name": "network", "model": file.name, "train_data": str(data.resolve())}
    return parse_run({"submodels": [one | {"hyperparameters": {"batch_size": batch}}]})


def _placed(spec: RunSpec, only: str | None, placement: dict[str, Any]) -> RunSpec:
    """Ask for this placement of one sub-model, or of all. Raises `BadInput`."""
    document = json.loads(spec.to_json())
    chosen = [one for one in document["submodels"] if only in (None, one["name"])]
    if not chosen:
        raise bad_option("--submodel", f"The spec has no sub-model '{only}'.", "Name one of its sub-models.")
    for one in chosen:
        one[PLACEMENT] = placement
    return parse_run({**document, "submodels": chosen})


def _caps(caps: list[float]) -> float | list[float] | None:
    return caps if len(caps) > 1 else next(iter(caps), None)


def _without_tasks(report: PlacementReport) -> PlacementReport:
    devices = tuple(replace(device, tasks=()) for device in report.plan.devices)
    return report.model_copy(update={"plan": replace(report.plan, devices=devices)})


def _speed(report: PlacementReport) -> str:
    plan = report.plan
    seconds = (plan.makespan_s, plan.program_s, plan.work_s, plan.bound_s)
    step, program, alone, bound = map(step_text, seconds)
    return (
        f"a step takes {step}, {program} in the order of the program, and {alone} on one device. No placement takes "
        f"less than {bound} (this one {plan.makespan_s / (plan.bound_s or 1.0):.2f} times that). It sends "
        f"{memory_text(plan.sent_bytes)}."
    )
