"""The caller's side of the intake process. No torch here: the server imports it."""

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from unifiednn_core.base.errors import BadInput, IntakeFailed
from unifiednn_core.base.paths import SANDBOX_SETTING, Home
from unifiednn_core.data.values import SplitPlan
from unifiednn_core.preflight.report import (
    CheckReport,
    FileReport,
    InspectJob,
    OracleJob,
    OracleReport,
    Request,
    SpecJob,
    SplitJob,
    SplitReport,
)
from unifiednn_core.spec.run import RunSpec

# A job is bounded by its processor time; this is for one that never answers.
PATIENCE_S = 3600.0
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
Report = TypeVar("Report", bound=BaseModel)


def inspect(path: Path, filename: str, *, convert_to: Path | None = None) -> FileReport:
    """Describe a file; with `convert_to`, a data set that cannot be mapped is written there, and that is described.

    Raises `BadInput` for a missing file, `IntakeFailed` if the job dies or takes longer than an hour.
    """
    if not path.is_file():
        message = f"{path} does not exist."
        raise BadInput.of("File not found", field=filename, message=message, remedy="Correct the path.")
    job = InspectJob(path=path.resolve(), filename=filename, convert_to=convert_to and convert_to.resolve())
    return _ask(FileReport, job)


def split(path: Path, filename: str, plan: SplitPlan, home: Home) -> SplitReport:
    """Split a data set in two and keep both parts in `home` by their content; raises `IntakeFailed`."""
    job = SplitJob(path=path.resolve(), filename=filename, plan=plan, home=home.root.resolve())
    return _ask(SplitReport, job)


def check(spec: RunSpec, base: Path, home: Home) -> CheckReport:
    """Check a spec against its files, which stay where they are; raises `IntakeFailed`."""
    job = SpecJob(spec=spec.to_json(), base=base.resolve(), home=home.root.resolve())
    return _ask(CheckReport, job)


def ask_torch(job: OracleJob) -> OracleReport:
    """Train a `.pt2` for a few steps as torch itself reads it, too; raises `IntakeFailed`."""
    return _ask(OracleReport, job)


class _Intake:
    """The intake process of this process: started with the first job, and again after it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        """Start it unless it runs; does not wait until it has loaded torch."""
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._start()

    def connect(self) -> socket.socket:
        """Return a connection to a new fork, which waits for its job; raises `OSError`."""
        self.start()
        ours, theirs = socket.socketpair()
        with self._lock, theirs:
            try:
                self._send(theirs)
            except OSError:  # it died a moment ago
                self._start()
                self._send(theirs)
        return ours

    def stop(self) -> None:
        """End it with all its jobs."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._process is not None and self._owner == os.getpid():
                self._process.wait()
            self._control = self._process = None

    def _start(self) -> None:
        if self._control is not None:
            self._control.close()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        search_path = os.pathsep.join(filter(None, (str(_PACKAGE_PARENT), os.environ.get("PYTHONPATH"))))
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "unifiednn_core.preflight.intake", str(theirs.fileno())],
                env={**kept, **one, "PYTHONPATH": search_path, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        self._owner = os.getpid()

    def _send(self, theirs: socket.socket) -> None:
        if self._control is not None:
            socket.send_fds(self._control, [b"job"], [theirs.fileno()])


_intake = _Intake()
start, stop = _intake.start, _intake.stop


def _ask(report: type[Report], job: InspectJob | SplitJob | SpecJob | OracleJob) -> Report:
    environment = {SANDBOX_SETTING: os.environ.get(SANDBOX_SETTING, "")}
    request = Request(job=job, environment=environment).model_dump_json().encode() + b"\n"
    try:
        with _intake.connect() as connection:
            connection.settimeout(PATIENCE_S)
            connection.sendall(request)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    except TimeoutError:
        raise IntakeFailed(f"Reading the files took longer than {PATIENCE_S:g} s and was ended.") from None
    except OSError as error:
        raise IntakeFailed(f"The process that reads files cannot be reached: {error.strerror}.") from error
    said, _, code = answer.rpartition(b"\n")
    if code == b"-9":
        raise IntakeFailed("The process that reads files was ended: the files need more processor time or memory.")
    with suppress(ValidationError):
        return report.model_validate_json(said)
    reason = said.decode("utf-8", "replace")[1:] if said[:1] == b"!" else f"code {code.decode() or 'unknown'}"
    raise IntakeFailed(f"The process that reads files ended without a report ({reason}).")
