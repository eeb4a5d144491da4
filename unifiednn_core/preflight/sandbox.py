"""Runs foreign code once, in bubblewrap, to convert a file that only its own code can read into a `.pt2`.

The `.pt2` is then checked like any uploaded file. Without a working bubblewrap nothing runs. No torch here.
"""

import functools
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from pydantic import BaseModel

from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.paths import SANDBOX_SETTING, sandbox_is_on
from unifiednn_core.base.units import MIB, memory_text
from unifiednn_core.base.visible import visible
from unifiednn_core.machine import bubblewrap
from unifiednn_core.preflight import client
from unifiednn_core.preflight.pack.request import Example, PackRequest, Source
from unifiednn_core.preflight.report import FileReport

FAILED = 2
_INSIDE = Path("/work")
_PACKAGE = Path(__file__).resolve().parents[1]
_FOREIGN = "unifiednn_core.preflight.pack.foreign"
_ENVIRONMENT = {"LANG": "C.UTF-8", "HOME": "/tmp", "CUDA_VISIBLE_DEVICES": ""} | dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
_POLL_S = 0.05
_MOST_SHOWN = 4000
_MOST_ANSWER_BYTES = 16 * 1024
_PACK = "Let its owner export it with: unifiednn pack."
_OFF = f"Running foreign code is off. Set {SANDBOX_SETTING}=on before the start to allow it."
_LESS = "Make the network smaller, or build it with fewer steps."


class Limits(BaseModel, frozen=True, extra="forbid"):
    """What one conversion may use. The defaults fit networks of up to about 1 GB of weights."""

    memory_bytes: int = 4096 * MIB
    """For all processes together, without the share of torch itself."""
    cpu_s: int = 120
    wall_s: float = 180.0
    result_bytes: int = 2048 * MIB
    scratch_bytes: int = 256 * MIB
    """For the private /tmp."""
    log_bytes: int = MIB
    processes: int = 32


class ConversionJob(BaseModel, frozen=True, extra="forbid"):
    """What the sandboxed process does; `result` is a descriptor that it may write to."""

    source: Source
    example: Example
    result: int
    limits: Limits


class Conversion(BaseModel, frozen=True, extra="forbid"):
    """A converted network, checked like an uploaded `.pt2`."""

    path: Path
    report: FileReport
    log: str = ""
    """What the code printed, escaped and cut."""
    findings: tuple[Finding, ...] = ()


@functools.cache
def trial() -> str:
    """Start an empty process in the sandbox; returns why that fails, or nothing if it works."""
    return bubblewrap.failure_of(isolated([sys.executable, "-I", "-c", ""], (), Limits()), _ENVIRONMENT)


