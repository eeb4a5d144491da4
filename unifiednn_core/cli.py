"""The same actions as the dashboard, in a terminal.

Exit codes: 0 done, 1 a sub-model or run failed, 2 bad input, 130 interrupted. With `--json` there is exactly one JSON
document on stdout and nothing else.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from unifiednn_core import terminal
from unifiednn_core.errors import BadInput, Finding, IllegalTransition, IntakeFailed, NotFound, UnifiedNNError
from unifiednn_core.lifecycle import State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, load_run

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
APP = Path(__file__).parent.parent / "app.py"

app = typer.Typer(
    name="unifiednn",
    help="Trains many people's networks on one device as one hybrid model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

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
            view = terminal.follow(service, run_id, quiet=as_json)
        except KeyboardInterrupt:
            interrupted = True
            terminal.err.print("Stopping; what was learnt is kept.")
            _stop(service, run_id)
            view = terminal.follow(service, run_id, quiet=True)
        if as_json:
            terminal.print_json(service.document(run_id))
        else:
            terminal.print_result(view, service)
        failed = view.state in (State.FAILED, State.INTERRUPTED)
        raise typer.Exit(INTERRUPTED if interrupted else FAILED if failed else DONE)


@app.command()
def check(spec: SpecPath, as_json: AsJson = False) -> None:
    """Look at a spec and everything that it names, without training."""
    with _service(as_json) as service:
        report = service.check(load_run(spec), spec.resolve().parent)
        if as_json:
            terminal.print_json(report.model_dump(mode="json"))
        else:
            terminal.print_findings(report.findings)
            if not report.has_errors:
                terminal.out.print(f"{len(report.submodels)} sub-models can be trained.")
        raise typer.Exit(BAD_INPUT if report.has_errors else DONE)


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A model or data file.")], as_json: AsJson = False) -> None:
    """Say what a file is; nothing of it is run."""
    with _service(as_json) as service:
        report = service.inspect(file)
        if as_json:
            terminal.print_json(report.model_dump(mode="json"))
        else:
            terminal.print_file(report)
            terminal.print_findings(report.findings)
        raise typer.Exit(BAD_INPUT if any(f.severity == "error" for f in report.findings) else DONE)


@app.command()
def policies(as_json: AsJson = False) -> None:
    """List the policies and their parameters."""
    with _service(as_json) as service:
        if as_json:
            terminal.print_json([asdict(card) for card in service.policies()])
        else:
            terminal.print_policies(service.policies())


@app.command()
def runs(as_json: AsJson = False) -> None:
    """List the runs, the newest first."""
    with _service(as_json) as service:
        if as_json:
            terminal.print_json([terminal.run_summary(view) for view in service.runs()])
        else:
            terminal.print_runs(service.runs())


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
        terminal.out.print(str(shutil.copy(source, to)), soft_wrap=True)


@app.command("app")
def serve(port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 8501) -> None:
    """Serve the dashboard on 127.0.0.1."""
    if not APP.is_file():
        terminal.err.print(f"The dashboard is part of the project's folder; {APP} is not there. Start it from a clone.")
        raise typer.Exit(BAD_INPUT)
    os.chdir(APP.parent)  # Streamlit reads its settings from the folder that it is started in
    command = [sys.executable, "-m", "streamlit", "run", APP.name, "--server.port", str(port)]
    os.execv(sys.executable, command)


def main() -> NoReturn:
    """Run the command line; the console script."""
    app()
    raise SystemExit(DONE)


@contextmanager
def _service(as_json: bool = False) -> Iterator[Service]:
    """Open the service; what people did wrong becomes findings and exit code 2."""
    service: Service | None = None
    try:
        service = Service.open()
        yield service
    except (UnifiedNNError, OSError) as error:
        findings = error.findings if isinstance(error, BadInput) else (_as_finding(error),)
        if as_json:
            terminal.print_json({"status": "bad_input", "findings": [finding.model_dump() for finding in findings]})
        else:
            terminal.print_findings(findings)
        raise typer.Exit(BAD_INPUT) from None
    finally:
        if service is not None:
            service.close()


def _as_finding(error: UnifiedNNError | OSError) -> Finding:
    if isinstance(error, OSError):
        where, message = str(error.filename or "file"), f"{error.strerror or error}."
        return Finding(title="Not possible", field=where, message=message, remedy="Name a folder that can be written.")
    titles = {NotFound: "Not found", IllegalTransition: "Not possible now", IntakeFailed: "File not readable"}
    title = titles.get(type(error), "Not possible")
    return Finding(title=title, field=title.lower(), message=str(error), remedy="")


def _order(issue: Callable[[Service], State]) -> None:
    with _service() as service:
        terminal.out.print(str(issue(service)))


def _stop(service: Service, run_id: str) -> None:
    try:
        service.stop(run_id)
    except IllegalTransition:  # it has ended in the same moment
        return
