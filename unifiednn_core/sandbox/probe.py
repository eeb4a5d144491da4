"""Which walls can be had on this machine? Found out once, by trying to get over them in a process of its own."""

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.sandbox import bubblewrap, landlock, system, walls

PATIENCE_S = 60
_ROOT = str(Path(__file__).resolve().parents[2])
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}


@dataclass(frozen=True, slots=True)
class Found:
    """What holds here: names of the walls, and bubblewrap where it is one of them. Without walls the reason why."""

    walls: tuple[str, ...] = ()
    bubblewrap: str | None = None
    reason: str = ""


def command(module: str, argument: str) -> list[str]:
    """Command that runs `main` of a module of this room, in an interpreter that takes nothing from outside."""
    code = f"import sys; sys.path.append({_ROOT!r}); from unifiednn_core.sandbox.{module} import main; main()"
    return [sys.executable, "-I", "-B", "-X", "utf8", "-c", code, argument]


@functools.cache
def find() -> Found:
    """Try what this machine has, the strongest first."""
    if system.machine() is None:
        return Found(reason="Foreign code is run on Linux on x86_64 and aarch64 alone.")
    reasons: list[str] = []
    if (program := bubblewrap.program()) is not None:
        if (problem := _problem(program)) is None:
            return Found((*_kernel_walls(), "bubblewrap"), program)
        reasons.append(f"with bubblewrap, {problem}")
    if landlock.version() == 0:
        reasons.append("the kernel has no Landlock, and bubblewrap does not work or is not installed")
    elif (problem := _problem(None)) is None:
        return Found(_kernel_walls())
    else:
        reasons.append(problem)
    return Found(reason=f"No sandbox can be had on this machine: {'; '.join(reasons)}.")


def _kernel_walls() -> tuple[str, ...]:
    version = landlock.version()
    return (*((f"Landlock {version}",) if version else ()), "seccomp", "limits")


def _problem(program: str | None) -> str | None:
    """What did not hold, in a phrase; None where everything held."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-walls-") as folder:
        outside = Path(folder) / "outside"
        outside.write_text("secret")
        readable = walls.libraries()
        asked = command("attempts", json.dumps([readable, str(outside), program is not None]))
        run = asked if program is None else bubblewrap.wrapped(program, asked, readable)
        answer = _answer(run)
        if not outside.is_file():
            return "a file outside could be deleted"
    if "no_walls" in answer:
        return str(answer["no_walls"])[:200]
    if "succeeded" not in answer:
        return "a trial of the walls gave no answer"
    return f"code got through ({', '.join(answer['succeeded'])})" if answer["succeeded"] else None


def _answer(run: Sequence[str]) -> dict[str, list[str]]:
    try:
        done = subprocess.run(
            run, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, env=ENVIRONMENT, check=False
        )
        answer = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return answer if isinstance(answer, dict) else {}
