"""Runs foreign code once, in bubblewrap, to convert a file that only its own code can read into a `.pt2`.

The `.pt2` is then checked like any uploaded file. Without a working bubblewrap nothing runs. No torch here.
"""

import functools
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import BaseModel, ConfigDict

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.paths import SANDBOX_SETTING, sandbox_is_on
from unifiednn_core.base.units import memory_text
from unifiednn_core.preflight import client
from unifiednn_core.preflight.pack.request import Example
from unifiednn_core.preflight.report import FileReport

SUFFIX = ".pt2"
FAILED = 2
_MIB = 1024**2
_INSIDE = Path("/work")
_PACKAGE = Path(__file__).resolve().parents[1]
_FOREIGN = "unifiednn_core.preflight.pack.foreign"
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu")
_ENVIRONMENT = {"LANG": "C.UTF-8", "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": ""} | dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
_POLL_S = 0.05
_SHOWN_LOG = 4000
_MOST_ANSWER_BYTES = 16 * 1024
_PACK = "Let its owner export it with: unifiednn pack."
_OFF = f"Running foreign code is off. Set {SANDBOX_SETTING}=on before the start to allow it."


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Part):
    """What one conversion may use. The defaults fit networks of up to about 1 GB of weights."""

    memory_bytes: int = 4096 * _MIB
    """For all processes together, beside what torch itself uses."""
    cpu_s: int = 120
    wall_s: float = 180.0
    result_bytes: int = 2048 * _MIB
    scratch_bytes: int = 256 * _MIB
    """For the private /tmp."""
    log_bytes: int = _MIB
    processes: int = 32


class ConversionRequest(_Part):
    """A file that only its own code can read: Python (`.py`), TorchScript, or a full pickle with its Python file."""

    path: Path
    example: Example
    factory: str = ""
    """For Python: class or function that makes the network."""
    arguments: dict[str, Any] = {}
    companion: Path | None = None
    """For a pickle: the Python file with its classes."""

    @property
    def files(self) -> list[Path]:
        """The files that the sandbox shows to the code."""
        return [path for path in (self.path, self.companion) if path is not None]


class ConversionJob(_Part):
    """What the sandboxed process does; `result` is a descriptor that it may write to."""

    request: ConversionRequest
    result: int
    limits: Limits


class Conversion(_Part):
    """A converted network, checked like an uploaded `.pt2`."""

    path: Path
    report: FileReport
    log: str = ""
    """What the code printed, escaped and cut."""
    findings: tuple[Finding, ...] = ()


