"""NVIDIA's Multi-Process Service: kernels of several processes run at once on one GPU."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tools.machine import ToolFailed

_PROGRAM = "nvidia-cuda-mps-control"
_PATIENCE_S = 60.0


def is_installed() -> bool:
    """Whether this machine has it."""
    return shutil.which(_PROGRAM) is not None


@contextmanager
def running() -> Iterator[None]:
    """Run its daemon, and let every process that is started inside use it. Raises `ToolFailed`.

    The daemon listens in a folder of its own, so one that somebody else runs is not touched.
    """
    with tempfile.TemporaryDirectory(prefix="unifiednn-mps-") as folder:
        places = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        before = {name: os.environ.get(name) for name in places}
        os.environ.update(places)
        try:
            _control("-d")
            try:
                yield
            finally:
                _control(said="quit\n")
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def _control(*arguments: str, said: str = "") -> None:
    try:
        subprocess.run(
            [_PROGRAM, *arguments], input=said, text=True, capture_output=True, check=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = (getattr(error, "stderr", None) or str(error)).strip()
        raise ToolFailed(f"{_PROGRAM} failed: {words}") from error
