"""Arms that the product does not have: its baselines with a script of the bench, or under NVIDIA's MPS. No torch."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from tools.machine import ToolFailed
from unifiednn_core.runtime import launchers
from unifiednn_core.spec.run import BASELINES

Arm = Literal["plain", "resident", "pipedream", "dropit", "dropit_published", "mps"]
"""How a baseline trains: as the product's script does, as one of `scripts`, or with kernels of several at once."""
SCRIPT = "UNIFIEDNN_BENCH_SCRIPT"
"""Environment variable of a worker with the name of its script."""
_TOOLS = Path(__file__).resolve().parents[1]
_MPS, _PATIENCE_S = "nvidia-cuda-mps-control", 60.0


def runs_here(arm: Arm) -> bool:
    """Whether this machine has what an arm needs."""
    return arm != "mps" or shutil.which(_MPS) is not None


@contextmanager
def shown() -> Iterator[None]:
    """Have confined workers see the scripts: of the repository they see the package, and what the environment names."""
    search_path = os.pathsep.join(filter(None, (str(_TOOLS), os.environ.get("PYTHONPATH"))))
    with patch.dict(os.environ, {"PYTHONPATH": search_path}):
        yield


@contextmanager
def running(arm: Arm) -> Iterator[None]:
    """Have baselines that are started inside train as this arm. Raises `ToolFailed`."""
    if arm == "plain":
        yield
    elif arm == "mps":
        with _mps():
            yield
    else:
        workers = dict.fromkeys(BASELINES, "tools.bench.worker")
        with patch.dict(os.environ, {SCRIPT: f"tools.bench.scripts.{arm}"}), patch.dict(launchers.WORKERS, workers):
            yield


@contextmanager
def _mps() -> Iterator[None]:
    """Run the daemon of MPS in a folder of its own, so that one that somebody else runs is not touched."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-mps-") as folder, patch.dict(os.environ):
        os.environ |= {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        _control("-d")
        try:
            yield
        finally:
            _control(said="quit\n")


def _control(*arguments: str, said: str = "") -> None:
    command = [_MPS, *arguments]
    try:
        subprocess.run(command, input=said, text=True, capture_output=True, check=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolFailed(f"{_MPS} failed: {(getattr(error, 'stderr', None) or str(error)).strip()}") from error
