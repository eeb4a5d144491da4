"""The process behind walls: puts them up, then runs foreign code once and writes one `.pt2` file.

Nothing of what it says or writes is believed. Started by `converter`.
"""

import logging
import os
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from unifiednn_core.errors import BadInput
from unifiednn_core.packing.request import Source
from unifiednn_core.sandbox import limits, walls
from unifiednn_core.sandbox.request import Answer, ConversionRequest, Job

if TYPE_CHECKING:
    from torch import nn

NO_WALLS = 3
_OUT_OF_REACH = "Behind its walls code reaches no files but its own, no network, no programs and no GPU."


def main() -> None:
    """Do the job that the command line names."""
    job = Job.model_validate_json(sys.argv[1])
    folder = job.request.path.parent
    tempfile.tempdir = str(folder)  # nothing can be written there, but libraries ask for its name
    own_size = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        walls.put_up(
            walls.Walls((*job.readable, str(folder)), job.limits, parent=job.parent, sees_only_readable=job.mounts)
        )
    except walls.NoWalls as error:
        _say(job, Answer(done=False, title="No sandbox", message=f"{error}.", remedy="Nothing was run."))
        sys.exit(NO_WALLS)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    _say(job, _answered(job, own_size))


def _answered(job: Job, own_size: int) -> Answer:
    import torch.export

    from unifiednn_core.packing import exporting
    from unifiednn_core.sandbox import pickled, torchscript  # noqa: F401  loaded before memory is bounded

    torch.set_num_threads(1)
    limits.restrain_memory(job.limits.memory_bytes, own_size)
    os.close(own_size)
    request = job.request
    try:
        program = exporting.exported(_network(request), request.example, request.path.name)
        with os.fdopen(os.dup(job.result), "wb") as file:
            torch.export.save(program, file)
    except BadInput as error:
        first = error.findings[0]
        return Answer(done=False, title=first.title, message=first.message[:4000], remedy=first.remedy[:1000])
    except BaseException as error:  # foreign code may raise anything, SystemExit, too
        text = f"The code failed: {type(error).__name__}: {str(error)[:600]}."
        return Answer(done=False, title="Code", message=text, remedy=_OUT_OF_REACH)
    return Answer(done=True)


def _network(request: ConversionRequest) -> "nn.Module":
    from unifiednn_core.packing.source import module_of, network_of

    if request.path.suffix == ".py":
        return network_of(Source(path=request.path, factory=request.factory, arguments=request.arguments))
    if _is_torchscript(request.path):
        return _script(request.path)
    if request.companion is None:
        raise BadInput.of(
            "Pickle",
            field=request.path.name,
            message="A pickle of a network's own classes can be read together with its Python file alone.",
            remedy="Name the file with --code, or export the network with: unifiednn pack.",
        )
    from unifiednn_core.sandbox import pickled

    return pickled.load(request.path, module_of(request.companion))


def _script(path: Path) -> "nn.Module":
    import torch

    from unifiednn_core.sandbox.torchscript import Script

    return Script(torch.jit.load(path, map_location="cpu"))  # type: ignore[no-untyped-call]


def _is_torchscript(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _say(job: Job, answer: Answer) -> None:
    os.pwrite(job.answer, answer.model_dump_json().encode(), 0)


if __name__ == "__main__":
    main()
