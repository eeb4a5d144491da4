"""The same actions as the dashboard, in a terminal.

Exit codes: 0 done, 1 a sub-model or run failed, 2 bad input, 130 interrupted. With `--json` there is exactly one JSON
document on stdout and nothing else.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from unifiednn_core import failpoints
from unifiednn_core.bench.command import bench
from unifiednn_core.commands import access, comparisons, files, runs, terminal
from unifiednn_core.commands.shared import BAD_INPUT, DONE, AsJson, SpecPath, finish, opened
from unifiednn_core.drill.command import drill
from unifiednn_core.home import Home
from unifiednn_core.spec import PolicySpec, load_run

APP = Path(__file__).parent.parent / "app.py"

app = typer.Typer(
    name="unifiednn",
    help="Trains many people's networks on one device as one hybrid model.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def train(
    spec: SpecPath,
    policy: Annotated[str | None, typer.Option(help="Take this policy instead of the one in the spec.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a hybrid to the end and hand every model back. Ctrl-C stops it and keeps what was learnt."""
    with opened(as_json) as service:
        asked = load_run(spec)
        if policy is not None:
            asked = asked.model_copy(update={"policy": PolicySpec(name=policy)})
        run_id = service.submit(asked, spec.resolve().parent, told=terminal.print_findings)
        service.start_supervisor()
        if not as_json:
            again = f"Continue it after whatever happens with: unifiednn resume {run_id}"
            terminal.err.print(f"Run {run_id}. {again}", highlight=False, soft_wrap=True)
        finish(service, run_id, as_json)


@app.command()
def check(spec: SpecPath, as_json: AsJson = False) -> None:
    """Look at a spec and everything that it names, without training."""
    with opened(as_json) as service:
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
    with opened(as_json) as service:
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
    with opened(as_json) as service:
        if as_json:
            terminal.print_json([asdict(card) for card in service.policies()])
        else:
            terminal.print_policies(service.policies())


_OTHERS: tuple[Callable[..., None], ...] = (
    *comparisons.COMMANDS,
    *files.COMMANDS,
    *runs.COMMANDS,
    bench,
    drill,
    access.ledger,
)
for _command in _OTHERS:
    app.command()(_command)
app.add_typer(access.token, name="token")
app.add_typer(access.people, name="people")


@app.command("app")
def serve(port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 8501) -> None:
    """Serve the dashboard on 127.0.0.1."""
    if not APP.is_file():
        terminal.err.print(f"The dashboard is part of the project's folder; {APP} is not there. Start it from a clone.")
        raise typer.Exit(BAD_INPUT)
    os.environ["UNIFIEDNN_HOME"] = str(Home.default().root)  # a relative one is meant from here
    os.chdir(APP.parent)  # Streamlit reads its settings from the folder that it is started in
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(DONE))  # uvicorn ends in order, and then raises it once more
    with opened() as service:
        service.start_supervisor()  # runs that wait go on, though nobody has opened a page
        sys.argv = ["streamlit", "run", APP.name, "--server.port", str(port)]
        runpy.run_module("streamlit", run_name="__main__", alter_sys=True)


def main() -> NoReturn:
    """Run the command line; the console script."""
    failpoints.arm_from_environment()
    app()
    raise SystemExit(DONE)
