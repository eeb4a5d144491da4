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

from unifiednn_core.base import failpoints
from unifiednn_core.base.paths import DEVICES_SETTING, Home, application
from unifiednn_core.cli import (
    access,
    comparisons,
    data,
    devices,
    doctor,
    exports,
    files,
    place,
    queue,
    retention,
    runs,
    simulate,
    terminal,
    webhooks,
)
from unifiednn_core.cli.shared import BAD_INPUT, DONE, AsJson, SpecPath, finish, opened
from unifiednn_core.runtime.cluster import OPTION, ray_address
from unifiednn_core.service.doctor import ALL_USERS
from unifiednn_core.spec.run import PolicySpec, load_run

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
    policy: Annotated[str | None, typer.Option(help="Use this policy instead of the one in the spec.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a hybrid to the end and write every trained model. Ctrl-C stops it and keeps the progress.

    SIGTERM pauses it, so that `unifiednn resume` can go on.
    """
    with opened(as_json) as service:
        asked = load_run(spec)
        if not as_json:
            terminal.print_sweeps(asked)
        if policy is not None:
            asked = asked.model_copy(update={"policy": PolicySpec(name=policy)})
        with terminal.checking(quiet=as_json) as tell:
            base, warn = spec.resolve().parent, terminal.print_findings
            run_id = service.runs.submit(asked, base, on_warnings=warn, on_progress=tell)
        service.start_supervisor()
        if not as_json:
            again = f"Continue it after any interruption with: unifiednn resume {run_id}"
            terminal.say(f"Run {run_id}. {again}", to=terminal.err)
        finish(service, run_id, as_json)


@app.command()
def check(spec: SpecPath, as_json: AsJson = False) -> None:
    """Check a spec and all files it names, without training."""
    with opened(as_json) as service:
        asked = load_run(spec)
        with terminal.checking(quiet=as_json) as tell:
            report = service.runs.check(asked, spec.resolve().parent, on_progress=tell)
        if as_json:
            terminal.print_json(report.model_dump(mode="json"))
        else:
            terminal.print_sweeps(asked)
            terminal.print_findings(report.findings)
            if not report.has_errors:
                terminal.print_devices(report.submodels)
                terminal.say(f"{len(report.submodels)} sub-models can be trained.")
        raise typer.Exit(BAD_INPUT if report.has_errors else DONE)


@app.command()
def inspect(file: Annotated[Path, typer.Argument(help="A model or data file.")], as_json: AsJson = False) -> None:
    """Describe a file without running it."""
    with opened(as_json) as service:
        report = service.library.inspect(file)
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
            terminal.print_json([asdict(card) for card in service.runs.policies()])
        else:
            terminal.print_policies(service.runs.policies())


_OTHERS: tuple[Callable[..., None], ...] = (
    queue.submit,
    comparisons.baseline,
    comparisons.compare,
    files.pack,
    runs.runs,
    runs.pause,
    runs.resume,
    runs.save,
    runs.stop,
    runs.retry,
    runs.edit,
    runs.add,
    exports.download,
    exports.verify,
    exports.export,
    runs.checkpoint,
    access.audit,
    doctor.doctor,
)
for _command in _OTHERS:
    app.command()(_command)
app.command("import")(data.import_file)
app.command("simulate")(simulate.simulate_policies)
app.command("place")(place.place)
app.command("retention")(retention.retention)
app.add_typer(access.token, name="token")
app.add_typer(access.people, name="people")
app.add_typer(devices.devices, name="devices")
app.add_typer(queue.queue, name="queue")
app.add_typer(webhooks.webhooks, name="webhooks")


@app.command("app")
def serve(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.", min=1, max=65535)] = 8501,
    offer: Annotated[
        str | None, typer.Option("--devices", help="Devices of this machine, or none. By default all.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(OPTION, help="Offer the nodes of a Ray cluster, too: auto, local or HOST:PORT.")
    ] = None,
    everybody: Annotated[
        bool, typer.Option(ALL_USERS, help="Without sign-in, answer every user of this machine.")
    ] = False,
) -> None:
    """Serve the dashboard on 127.0.0.1."""
    if offer is not None:
        os.environ[DEVICES_SETTING] = offer
    os.environ["UNIFIEDNN_HOME"] = str(Home.default().root)  # a relative path starts here
    os.chdir(application())  # Streamlit reads its settings from the current folder
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(DONE))  # uvicorn shuts down, then raises it again
    own = [ALL_USERS] if everybody else []
    with opened():  # a store that cannot be used is told here; then app.py opens it, however the server starts
        own += [] if ray is None else [OPTION, ray_address(ray)]
    sys.argv = ["streamlit", "run", "app.py", "--server.port", str(port), "--", *own]
    runpy.run_module("streamlit", run_name="__main__", alter_sys=True)


def main() -> NoReturn:
    """Run the command line; the console script."""
    failpoints.arm_from_environment()
    app()
    raise SystemExit(DONE)
