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
    "prediction": "prediction",
    "protection": "protection",
    "queries": "queries",
    "replayed-steps": "replays",
    "simulate": "simulate",
    "start": "start",
}
NAMES: tuple[str, ...] = tuple(_MODULES)
_REPOSITORY = Path(__file__).resolve().parents[2]


def document(name: str, repeats: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Measure one of `NAMES`; `asked` comes from `result.environment`. Raises `ToolFailed`."""
    command = [sys.executable, "-m", f"tools.bench.{_MODULES[name]}", str(repeats)]
    search_path = os.pathsep.join(filter(None, (str(_REPOSITORY), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": search_path}
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