@functools.cache
def trial() -> str:
    """Start an empty process in the sandbox; returns why that fails, or nothing if it works."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed. Install it: apt-get install bubblewrap."
    command = isolated([sys.executable, "-I", "-c", ""], (), Limits())
    try:
        done = subprocess.run(
            command, env=_ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}."
    problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"bubblewrap does not work here: {problem[:200]}." if done.returncode else ""


def convert(request: ConversionRequest, folder: Path, limits: Limits | None = None) -> Conversion:
    """Convert a file into a `.pt2` of its name in `folder`.

    Raises `BadInput` if the sandbox is off or does not work, where the code fails or exceeds a limit, and where its
    result is not a network that can be trained.
    """
    name, limits = request.path.name, limits or Limits()
    if reason := trial() if sandbox_is_on() else _OFF:
        remedy = f"{reason.partition('. ')[2]} {_PACK}".strip()
        raise BadInput([_finding("Needs the sandbox", reason, remedy, name)])
    for given in request.files:
        if not given.is_file():
            raise BadInput([_finding("File not found", f"{given} does not exist.", "Correct the path.", given.name)])
    path = folder / f"{request.path.stem}{SUFFIX}"
    if path.exists():
        raise BadInput([_finding("File exists", f"{path} exists already.", "Name another folder, or move it.", name)])
    most_bytes = min(limits.result_bytes, shutil.disk_usage(folder).free // 4)
    limits = limits.model_copy(update={"result_bytes": most_bytes})
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=folder) as scratch:
        result, printed = Path(scratch, f"result{SUFFIX}"), Path(scratch, "log")
        problem = _run(request, result, printed, limits)
        with printed.open("rb") as file:
            log = _plain(file.read(limits.log_bytes).decode("utf-8", "replace").strip(), _SHOWN_LOG)
        said = [_finding("What the code printed", quoted(log), "", name, "warning")] if log else []
        if problem is not None:
            raise BadInput([problem.model_copy(update={"field": name}), *said])
        report = client.inspect(result, path.name)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if errors or report.kind != "model" or report.format != "pt2":
            unknown = _finding("Not a network", "The code did not write an exported network.", _PACK, name)
            raise BadInput([*(errors or [unknown]), *said])
        result.replace(path)
    return Conversion(path=path, report=report, log=log, findings=report.findings)


def quoted(log: str) -> str:
    """Foreign lines, marked so that they cannot pass for ours."""
    return "\n".join(f"| {line}" for line in log.splitlines())


def _run(request: ConversionRequest, result: Path, log: Path, limits: Limits) -> Finding | None:
    """Run the code; returns what went wrong."""
    inside = {path: _INSIDE / f"{_module_name(path.stem)}{path.suffix}" for path in request.files}
    update = {"path": inside[request.path], "companion": request.companion and inside[request.companion]}
    with result.open("xb") as written, log.open("xb") as printed:
        job = ConversionJob(request=request.model_copy(update=update), result=written.fileno(), limits=limits)
        start = f"import sys; sys.path.append({str(_PACKAGE.parent)!r}); from {_FOREIGN} import main; main()"
        command = [sys.executable, "-I", "-B", "-X", "utf8", "-c", start, job.model_dump_json()]
        process = subprocess.Popen(
            isolated(command, inside.items(), limits),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            env=_ENVIRONMENT,
            pass_fds=(written.fileno(),),
        )
        problem = watched(process, log, limits)
    if problem is None and process.returncode == FAILED:
        return _answered(result)
    if problem is None and result.stat().st_size == 0:
        message = f"The code ended its process with code {process.returncode} before the network was exported."
        return _finding("Ended early", message, "Leave exits out of the code.")
    return problem


def isolated(command: list[str], files: Iterable[tuple[Path, Path]], limits: Limits) -> list[str]:
    """The command in namespaces of its own: no network, a private /tmp, and read-only what Python needs to start."""
    python = {sys.prefix, sys.base_prefix, *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))}
    shown = [*_SYSTEM, *sorted(path for path in python if not path.startswith("/usr/")), str(_PACKAGE)]
    binds = [word for path in shown for word in ("--ro-bind-try", path, path)]
    binds += [word for outside, inside in files for word in ("--ro-bind", str(outside), str(inside))]
    return [
        shutil.which("bwrap") or "bwrap",
        "--unshare-user", "--unshare-all", "--disable-userns", "--die-with-parent", "--new-session",
        "--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev", "--size", str(limits.scratch_bytes), "--tmpfs", "/tmp",
        *binds, "--chdir", "/tmp", "--remount-ro", "/dev", "--remount-ro", "/", "--", *command,
    ]  # fmt: skip


def watched(process: subprocess.Popen[bytes], log: Path, limits: Limits) -> Finding | None:
    """Wait for the end of the sandbox, or end it; returns the limit that it exceeded or how it crashed."""
    until_s = time.monotonic() + limits.wall_s
    less = "Make the network smaller, or build it with fewer steps."
    most_bytes = limits.memory_bytes + 1024 * _MIB  # the share of torch itself
    try:
        while process.poll() is None:
            sizes_bytes = _tree(process.pid)
            for title, exceeded, message, remedy in (
                ("Too slow", time.monotonic() > until_s, f"ran for more than {limits.wall_s:g} s", less),
                ("Prints too much", log.stat().st_size > limits.log_bytes,
                 f"printed more than {memory_text(limits.log_bytes)}", "Leave print out of the code."),
                ("Too many processes", len(sizes_bytes) > limits.processes,
                 f"started more than {limits.processes} processes", "Build the network in one process."),
                ("Too much memory", sum(sizes_bytes) > most_bytes,
                 f"used more than {memory_text(limits.memory_bytes)} of memory", less),
            ):  # fmt: skip
                if exceeded:
                    return _finding(title, f"The code {message}.", remedy)
            time.sleep(_POLL_S)
    finally:
        process.kill()  # --die-with-parent ends everything in there
        process.wait()
    number = process.returncode - 128
    if number in (24, 9):
        message = f"The code used more than {limits.cpu_s} s of processor time, or all memory, and was ended."
        return _finding("Too slow", message, less)
    return _finding("Crashed", f"The code crashed its process (signal {number}).", less) if number > 0 else None


def _tree(pid: int) -> list[int]:
    """Resident bytes of each process in the sandbox."""
    sizes = []
    with suppress(psutil.Error):  # it has ended
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                sizes += [child.memory_info().rss]
    return sizes


def _answered(result: Path) -> Finding:
    """The failure that the sandboxed process reports, on one line and marked as its words: it may lie."""
    with result.open("rb") as file:
        words = " ".join(_plain(file.read(_MOST_ANSWER_BYTES).decode("utf-8", "replace"), _SHOWN_LOG).split())
    if not words:
        return _finding("Ended early", "The code ended its process and wrote no network.", _PACK)
    return _finding("Not converted", f"The process that ran the code says: {words}", _PACK)


def _plain(text: str, most: int) -> str:
    """Foreign text that is safe to show: control characters escaped, long text cut in the middle."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)
    return shown if len(shown) <= most else f"{shown[: most // 2]} … {shown[-most // 2 :]}"


def _module_name(stem: str) -> str:
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return name if name.isidentifier() else f"_{name}"


def _finding(
    title: str, message: str, remedy: str, field: str = "", severity: Literal["error", "warning"] = "error"
) -> Finding:
    return Finding(title=title, field=field, message=message, remedy=remedy, severity=severity)
