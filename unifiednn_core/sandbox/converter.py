"""Converts a file that only its own code can read, by running that code once, behind walls.

What comes out is a `.pt2` file that intake checks as it checks a stranger's. Where no walls can be had nothing is run.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.intake import client
from unifiednn_core.intake.remedies import SANDBOX_SETTING, sandbox_is_on
from unifiednn_core.sandbox import bubblewrap, probe, walls
from unifiednn_core.sandbox.limits import Limits
from unifiednn_core.sandbox.request import (
    MAX_ANSWER_BYTES,
    Answer,
    Conversion,
    ConversionRequest,
    Job,
    SandboxView,
    plain,
    quoted,
)
from unifiednn_core.sandbox.watch import Ended, watch

SUFFIX = ".pt2"
_FORMAT = "pt2"
_SHOWN_LOG = 4000
_SHARE_OF_FREE = 4
_ON = f"Set {SANDBOX_SETTING}=on before the start to allow it, or let its owner export it with: unifiednn pack."
_OWN_MACHINE = "Let its owner export it on their own machine with: unifiednn pack."


def state() -> SandboxView:
    """Whether foreign code can be run here; the walls are tried where it is allowed at all."""
    if not sandbox_is_on():
        return SandboxView(enabled=False, reason=f"Running foreign code is off. {_ON}")
    found = probe.find()
    return SandboxView(enabled=True, walls=found.walls, reason=found.reason)


def convert(request: ConversionRequest, folder: Path, limits: Limits | None = None) -> Conversion:
    """Convert a file into a `.pt2` of its name in `folder`.

    Raises `BadInput` where the sandbox is off or cannot be had, where the code fails or asks for more than it may, and
    where its result is not a network that can be trained.
    """
    _require_walls(request.path.name)
    for given in filter(None, (request.path, request.companion)):
        if not given.is_file():
            raise _finding("File not found", given.name, f"There is no file {given}.", "Correct the path.")
    path = folder / f"{request.path.stem}{SUFFIX}"
    if path.exists():
        raise _finding("File exists", request.path.name, f"{path} exists already.", "Name another folder, or move it.")
    limits = limits or Limits()
    most_bytes = shutil.disk_usage(folder).free // _SHARE_OF_FREE
    limits = replace(limits, result_bytes=min(limits.result_bytes, most_bytes))
    with tempfile.TemporaryDirectory(prefix=".converting-", dir=folder) as name:
        place = Path(name)
        inside = _copied(request, place)
        result = place / f"result{SUFFIX}"
        ended, answer = _run(inside, result, place / "answer.json", limits)
        log = plain(ended.log.decode("utf-8", "replace").strip(), _SHOWN_LOG)
        problem = ended.problem or _refusal(request, answer)
        if problem is not None:
            raise BadInput([_placed(problem, request), *_told(log, request)])
        report = client.inspect(result, path.name)
        errors = [finding for finding in report.findings if finding.severity == "error"]
        if errors or (report.kind, report.format) != ("model", _FORMAT):
            raise BadInput([*(errors or [_no_network(request)]), *_told(log, request)])
        result.replace(path)
    return Conversion(path=path, report=report, log=log, findings=report.findings)


def _require_walls(field: str) -> None:
    now = state()
    if not now.usable:
        remedy = _OWN_MACHINE if now.enabled else _ON
        raise _finding("Needs the sandbox", field, now.reason.partition(f" {_ON}")[0], remedy)


def _copied(request: ConversionRequest, place: Path) -> ConversionRequest:
    """The request on copies in a folder of their own, which is all that the code finds there."""
    inside = place / "in"
    inside.mkdir()
    paths = [path for path in (request.path, request.companion) if path is not None]
    copies = [inside / f"{_module_name(path.stem)}{path.suffix}" for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        shutil.copyfile(path, copy)
    return request.model_copy(update={"path": copies[0], "companion": copies[1] if len(copies) > 1 else None})


def _module_name(stem: str) -> str:
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return name if name.isidentifier() else f"_{name}"


def _run(request: ConversionRequest, result: Path, answer: Path, limits: Limits) -> tuple[Ended, Answer | None]:
    wrapper, readable = probe.find().bubblewrap, (*walls.libraries(), str(request.path.parent))
    with _writable(result) as result_handle, _writable(answer) as answer_handle:
        job = Job(
            request=request,
            readable=readable,
            result=result_handle,
            answer=answer_handle,
            parent=0 if wrapper else os.getpid(),
            mounts=wrapper is not None,
            limits=limits,
        )
        command = probe.command("child", job.model_dump_json())
        if wrapper is not None:
            command = bubblewrap.wrapped(wrapper, command, readable)
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(request.path.parent)}  # only its name is asked for
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=probe.ENVIRONMENT | cache,
            cwd="/",
            pass_fds=(result_handle, answer_handle),
            start_new_session=True,
        )
        ended = watch(process, limits)
    return ended, _answer(answer)


@contextmanager
def _writable(path: Path) -> Iterator[int]:
    """A new file, open for writing; the code behind walls can open none."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield handle
    finally:
        os.close(handle)


def _answer(path: Path) -> Answer | None:
    with path.open("rb") as file:
        said = file.read(MAX_ANSWER_BYTES)
    try:
        return Answer.model_validate_json(said)
    except ValidationError:
        return None


def _refusal(request: ConversionRequest, answer: Answer | None) -> Finding | None:
    """What the process says went wrong, as text to be shown; None where it says that it is done.

    The text may be the foreign code's own, so that all of it is shown as somebody's words, none as our advice.
    """
    if answer is None:
        message = "The code ended its process before the network was exported, so nothing of it is taken."
        return _as_finding("Ended early", request.path.name, message, "Leave exits out of the code.")
    if answer.done:
        return None
    told = (f"{answer.title}:", answer.message, answer.remedy)
    said = " ".join(word for text in told for word in plain(text).split())  # on one line, so that it fakes no other
    return _as_finding("Not converted", request.path.name, f"The process that ran the code says: {said}", _OWN_MACHINE)


def _told(log: str, request: ConversionRequest) -> list[Finding]:
    if not log:
        return []
    finding = _as_finding("What the code printed", request.path.name, quoted(log), "")
    return [finding.model_copy(update={"severity": "warning"})]


def _placed(finding: Finding, request: ConversionRequest) -> Finding:
    return finding.model_copy(update={"field": request.path.name})


def _no_network(request: ConversionRequest) -> Finding:
    return _as_finding("Not a network", request.path.name, "What the code wrote is no exported network.", _OWN_MACHINE)


def _as_finding(title: str, field: str, message: str, remedy: str) -> Finding:
    return Finding(title=title, field=field, message=message, remedy=remedy)


def _finding(title: str, field: str, message: str, remedy: str) -> BadInput:
    return BadInput([_as_finding(title, field, message, remedy)])