def convert(request: PackRequest) -> Conversion:
    """Convert a file into a `.pt2`.

    Raises `BadInput` if the sandbox is off or does not work, if the code fails or exceeds a limit, and if its result is
    not a network that can be trained.
    """
    path, out = request.source.path, request.out
    if reason := trial() if sandbox_is_on() else _OFF:
        remedy = f"{reason.partition('. ')[2]} {_PACK}".strip()
        raise BadInput.of("Needs the sandbox", path.name, reason, remedy)
    for given in (path, request.source.companion):
        if given is not None and not given.is_file():
            raise BadInput.of("File not found", given.name, f"{given} does not exist.", "Correct the path.")
    if out.exists():
        raise BadInput.of("File exists", path.name, f"{out} exists already.", "Name another folder, or move it.")
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=out.parent) as scratch:
        limits = Limits(result_bytes=min(Limits().result_bytes, shutil.disk_usage(scratch).free // 4))
        result, printed = Path(scratch, "result.pt2"), Path(scratch, "log")
        problem = _run(request, result, printed, limits)
        log = _plain(printed, limits.log_bytes)
        title, said = "What the code printed", list[Finding]()
        if log:
            said = [Finding(severity="warning", title=title, field=path.name, message=quoted(log), remedy="")]
        if problem is not None:
            raise BadInput([problem.model_copy(update={"field": path.name}), *said])
        report = client.inspect(result, out.name)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if not errors and (report.kind, report.format) != ("model", "pt2"):
            errors = [_problem("Not a network", "The code did not write an exported network.", _PACK)]
        if errors:
            raise BadInput([*errors, *said])
        result.replace(out)
    return Conversion(path=out, report=report, log=log, findings=report.findings)


def quoted(log: str) -> str:
    """Foreign lines, marked so that they cannot pass for ours."""
    return "\n".join(f"| {line}" for line in log.splitlines())


def _run(request: PackRequest, result: Path, log: Path, limits: Limits) -> Finding | None:
    """Run the code; returns the problem, with an empty field."""
    source = request.source
    inside = {path: _inside(path) for path in (source.path, source.companion) if path is not None}
    moved = {"path": inside[source.path], "companion": source.companion and inside[source.companion]}
    with result.open("xb") as written, log.open("xb") as printed:
        source = source.model_copy(update=moved)
        job = ConversionJob(source=source, example=request.example, result=written.fileno(), limits=limits)
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
        if (problem := watched(process, log, limits)) is not None:
            return problem
    if process.returncode == FAILED and (words := " ".join(_plain(result, _MOST_ANSWER_BYTES).split())):
        # On one line and marked as words of the process: it may lie.
        return _problem("Not converted", f"The process that ran the code says: {words}", _PACK)
    if process.returncode == FAILED or result.stat().st_size == 0:
        message = f"The code ended its process with code {process.returncode} before the network was exported."
        return _problem("Ended early", message, "Remove exits from the code.")
    return None


def isolated(command: list[str], files: Iterable[tuple[Path, Path]], limits: Limits) -> list[str]:
    """The command in new namespaces: no network, a private /tmp, read-only files that Python needs, nothing else."""
    binds = [*bubblewrap.python(), *bubblewrap.read_only(["/sys/devices/system/cpu"])]
    binds += [word for outside, inside in files for word in ("--ro-bind", str(outside), str(inside))]
    return [
        bubblewrap.program(),
        "--unshare-user",
        "--unshare-all",
        "--disable-userns",
        "--die-with-parent",
        "--new-session",
        "--cap-drop",
        "ALL",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--size",
        str(limits.scratch_bytes),
        "--tmpfs",
        "/tmp",
        *binds,
        "--chdir",
        "/tmp",
        "--remount-ro",
        "/dev",
        "--remount-ro",
        "/",
        "--",
        *command,
    ]


def watched(process: subprocess.Popen[bytes], log: Path, limits: Limits) -> Finding | None:
    """Wait for the end of the sandbox, or end it; returns the limit that it exceeded or how it crashed."""
    until_s = time.monotonic() + limits.wall_s
    most_bytes = limits.memory_bytes + 1024 * MIB  # the share of torch itself
    try:
        while process.poll() is None:
            sizes_bytes = _tree(process.pid)
            for title, exceeded, message, remedy in (
                ("Too slow", time.monotonic() > until_s, f"ran for more than {limits.wall_s:g} s", _LESS),
                (
                    "Prints too much",
                    log.stat().st_size > limits.log_bytes,
                    f"printed more than {memory_text(limits.log_bytes)}",
                    "Remove print from the code.",
                ),
                (
                    "Too many processes",
                    len(sizes_bytes) > limits.processes,
                    f"started more than {limits.processes} processes",
                    "Build the network in one process.",
                ),
                (
                    "Too much memory",
                    sum(sizes_bytes) > most_bytes,
                    f"used more than {memory_text(limits.memory_bytes)} of memory",
                    _LESS,
                ),
            ):
                if exceeded:
                    return _problem(title, f"The code {message}.", remedy)
            time.sleep(_POLL_S)
    finally:
        process.kill()  # --die-with-parent ends everything in there
        process.wait()
    number = process.returncode - 128
    if number in (24, 9):
        message = f"The code used more than {limits.cpu_s} s of processor time, or all memory, and was ended."
        return _problem("Too slow", message, _LESS)
    return _problem("Crashed", f"The code crashed its process (signal {number}).", _LESS) if number > 0 else None


def _tree(pid: int) -> list[int]:
    """Resident bytes of each process in the sandbox."""
    sizes = []
    with suppress(psutil.Error):  # it has ended
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                sizes += [child.memory_info().rss]
    return sizes


def _plain(file: Path, most_bytes: int) -> str:
    """Foreign text that is safe to show: invisible characters escaped, long text cut in the middle."""
    with file.open("rb") as opened:
        shown = visible(opened.read(most_bytes).decode("utf-8", "replace").strip(), "\n")
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[: _MOST_SHOWN // 2]} … {shown[-_MOST_SHOWN // 2 :]}"


def _inside(path: Path) -> Path:
    """Place of a file in the sandbox, under a name that Python can import."""
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    return _INSIDE / f"{name if name.isidentifier() else f'_{name}'}{path.suffix}"


def _problem(title: str, message: str, remedy: str) -> Finding:
    return Finding(title=title, field="", message=message, remedy=remedy)
