"""Inspects every file of a folder in one intake process whose every move is recorded, and prints what happened.

A file that is accepted as a data set is split, too.

`python -m tests.hostile.probe FOLDER` reads FOLDER/NAME/FILE as the corpus wrote them; with a FILE it unpickles that.
"""

import json
import pickle
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# What reading a file never needs. Files are opened all the time: those opened for writing count.
WATCHED = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.spawn", "subprocess.", "pty.", "socket.", "urllib."),
    *("os.mkdir", "os.remove", "os.rename", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil."),
    *("ctypes.dlopen", "ensurepip.", "webbrowser."),
)
SCRATCH = "/dev/null"


class Listener:
    """Collects the events of the interpreter while `listening`; a hook can never be taken out again."""

    def __init__(self) -> None:
        self.listening, self.heard = False, list[str]()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.listening and (event.startswith(WATCHED) or (event == "open" and _writes(arguments))):
            self.heard.append(f"{event} {arguments!r}"[:300])

    @contextmanager
    def __call__(self) -> Iterator[list[str]]:
        self.heard, self.listening = [], True
        try:
            yield self.heard
        finally:
            self.listening = False


def _writes(arguments: tuple[Any, ...]) -> bool:
    path, mode, _ = arguments
    return isinstance(mode, str) and any(sign in mode for sign in "wax+") and path != SCRATCH


def control(path: Path) -> None:
    """Do what reading must never do, to show that the listener hears it."""
    listener = Listener()
    with listener() as heard, path.open("rb") as file:
        pickle.load(file)
    sys.stdout.write(json.dumps(heard))


def main(folder: Path, few: str = "") -> None:
    """Inspect the good files first, so that libraries load what they load once; `few` data may be no data to split."""
    import torch

    from unifiednn_core.base.errors import BadInput
    from unifiednn_core.data.conversion import split
    from unifiednn_core.data.values import SplitPlan
    from unifiednn_core.formats.architectures import registry as architectures
    from unifiednn_core.preflight import process
    from unifiednn_core.preflight.inspection import inspect_file

    torch.set_num_threads(1)
    process.limit_resources()
    if any("document" in case.name for case in folder.iterdir()):
        architectures.build("huggingface", {})  # loads its library
    listener, found = Listener(), {}
    for case in sorted(folder.iterdir(), key=lambda case: not case.name.startswith("good")):
        (path,) = [path for path in case.iterdir() if path.name != "whole.pt"]
        before_bytes, begin_s = _peak_anew_bytes(), time.process_time()
        with listener() as heard:
            report = inspect_file(path, path.name)
        if report.kind == "data":  # splitting writes, and only where it may
            with tempfile.TemporaryDirectory() as parts, suppress(*[BadInput, OSError] if few else []):
                split(path, SplitPlan(), Path(parts))
        found[case.name] = {
            "report": report.model_dump_json(),
            "heard": heard,
            "grown_bytes": _peak_bytes() - before_bytes,
            "cpu_s": time.process_time() - begin_s,
        }
    sys.stdout.write(json.dumps(found))


def _peak_anew_bytes() -> int:
    """Forget the largest size that the process had so far."""
    Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    size = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(size.group(1)) * 1024 if size else 0


if __name__ == "__main__":
    place = Path(sys.argv[1])
    control(place) if place.is_file() else main(place, *sys.argv[2:])
