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
from types import SimpleNamespace
from typing import Any

import torch
import torch.export
from torch import nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.preflight.pack.calling import in_order
from unifiednn_core.preflight.pack.exporting import exported
from unifiednn_core.preflight.pack.importing import described, module_of
from unifiednn_core.preflight.pack.request import Source
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.preflight.pack.torchscript import Script
from unifiednn_core.preflight.sandbox import FAILED, ConversionJob, Limits

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
    code = 0
    try:
        network = loaded(job.source)
        program = exported(network, in_order(network, job.example), job.source.path.name)
        with os.fdopen(os.dup(job.result), "wb") as file:
            torch.export.save(program, file)
    except BaseException as error:  # foreign code may raise anything, even SystemExit
        failure = f"Code: The code failed: {type(error).__name__}: {str(error)[:600]}. {_OUT_OF_REACH}"
        if isinstance(error, BadInput):
            first = error.findings[0]
            failure = f"{first.title}: {first.message} {first.remedy}"
        os.ftruncate(job.result, 0)
        os.pwrite(job.result, failure.encode(), 0)
        code = FAILED
    sys.stdout.flush()
    os._exit(code)


def loaded(source: Source) -> nn.Module:
    """The network in a foreign file, which runs its code; raises `BadInput`."""
    path = source.path
    if path.suffix == ".py":
        return network_of(source)
    try:
        with zipfile.ZipFile(path) as archive:
            is_torchscript = any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile):
        is_torchscript = False
    if is_torchscript:
        return Script(torch.jit.load(path, map_location="cpu"))  # type: ignore[no-untyped-call]
    if source.companion is None:
        message = "The pickle holds classes that are defined in another Python file."
        remedy = "Name the Python file with --code, or export the network with: unifiednn pack."
        raise BadInput.of("Pickle", path.name, message, remedy)
    return _unpickled(path, Source(path=source.companion))


def _unpickled(path: Path, code: Source) -> nn.Module:
    """Load a pickled network, with its own classes from `code`; raises `BadInput`."""
    classes = module_of(code)

    class Unpickler(pickle._Unpickler):  # the one in Python: torch derives from it
        def find_class(self, module: str, name: str) -> Any:
            if module.partition(".")[0] not in _LIBRARIES and hasattr(classes, name.partition(".")[0]):
                return operator.attrgetter(name)(classes)
            return super().find_class(module, name)

    def unpickle(file: io.BufferedIOBase, **options: Any) -> Any:
        return Unpickler(file, **options).load()

    stand_in = SimpleNamespace(
        __name__="pickle", Unpickler=Unpickler, load=unpickle, UnpicklingError=pickle.UnpicklingError
    )
    try:
        # The pickle may run any code: only bubblewrap's process gets here, when the user asks for `convert`.
        network = torch.load(path, map_location="cpu", pickle_module=stand_in, weights_only=False)
    except Exception as error:  # a pickle is a program
        message = f"The pickle cannot be loaded: {described(error)}."
        remedy = "Give the Python file that defined its classes when it was saved."
        raise BadInput.of("Pickle", path.name, message, remedy) from error
    if not isinstance(network, nn.Module):
        message = f"The pickle holds a {type(network).__name__}, not a torch.nn.Module."
        raise BadInput.of("Pickle", path.name, message, "Submit weights with an architecture.")
    return network


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
