"""Confines workers in bubblewrap: no network, no files but those of their run, no privileges. Where that does not work
or is switched off, they run as other programs of their user do, and `trial` says why.

A worker keeps its process id and outlives the server: neither the PID namespace is new nor does it die with its parent.
"""

import ctypes
import fcntl
import functools
import json
import os
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from unifiednn_core.base.paths import SANDBOX_SETTING, SHARED_HYBRID, Home, application, worker_sandbox_is_on

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
            command, env=environment, stdin=quiet, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here: {error}."
    problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"bubblewrap does not work here: {problem[:200]}." if done.returncode else ""


_NO_NEW_PRIVILEGES, _DROP_CAPABILITY, _PARENT_DEATH_SIGNAL = 38, 24, 1  # prctl(2)
_CAPABILITIES_VERSION = 0x20080522  # capset(2)
_OWNER_OF_NAMESPACE = 0xB701  # ioctl_ns(2)
_HOLD = ["/bin/sh", "-c", "echo; read _"]
# Parts of /proc that root may write. A new /proc would need a new PID namespace.
_SYSTEM_WIDE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/sys")
_PROBE = """
import ctypes, importlib.util, pathlib, sys
missing = [name for name in ("torch", "sqlalchemy", "unifiednn_core") if importlib.util.find_spec(name) is None]
if missing:
    sys.exit(f"{missing[0]} cannot be imported in there")
for folder in sys.argv[2:]:
    place = pathlib.Path(folder, ".trial")
    place.touch()
    place.unlink()
sum(1 for _ in pathlib.Path(sys.argv[1]).iterdir())
if any(pathlib.Path("/dev").glob("nvidia[0-9]*")):
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:  # a machine without CUDA
        code = 0
    if code:
        sys.exit(f"CUDA does not start in there (code {code})")
"""


_TRIAL = threading.Lock()


def start(
    command: list[str], home: Home, run_id: str, *options: str, **how: Any
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the worker of a run, confined where that works; `options` are for bubblewrap, `how` is for `Popen`.

    Returns the process to wait for, and the id of the worker itself, which bubblewrap starts. Raises `OSError`.
    """
    if trial(home):
        process = subprocess.Popen(command, **how)
        return process, process.pid
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as answer:
        try:
            words = confined(command, home, run_id, "--info-fd", str(writing), *options)
            process = subprocess.Popen(words, pass_fds=(writing,), **how)
        finally:
            os.close(writing)
        said = answer.read()
    try:
        return process, int(json.loads(said)["child-pid"])
    except (ValueError, KeyError):  # bubblewrap failed; the log and the exit code say how
        return process, process.pid


@contextmanager
def namespaces(home: Home, run_id: str) -> Iterator[list[int]]:
    """Open what `confined` puts a worker into, as descriptors in the order in which `join` needs them.

    A small process holds the namespaces during the block; then only who has joined them does. Raises `OSError`.
    """
    pipe = subprocess.PIPE
    reading, writing = os.pipe()
    with ExitStack() as stack:
        answer = stack.enter_context(os.fdopen(reading, encoding="utf-8"))
        try:
            words = confined(_HOLD, home, run_id, "--info-fd", str(writing))
            process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, pass_fds=(writing,))
        finally:
            os.close(writing)
        stack.enter_context(process)
        if process.stdout is None or not process.stdout.readline():  # all is in place once the holder speaks
            raise OSError(None, "bubblewrap does not start")
        holder = Path("/proc", str(json.load(answer)["child-pid"]), "ns")
        opened = [os.open(holder / name, os.O_RDONLY) for name in ("mnt", "ipc", "uts", "net", "user")]
        for handle in opened:
            stack.callback(os.close, handle)
        outer = fcntl.ioctl(opened[0], _OWNER_OF_NAMESPACE)  # the user namespace in which the mounts were made
        stack.callback(os.close, outer)
        yield [outer, *opened]


def join(handles: Sequence[int]) -> None:
    """Put this process, which must have one thread, into the namespaces, and give up all privileges there.

    Raises `OSError`; a process that did not get through must end.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def check(failed: int, doing: str) -> None:
        if failed:
            raise OSError(ctypes.get_errno(), f"{doing}: {os.strerror(ctypes.get_errno())}")

    for handle in handles:
        check(libc.setns(handle, 0), "joining a namespace")
    for capability in range(64):  # the kernel refuses numbers that it does not know
        libc.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    forgo_privileges()
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0), (ctypes.c_uint32 * 6)()
    check(libc.capset(header, nothing), "giving up privileges")


