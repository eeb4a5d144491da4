"""Benches that are one program. Each runs in its own process, which may load torch."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.machine import ToolFailed

PATIENCE_S = 3600
_MODULES = {
    "engine-overhead": "overhead",
    "first-light": "first_light",
    "start": "start",
    "techniques": "techniques",
    "techniques-dropit": "dropit",
}
NAMES: tuple[str, ...] = tuple(_MODULES)
ON_GPU = frozenset({"techniques"})
"""Those that use a GPU if there is one."""
_REPOSITORY = Path(__file__).resolve().parents[2]


def document(name: str, repeats: int, asked: Mapping[str, Any], time_s: float | None = None) -> dict[str, Any]:
    """Measure one of `NAMES`, of which `techniques` keeps to a time. Raises `ToolFailed`.

    `asked` comes from `result.environment`.
    """
    in_time = [] if time_s is None else [str(time_s)]
    command = [sys.executable, "-m", f"tools.bench.{_MODULES[name]}", str(repeats), *in_time]
    search_path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONPATH": search_path}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S, env=environment)
        found: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        log = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise ToolFailed(f"{name} could not be measured: {log[-1] if log else error}.") from error
    return {
        "bench": name,
        "scale": "cpu",
        **asked,
        "threads": 1,
        "repeats_asked": repeats,
        "repeats": repeats,
        "complete": True,
        **found,
    }
