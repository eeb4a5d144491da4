"""What all commands share: exit codes, arguments, error output, and following a run to its end."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from sqlalchemy.exc import DatabaseError

from unifiednn_core.base import errors
from unifiednn_core.base.errors import BadInput, Finding, IllegalTransition, UnifiedNNError
from unifiednn_core.base.files import set_private_umask
from unifiednn_core.cli import terminal
from unifiednn_core.service.facade import Service
from unifiednn_core.service.gate import Gate, Settings
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.store.database import trouble

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

TOKEN_VARIABLE = "UNIFIEDNN_TOKEN"
_TITLES: dict[type[Exception], str] = {
    errors.NotFound: "Not found",
    IllegalTransition: "Not possible now",
    errors.IntakeFailed: "File not readable",
    errors.Unauthorised: "Not signed in",
    errors.Forbidden: "Not allowed",
}

SpecPath = Annotated[Path, typer.Argument(help="Spec file (JSON), such as sample_models/demo.json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
RunId = Annotated[str, typer.Argument(help="Id of the run; list them with: unifiednn runs")]
SubModelName = Annotated[str, typer.Argument(help="Name of the sub-model.")]
MaybeSubModel = Annotated[str | None, typer.Argument(help="One sub-model; by default the whole run.")]
Folder = Annotated[Path, typer.Option("--to", help="Folder to write into.")]


@contextmanager
def opened(as_json: bool = False) -> Iterator[Service]:
    """Open the service for the local operator, or for the person of UNIFIEDNN_TOKEN; user errors exit with code 2."""
    set_private_umask()
    with refusing(as_json), closing(Service.open()) as service:
        gate, token = Gate(service, Settings()), os.environ.get(TOKEN_VARIABLE)
        yield gate.local() if token is None else gate.acting_by_token(token.strip(), here=True)


@contextmanager
def refusing(as_json: bool) -> Iterator[None]:
    """Print the findings of user errors, and exit with code 2."""
    try:
        yield
    except (UnifiedNNError, OSError, DatabaseError) as error:
        findings = error.findings if isinstance(error, BadInput) else (_as_finding(error),)
        if as_json:
            terminal.print_json({"status": "bad_input", "findings": [finding.model_dump() for finding in findings]})
        else:
            terminal.print_findings(findings)
        raise typer.Exit(BAD_INPUT) from None


def exit_after(state: State, interrupted: bool) -> NoReturn:
    """Exit with the code for the last state of a run."""
    raise typer.Exit(INTERRUPTED if interrupted else FAILED if state in (State.FAILED, State.INTERRUPTED) else DONE)


class Terminated(KeyboardInterrupt):
    """SIGTERM came: this machine is needed for something else, and the run is to go on later."""


def finish(service: Service, run_id: str, as_json: bool) -> NoReturn:
    """Follow a run to its end and print the result. Ctrl-C stops it and keeps its progress; SIGTERM pauses it."""
    signal.signal(signal.SIGTERM, _terminate)
    interrupted = False
    try:
        view = terminal.follow(service, run_id, quiet=as_json)
    except KeyboardInterrupt as interruption:
        interrupted, pauses = True, isinstance(interruption, Terminated)
        told = f"Pausing. Continue it with: unifiednn resume {run_id}" if pauses else "Stopping; progress is kept."
        terminal.say(told, to=terminal.err)
        with suppress(IllegalTransition):  # the run ended at the same moment
            (service.runs.pause if pauses else service.runs.stop)(run_id)
        view = terminal.follow(service, run_id, quiet=True, until=ENDED | {State.PAUSED} if pauses else ENDED)
    if not interrupted:
        service.settle_certificates(run_id)
    if as_json:
        terminal.print_json(service.runs.document(run_id))
    else:
        terminal.print_result(view, service)
    exit_after(view.state, interrupted)


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def bad_option(field: str, message: str, remedy: str) -> BadInput:
    """Build the exception for a wrong option."""
    return BadInput.of("Option", field=field, message=message, remedy=remedy)


def _as_finding(error: UnifiedNNError | OSError | DatabaseError) -> Finding:
    if isinstance(error, OSError):
        where, message = str(error.filename or "file"), f"{error.strerror or error}."
        return Finding(title="Not possible", field=where, message=message, remedy="Name a writable folder.")
    if isinstance(error, DatabaseError):
        said, remedy = trouble(error)
        return Finding(title="Not possible", field="store", message=f"The store cannot be used: {said}.", remedy=remedy)
    title = _TITLES.get(type(error), "Not possible")
    message, _, remedy = str(error).partition(". ")
    remedy = remedy or "List the runs and their states with: unifiednn runs"
    return Finding(title=title, field=title.lower(), message=f"{message.rstrip('.')}.", remedy=remedy)