def trial(home: Home) -> str:
    """Why workers of this home are not confined; nothing if they are. Tried once per process."""
    with _TRIAL:  # pages and supervisor ask at once, and two trials in one folder would spoil each other
        return _tried(home)


@functools.cache
def _tried(home: Home) -> str:
    _make_device_files()
    if not worker_sandbox_is_on():
        return f"{SANDBOX_SETTING} is off. Unset it."
    folder = home.run(f".trial-{os.getpid()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = [sys.executable, "-c", _PROBE, *map(str, (home.files, folder, home.database.parent))]
        return failure_of(confined(probe, home, folder.name), os.environ)
    except OSError as error:
        return f"The home cannot be written: {error.strerror}."
    finally:
        with suppress(OSError):
            folder.rmdir()


def confined(command: list[str], home: Home, run_id: str, *options: str) -> list[str]:
    """The command in new namespaces, with further options of bubblewrap.

    It sees the system, Python and this package read-only, a private /tmp, the GPUs, and of the home: the files of all
    runs read-only, the folder of its run, the answers, and the database. In a shared hybrid, which others join, the
    folders of all runs that share.
    """
    here, shown = str(Path.cwd()), [*added_paths(), *_SYSTEM_WIDE]
    others = (home.shared,) if run_id.startswith(SHARED_HYBRID) else ()
    writable = (home.run(run_id), *others, home.answers, home.database.parent)
    return [
        program(),
        "--unshare-user",
        "--disable-userns",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--cap-drop",
        "ALL",
        "--bind",
        "/proc",
        "/proc",
        "--dev",
        "/dev",
        *_device_files(),
        "--tmpfs",
        "/tmp",
        *python(),
        *read_only(shown),
        "--tmpfs",
        str(home.root),
        *read_only([str(home.files)]),
        *(word for place in writable for word in ("--bind", str(place), str(place))),
        "--dir",
        here,
        "--chdir",
        here,
        "--unsetenv",
        "TMPDIR",
        *(word for name, value in _inside().items() for word in ("--setenv", name, value)),
        "--remount-ro",
        str(home.root),
        "--remount-ro",
        "/",
        *options,
        "--",
        *command,
    ]


def environment_inside(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment that bubblewrap makes of this one."""
    return {name: value for name, value in environment.items() if name != "TMPDIR"} | _inside()


def _inside() -> dict[str, str]:
    search_path = os.pathsep.join(filter(None, (str(_PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    return {"HOME": "/tmp", "PYTHONPATH": search_path}


def forgo_privileges() -> None:
    """Keep this process and all that it starts from ever gaining privileges, by setuid programs for instance."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def die_with_parent(parent: int | None = None) -> None:
    """End this process with the one that started it, by its id if that is known: it may have ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if parent not in (None, os.getppid()):
        os._exit(1)


def _device_files() -> list[str]:
    """Options that show the GPUs."""
    found = [*map(str, sorted(Path("/dev").glob("nvidia*"))), "/dev/dri", "/dev/kfd", "/dev/dxg"]
    return [word for place in found for word in ("--dev-bind-try", place, place)]


def _make_device_files() -> None:
    """Make a file that CUDA needs. Its own setuid program makes it otherwise, which workers may not start."""
    missing = Path("/dev/nvidiactl").exists() and not Path("/dev/nvidia-uvm").exists()
    program = shutil.which("nvidia-modprobe") if missing else None
    if program is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run([program, "-u", "-c", "0"], stdin=subprocess.DEVNULL, timeout=30, check=False)
