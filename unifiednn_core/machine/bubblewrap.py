"""What command lines of bubblewrap have in common: Python and its libraries read-only, and a try."""

import functools
import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from unifiednn_core.base.paths import application

PLUGINS = ("unifiednn.policies", "unifiednn.formats")
"""Groups of entry points."""
_PROGRAM = "bwrap"
_PACKAGE = Path(__file__).resolve().parents[1]
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/nix", "/etc/ld.so.cache", "/etc/alternatives")
_PATIENCE_S = 60.0


def program() -> str:
    """Path of bubblewrap, if it is installed: the environments given to it may lack PATH."""
    return shutil.which(_PROGRAM) or _PROGRAM


def python() -> list[str]:
    """Options that show the system, this interpreter and its packages, but no secrets of the dashboard."""
    named = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    places = {sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent), *named} - {"/"}
    shown = [*_SYSTEM, *sorted(place for place in places if not place.startswith("/usr/")), str(_PACKAGE)]
    secrets = application() / ".streamlit"
    return [*read_only(shown), *(("--tmpfs", str(secrets)) if secrets.is_dir() else ())]


@functools.cache
def added_paths() -> tuple[str, ...]:
    """Further places of packages and libraries: the user's own, those named in the environment, and our plug-ins.

    A plug-in may be installed in place, that is, anywhere.
    """
    named = (os.environ.get(name, "").split(os.pathsep) for name in ("PYTHONPATH", "LD_LIBRARY_PATH"))
    found = [place for places in named for place in places if place and Path(place).resolve() != _PACKAGE.parent]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    for point in (point for group in PLUGINS for point in entry_points(group=group)):
        try:
            spec = find_spec(point.module.partition(".")[0])
        except (ImportError, ValueError):  # its own registry says what is wrong with it
            continue
        if spec is not None:
            found += list(spec.submodule_search_locations or filter(None, [spec.origin]))
    return tuple(sorted({str(Path(place).absolute()) for place in found}))


def read_only(places: Iterable[str]) -> list[str]:
    """Options that show these files and folders, if they exist, and keep them from being written."""
    return [word for place in places for word in ("--ro-bind-try", place, place)]


def failure_of(command: list[str], environment: Mapping[str, str]) -> str:
    """Run a command that begins with bubblewrap; returns why it failed, or nothing if it worked."""
    if shutil.which(_PROGRAM) is None:
        return "bubblewrap is not installed. Install it: apt-get install bubblewrap."
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=quiet,
            stdout=quiet,
            stderr=subprocess.PIPE,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}."
    problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"bubblewrap does not work here: {problem[:200]}." if done.returncode else ""
