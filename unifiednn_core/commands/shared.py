"""What all commands share: exit codes, arguments, how mistakes are told, and how a run is followed to its end."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Annotated, NoReturn, cast

import typer
from sqlalchemy.exc import DatabaseError

from unifiednn_core.access.gate import Gate
from unifiednn_core.access.people import Settings
from unifiednn_core.access.scoped import ScopedService
from unifiednn_core.commands import terminal
from unifiednn_core.errors import (
    BadInput,
    Finding,
    Forbidden,
    IllegalTransition,
    IntakeFailed,
    NotFound,
    Unauthorised,
    UnifiedNNError,
)
from unifiednn_core.lifecycle import State
from unifiednn_core.service import Service

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

TOKEN_VARIABLE = "UNIFIEDNN_TOKEN"

SpecPath = Annotated[Path, typer.Argument(help="Spec file (JSON), such as sample_models/demo.json.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
RunId = Annotated[str, typer.Argument(help="Id of the run; list them with: unifiednn runs")]
SubModelName = Annotated[str, typer.Argument(help="Name of the sub-model.")]
MaybeSubModel = Annotated[str | None, typer.Argument(help="One sub-model; without it the whole run is meant.")]
Folder = Annotated[Path, typer.Option("--to", help="Folder to write into.")]


def opened(as_json: bool = False) -> AbstractContextManager[Service]:
    """Open the service for who types this; what people did wrong becomes findings and exit code 2.

    That is the machine's owner, or with UNIFIEDNN_TOKEN the person of that token.
    """
    return cast(AbstractContextManager[Service], opened_scoped(as_json))  # it has the same methods


@contextmanager
def opened_scoped(as_json: bool = False) -> Iterator[ScopedService]:
    """`opened`, with what is about people."""
    service: Service | None = None
    try:
        service = Service.open()
        gate, token = Gate(service, Settings()), os.environ.get(TOKEN_VARIABLE)
        yield gate.local() if token is None else gate.acting_by_token(token.strip(), here=True)
    except (UnifiedNNError, OSError, DatabaseError) as error:
        findings = error.findings if isinstance(error, BadInput) else (_as_finding(error),)
        if as_json:
            terminal.print_json({"status": "bad_input", "findings": [finding.model_dump() for finding in findings]})
        else:
            terminal.print_findings(findings)
        raise typer.Exit(BAD_INPUT) from None
    finally:
        if service is not None:
            service.close()


def finish(service: Service, run_id: str, as_json: bool) -> NoReturn:
    """Follow a run to its end and say how it went; Ctrl-C stops it and keeps what was learnt."""
    interrupted = False
    try:
        view = terminal.follow(service, run_id, quiet=as_json)
    except KeyboardInterrupt:
        interrupted = True
        terminal.err.print("Stopping; what was learnt is kept.")
        with suppress(IllegalTransition):  # it has ended in the same moment
            service.stop(run_id)
        view = terminal.follow(service, run_id, quiet=True)
    if as_json:
        terminal.print_json(service.document(run_id))
    else:
        terminal.print_result(view, service)
    failed = view.state in (State.FAILED, State.INTERRUPTED)
    raise typer.Exit(INTERRUPTED if interrupted else FAILED if failed else DONE)


def bad_option(field: str, message: str, remedy: str) -> BadInput:
    """One mistake in an option, to be raised."""
    return BadInput.of("Option", field=field, message=message, remedy=remedy)


def _as_finding(error: UnifiedNNError | OSError | DatabaseError) -> Finding:
    if isinstance(error, OSError):
        where, message = str(error.filename or "file"), f"{error.strerror or error}."
        return Finding(title="Not possible", field=where, message=message, remedy="Name a folder that can be written.")
    if isinstance(error, DatabaseError):
        message, remedy = f"The store cannot be used: {error.orig}.", "Free or repair the home folder (UNIFIEDNN_HOME)."
        return Finding(title="Not possible", field="store", message=message, remedy=remedy)
    titles = {NotFound: "Not found", IllegalTransition: "Not possible now", IntakeFailed: "File not readable",
              Unauthorised: "Not signed in", Forbidden: "Not allowed"}  # fmt: skip
    title = titles.get(type(error), "Not possible")
    message, _, remedy = str(error).partition(". ")
    remedy = remedy or "List the runs and where they stand with: unifiednn runs"
    return Finding(title=title, field=title.lower(), message=f"{message.rstrip('.')}.", remedy=remedy)
