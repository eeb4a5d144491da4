"""The caller's side of the intake process. No torch here: the server imports it."""

import socket
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.base.errors import BadInput, IntakeFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.data.values import AS_STORED, ImportOptions, SplitPlan
from unifiednn_core.machine.budget import budget_of, slot
from unifiednn_core.machine.forks import Template
from unifiednn_core.preflight.report import (
    PROGRESS,
    CertifyJob,
    CertifyReport,
    CheckProgress,
    CheckReport,
    FileReport,
    InspectJob,
    Job,
    OracleJob,
    OracleReport,
    SpecJob,
    SplitJob,
    SplitReport,
    Tell,
    untold,
)
from unifiednn_core.spec.devices import SERVER, host_of
from unifiednn_core.spec.run import RunSpec

# A job is bounded by its processor time; this is for one that says nothing more.
PATIENCE_S = 3600.0
# Modules that reading and training load at their first use; not pyarrow, which starts a thread.
LOADED_LATE = ("unifiednn_core.engine.late_dynamo:prepare", "torch.export", "safetensors.torch", "PIL.Image")
INTAKE = "unifiednn_core.preflight.process:serve"
Report = TypeVar("Report", bound=BaseModel)


def inspect(
    path: Path,
    filename: str,
    *,
    convert_to: Path | None = None,
    options: ImportOptions = AS_STORED,
    home: Home | None = None,
) -> FileReport:
    """Describe a file; with `convert_to`, a data set that cannot be mapped is written there, and that is described.

    Files of the library that the options name are in `home`.

    Raises `BadInput` for a missing file, `IntakeFailed` if the job dies or says nothing for an hour.
    """
    if not path.is_file():
        message = f"{path} does not exist."
        raise BadInput.of("File not found", field=filename, message=message, remedy="Correct the path.")
    target = convert_to and convert_to.resolve()
    root = None if home is None else home.root.resolve()
    job = InspectJob(path=path.resolve(), filename=filename, convert_to=target, options=options, home=root)
    return _ask(FileReport, job)


def split(path: Path, filename: str, plan: SplitPlan, home: Home) -> SplitReport:
    """Split a data set in two and keep both parts in `home` by their content; raises `IntakeFailed`."""
    job = SplitJob(path=path.resolve(), filename=filename, plan=plan, home=home.root.resolve())
    return _ask(SplitReport, job)


def check(spec: RunSpec, base: Path, home: Home, tell: Tell = untold) -> CheckReport:
    """Check a spec against its files, which stay where they are; `tell` hears what is done. Raises `IntakeFailed`."""
    device, most_bytes = slot(spec.device), spec.memory_limit_bytes
    if host_of(device) != SERVER:
        known = [size for size in (most_bytes, budget_of(device).total_bytes) if size is not None]
        most_bytes = min(known, default=None)
    # the process that reads files asks for no devices
    placed = spec.model_copy(update={"device": device, "memory_limit_bytes": most_bytes})
    job = SpecJob(spec=placed.to_json(), base=base.resolve(), home=home.root.resolve())
    return _ask(CheckReport, job, tell)


def ask_torch(job: OracleJob) -> OracleReport:
    """Train a `.pt2` for a few steps as torch itself reads it, too; raises `IntakeFailed`."""
    return _ask(OracleReport, job)


def certify(job: CertifyJob) -> CertifyReport:
    """Compare a separated model with what the hybrid gave; raises `IntakeFailed`."""
    return _ask(CertifyReport, job)


template = Template((INTAKE.partition(":")[0], *LOADED_LATE, "unifiednn_core.runtime.forked"))
"""The template of this process; it forks intake jobs and, where the supervisor is, workers."""
start, stop = template.start, template.stop


def _answer(connection: socket.socket, tell: Tell) -> bytes:
    """What a job says in the end; `tell` hears of its progress until then."""
    answer = bytearray()
    while block := connection.recv(2**16):
        answer += block
        while answer.startswith(PROGRESS) and b"\n" in answer:
            line, _, answer = answer.partition(b"\n")
            tell(CheckProgress.model_validate_json(line.removeprefix(PROGRESS)))
    return bytes(answer)


def _ask(report: type[Report], job: Job, tell: Tell = untold) -> Report:
    try:
        with template.connect(INTAKE) as connection:
            connection.settimeout(PATIENCE_S)
            connection.sendall(job.model_dump_json().encode() + b"\n")
            answer = _answer(connection, tell)
    except TimeoutError:
        message = f"One part of the check took longer than {PATIENCE_S:g} s, so the check was ended."
        raise IntakeFailed(message) from None
    except OSError as error:
        raise IntakeFailed(f"The process that reads files cannot be reached: {error.strerror}.") from error
    said, _, code = answer.rpartition(b"\n")
    if code == b"-9":
        raise IntakeFailed("The process that reads files was ended: the files need more processor time or memory.")
    with suppress(ValidationError):
        return report.model_validate_json(said)
    reason = said.decode("utf-8", "replace")[1:] if said[:1] == b"!" else f"code {code.decode() or 'unknown'}"
    raise IntakeFailed(f"The process that reads files ended without a report ({reason}).")
