"""bubblewrap: a process that sees no other files, no network and no other processes. Used where it is installed."""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


def program() -> str | None:
    """Where bubblewrap is installed."""
    return shutil.which("bwrap")


def wrapped(bubblewrap: str, command: list[str], readable: Iterable[str]) -> list[str]:
    """The command, run where nothing is there but `readable` and what Python needs to start."""
    start = {str(Path(sys.prefix) / "bin"), str(Path(sys.base_prefix) / "bin")}
    shown = [path for path in (*sorted(start), *readable) if not path.startswith(("/dev", "/proc"))]
    binds = [word for path in shown for word in ("--ro-bind-try", path, path)]
    isolation = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--chdir", "/"]
    return [bubblewrap, *isolation, *binds, "--proc", "/proc", "--dev", "/dev", "--", *command]
