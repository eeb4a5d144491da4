"""The same actions as the dashboard, in a terminal.

Exit codes: 0 done, 1 a sub-model or run failed, 2 bad input, 130 interrupted. With `--json` there is exactly one JSON
document on stdout and nothing else.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from unifiednn_core.errors import BadInput, Finding, IllegalTransition, IntakeFailed, NotFound, UnifiedNNError
from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, load_run
from unifiednn_core.units import duration_text, memory_text, percent_text
from unifiednn_core.views import RunView

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
POLL_S = 0.25
APP = Path(__file__).parent.parent / "app.py"

app = typer.Typer(
    name="unifiednn",
    help="Trains many people's networks on one device as one hybrid model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_out, _err = Console(), Console(stderr=True)

SpecPath = Annotated[Path, typer.Argument(help="Spec file (JSON), such as sample_models/demo.json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
RunId = Annotated[str, typer.Argument(help="Id of the run; list them with: unifiednn runs")]
SubModelName = Annotated[str | None, typer.Argument(help="One sub-model; without it the whole run is meant.")]


@app.command()
def train(
    spec: SpecPath,
    policy: Annotated[str | None, typer.Option(help="Take this policy instead of the one in the spec.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a hybrid to the end and hand every model back. Ctrl-C stops it and keeps what was learnt."""
    with _service(as_json) as service:
        asked = load_run(spec)
        if policy is not None:
            asked = asked.model_copy(update={"policy": PolicySpec(name=policy)})
        run_id = service.submit(asked, spec.resolve().parent)
        service.start_supervisor()
        interrupted = False
        try:
            view = _follow(service, run_id, quiet=as_json)
        except KeyboardInterrupt:
            interrupted = True
            _err.print("Stopping; what was learnt is kept.")
            _stop(service, run_id)
            view = _follow(service, run_id, quiet=True)
        if as_json:
            _print_json(service.document(run_id))
        else:
            _print_result(view, service)
        failed = view.state in (State.FAILED, State.INTERRUPTED)
        raise typer.Exit(INTERRUPTED if interrupted else FAILED if failed else DONE)


@app.command()
def check(spec: SpecPath, as_json: AsJson = False) -> None:
    """Look at a spec and everything that it names, without training."""
    with _service(as_json) as service:
        report = service.check(load_run(spec), spec.resolve().parent)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if as_json:
            _print_json(report.model_dump(mode="json"))
        else:
            for finding in report.findings:
                _print_finding(finding)
            if not errors:
                _out.print(f"{len(report.submodels)} sub-models can be trained.")
        raise typer.Exit(BAD_INPUT if errors else DONE)


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A model or data file.")], as_json: AsJson = False) -> None:
    """Say what a file is; nothing of it is run."""
    with _service(as_json) as service:
        report = service.inspect(file)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if as_json:
            _print_json(report.model_dump(mode="json"))
        else:
            table = Table(show_header=False, box=None)
            table.add_row("kind", report.kind)
            table.add_row("format", report.format)
            table.add_row("size", memory_text(report.size_bytes))
            table.add_row("sha256", report.sha256)
            for name, value in report.facts.items():
                table.add_row(name.replace("_", " "), escape(_short(value)))
            _out.print(table)
            for finding in report.findings:
                _print_finding(finding)
        raise typer.Exit(BAD_INPUT if errors else DONE)


@app.command()
def policies(as_json: AsJson = False) -> None:
    """List the policies and their parameters."""
    with _service(as_json) as service:
        cards = service.policies()
        if as_json:
            _print_json(
                [
                    {
                        "name": card.name,
                        "summary": card.summary,
                        "parameters": [
                            {"name": part.name, "default": part.default, "valid": part.valid}
                            for part in card.parameters
                        ],
                    }
                    for card in cards
                ]
            )
            return
        table = Table("policy", "what it does", "parameters")
        for card in cards:
            parameters = "\n".join(f"{part.name} = {part.default} ({part.valid})" for part in card.parameters)
            table.add_row(card.name, card.summary, escape(parameters) or "none")
        _out.print(table)


@app.command()
def runs(as_json: AsJson = False) -> None:
    """List the runs, the newest first."""
    with _service(as_json) as service:
        views = service.runs()
        if as_json:
            _print_json([_summary(view) for view in views])
            return
        if not views:
            _out.print("There are no runs yet. Start one with: unifiednn train sample_models/demo.json")
            return
        table = Table("run", "name", "status", "policy", "device", "progress", "elapsed")
        for view in views:
            progress, elapsed = f"{100 * view.progress:.0f} %", duration_text(view.elapsed_s)
            table.add_row(view.run_id, escape(view.name), view.state, view.policy, view.device, progress, elapsed)
        _out.print(table)


@app.command()
def pause(run_id: RunId, submodel: SubModelName = None) -> None:
    """Pause a run, or one of its sub-models, at the next step."""
    _order(lambda service: service.pause(run_id, submodel))


@app.command()
def resume(run_id: RunId, submodel: SubModelName = None) -> None:
    """Let a paused run or sub-model go on."""
    _order(lambda service: service.resume(run_id, submodel))


