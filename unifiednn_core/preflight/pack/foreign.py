"""The sandboxed process: runs foreign code once and writes one `.pt2` file, or says why it could not.

`preflight.sandbox` starts it and believes nothing of what it writes.
"""

import io
import logging
import operator
import os
import pickle
import resource
import sys
import warnings
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.export
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack import exporting
from unifiednn_core.preflight.pack.request import Source
from unifiednn_core.preflight.pack.source import described, module_of, network_of
from unifiednn_core.preflight.pack.torchscript import Script
from unifiednn_core.preflight.sandbox import FAILED, ConversionJob, ConversionRequest, Limits

_OUT_OF_REACH = "In the sandbox code reaches no files but its own, no network and no GPU."
_LIBRARIES = frozenset({"torch", "builtins", "collections", "numpy", "functools", "_codecs"})


def main() -> None:
    """Do the job that the command line names."""
    job = ConversionJob.model_validate_json(sys.argv[1])
    del sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    _restrain(job.limits)
    failure = _failure(job.request, job.result)
    if failure:
        os.ftruncate(job.result, 0)
        os.pwrite(job.result, failure.encode(), 0)
    sys.stdout.flush()
    os._exit(FAILED if failure else 0)


def _failure(request: ConversionRequest, result: int) -> str:
    """Why the network in the file could not be written to `result`, if so."""
    try:
        program = exporting.exported(loaded(request), request.example, request.path.name)
        with os.fdopen(os.dup(result), "wb") as file:
            torch.export.save(program, file)
    except BadInput as error:
        first = error.findings[0]
        return f"{first.title}: {first.message} {first.remedy}"
    except BaseException as error:  # foreign code may raise anything, even SystemExit
        return f"Code: The code failed: {type(error).__name__}: {str(error)[:600]}. {_OUT_OF_REACH}"
    return ""


def loaded(request: ConversionRequest) -> nn.Module:
    """The network in a foreign file, which runs its code; raises `BadInput`."""
    if request.path.suffix == ".py":
        return network_of(Source(path=request.path, factory=request.factory, arguments=request.arguments))
    if _is_torchscript(request.path):
        return Script(torch.jit.load(request.path, map_location="cpu"))  # type: ignore[no-untyped-call]
    if request.companion is None:
        message = "The pickle holds classes whose code is in a Python file of its own."
        remedy = "Name the Python file with --code, or export the network with: unifiednn pack."
        raise BadInput.of("Pickle", field=request.path.name, message=message, remedy=remedy)
    return _unpickled(request.path, module_of(request.companion))


def _unpickled(path: Path, classes: ModuleType) -> nn.Module:
    """Load a pickled network whose own classes are in `classes`; raises `BadInput`."""

    class Unpickler(pickle._Unpickler):  # the one in Python: torch derives from it
        def find_class(self, module: str, name: str) -> Any:
            if module.partition(".")[0] not in _LIBRARIES and hasattr(classes, name.partition(".")[0]):
                return operator.attrgetter(name)(classes)
            return super().find_class(module, name)

    def unpickle(file: io.BufferedIOBase, **options: Any) -> Any:
        return Unpickler(file, **options).load()

    door = SimpleNamespace(
        __name__="pickle", Unpickler=Unpickler, load=unpickle, UnpicklingError=pickle.UnpicklingError
    )
    try:
        network = torch.load(path, map_location="cpu", pickle_module=door, weights_only=False)
    except Exception as error:  # a pickle is a program
        message = f"The pickle cannot be loaded: {described(error, Path(classes.__file__ or ''))}."
        remedy = "Give the Python file that its classes were in when it was saved."
        raise BadInput.of("Pickle", field=path.name, message=message, remedy=remedy) from error
    if not isinstance(network, nn.Module):
        message = f"The pickle holds a {type(network).__name__}, not a torch.nn.Module."
        raise BadInput.of("Pickle", field=path.name, message=message, remedy="Submit weights with an architecture.")
    return network


def _is_torchscript(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        return False


def _restrain(limits: Limits) -> None:
    """Bound this process and all that it starts; called once torch is loaded."""
    taken_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    for limit, most in {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_FSIZE: limits.result_bytes,
        resource.RLIMIT_NOFILE: 256,
        resource.RLIMIT_NPROC: limits.processes,
        resource.RLIMIT_AS: taken_bytes + limits.memory_bytes,
    }.items():
        _, hard = resource.getrlimit(limit)
        bounded = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (bounded, bounded))
    Path("/proc/self/oom_score_adj").write_text("1000")