@app.command()
def stop(run_id: RunId, submodel: SubModelName = None) -> None:
    """End a run, or one of its sub-models, and keep what was learnt."""
    _order(lambda service: service.stop(run_id, submodel))


@app.command()
def download(
    run_id: RunId,
    submodel: Annotated[str, typer.Argument(help="Name of the sub-model.")],
    to: Annotated[Path, typer.Option(help="Folder to write into.")] = Path(),
) -> None:
    """Copy the zip of a separated model into a folder."""
    with _service() as service:
        source = service.artifact(run_id, submodel)
        if not to.is_dir():
            raise BadInput.of("No such folder", field="--to", message=f"{to} is no folder.", remedy="Make it first.")
        target = to / source.name
        target.write_bytes(source.read_bytes())
        _out.print(str(target))


@app.command("app")
def serve(port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 8501) -> None:
    """Serve the dashboard on 127.0.0.1."""
    if not APP.is_file():
        _err.print(f"The dashboard is part of the project's folder, which is not at {APP.parent}. Start it from there.")
        raise typer.Exit(BAD_INPUT)
    os.chdir(APP.parent)  # Streamlit reads its settings from the folder that it is started in
    command = [sys.executable, "-m", "streamlit", "run", APP.name, "--server.port", str(port)]
    os.execv(sys.executable, command)


def main() -> NoReturn:
    """Run the command line; the console script."""
    app()
    raise SystemExit(DONE)


class _service:  # noqa: N801  (used as a function)
    """Opens the service and turns what people did wrong into messages and exit code 2."""

    def __init__(self, as_json: bool = False):
        self._as_json = as_json

    def __enter__(self) -> Service:
        self._opened = Service.open()
        return self._opened

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._opened.close()
        if isinstance(error, BadInput):
            findings: Sequence[Finding] = error.findings
        elif isinstance(error, UnifiedNNError):
            findings = [_as_finding(error)]
        else:
            return
        if self._as_json:
            _print_json({"status": "bad_input", "findings": [finding.model_dump() for finding in findings]})
        else:
            for finding in findings:
                _print_finding(finding)
        raise typer.Exit(BAD_INPUT) from None


def _as_finding(error: UnifiedNNError) -> Finding:
    titles = {NotFound: "Not found", IllegalTransition: "Not possible now", IntakeFailed: "File not readable"}
    title = titles.get(type(error), "Not possible")
    return Finding(title=title, field=title.lower(), message=str(error), remedy="")


def _order(issue: Callable[[Service], State]) -> None:
    with _service() as service:
        _out.print(str(issue(service)))


def _stop(service: Service, run_id: str) -> None:
    try:
        service.stop(run_id)
    except IllegalTransition:  # it has ended in the same moment
        return


def _follow(service: Service, run_id: str, quiet: bool) -> RunView:
    """Wait until a run has ended, with one bar for each sub-model on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figures]}"), TimeElapsedColumn())
    with Progress(*columns, console=_err, disable=quiet or not _err.is_terminal) as progress:
        bars: dict[str, TaskID] = {}
        while True:
            view = service.observe(run_id)
            for part in view.submodels:
                if part.name not in bars:
                    bars[part.name] = progress.add_task(part.name, total=part.steps_total, figures="")
                accuracy = "" if part.test_accuracy is None else f", test {percent_text(part.test_accuracy)}"
                figures = f"{part.state}, epoch {part.epochs_done}/{part.epochs}{accuracy}"
                progress.update(bars[part.name], completed=part.steps_done, figures=figures)
            if view.state in ENDED:
                return view
            time.sleep(POLL_S)


def _print_result(view: RunView, service: Service) -> None:
    table = Table("sub-model", "status", "epochs", "test accuracy", "wait", "service", "turnaround", "model")
    for part in view.submodels:
        model = str(service.artifact(view.run_id, part.name)) if part.artifact else part.cause or "none"
        table.add_row(
            part.name,
            part.state,
            f"{part.epochs_done}/{part.epochs}",
            percent_text(part.test_accuracy),
            duration_text(part.wait_s),
            duration_text(part.service_s),
            duration_text(part.turnaround_s),
            escape(model),
        )
    _out.print(table)
    memory = f"{memory_text(view.peak_memory_bytes)} ({view.memory_source or 'no source'})"
    _out.print(f"{view.run_id}: {view.state}, makespan {duration_text(view.elapsed_s)}, peak memory {memory}")
    if view.cause:
        _out.print(escape(f"{view.cause} {view.remedy or ''}"))


def _summary(view: RunView) -> dict[str, object]:
    return {
        "run_id": view.run_id,
        "name": view.name,
        "status": view.state.value,
        "policy": view.policy,
        "device": view.device,
        "progress": view.progress,
        "created_at_s": view.created_at_s,
        "elapsed_s": view.elapsed_s,
    }


def _print_finding(finding: Finding) -> None:
    style = "bold red" if finding.severity == "error" else "yellow"
    text = f"{escape(finding.message)} {escape(finding.remedy)}".rstrip()
    _err.print(f"[{style}]{finding.severity}[/] [bold]{escape(finding.field)}[/]: {text}", soft_wrap=True)


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2))  # noqa: T201  (the one thing that goes to stdout)


def _short(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 100 else f"{text[:97]}..."
