"""Python files as strangers may hand them in: a good network, and one that tries everything on its way."""

import json
from pathlib import Path

import pytest

from unifiednn_core.sandbox import bubblewrap, landlock, probe

NETWORK = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(1, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(width * 16, 3)

    def forward(self, x):
        return self.head(self.drop(torch.relu(self.norm(self.conv(x)))).view(x.size(0), -1))


def build(width=4):
    torch.manual_seed(5)
    return Net(width)
"""
ATTEMPTS = """
import ctypes, fcntl, mmap, os, platform, resource, signal, socket, subprocess, tempfile, threading
from pathlib import Path

PLACES = json.loads(PLACES_TEXT)
CANARY, HOME = PLACES["canary"], PLACES["home"]
libc = ctypes.CDLL(None, use_errno=True)
got_through, tried = [], 0


def attempt(name, action):
    global tried
    tried += 1
    try:
        result = action()
    except (OSError, MemoryError, RuntimeError, ValueError):
        return
    if not (isinstance(result, int) and result == -1):
        got_through.append(name)


def connect(family, kind, address):
    with socket.socket(family, kind) as door:
        door.connect(address)
        door.send(b"here I am")


def many_files(folder):
    for number in range(10_000):
        Path(folder, f"file{number}").write_bytes(b"x" * 1024)


own = str(Path(__file__).parent)
attempt("read /etc/passwd", lambda: Path("/etc/passwd").read_text())
attempt("read the database", lambda: Path(HOME, "unifiednn.sqlite3").read_bytes())
attempt("list the home folder", lambda: os.listdir(HOME))
attempt("list /", lambda: os.listdir("/"))
attempt("read an SSH key", lambda: Path(HOME, ".ssh", "id_ed25519").read_bytes())
attempt("read through a link", lambda: Path(PLACES["link"]).read_bytes())
attempt("hold a path", lambda: os.open(CANARY, os.O_PATH))
attempt("leave its folder", lambda: Path(own, "..", "answer.json").read_bytes())
attempt("follow its files", lambda: os.open("/proc/self/fd/3", os.O_RDONLY))
attempt("read an environment", lambda: Path("/proc/1/environ").read_bytes())
for part in ("environ", "maps", "mem", "cmdline", "fd", "task"):
    attempt(f"read its parent's {part}", lambda: os.open(f"/proc/{os.getppid()}/{part}", os.O_RDONLY))
    attempt(f"read its own {part}", lambda: os.open(f"/proc/self/{part}", os.O_RDONLY))
attempt("write its parent's memory", lambda: os.open(f"/proc/{os.getppid()}/mem", os.O_RDWR))
attempt("read the log of the kernel", lambda: os.open("/proc/kallsyms", os.O_RDONLY))
attempt("see the network", lambda: os.open("/proc/net/tcp", os.O_RDONLY))
attempt("overwrite a file", lambda: Path(CANARY).write_text("mine"))
attempt("append to a file", lambda: open(CANARY, "a").write("mine"))
attempt("truncate a file", lambda: os.truncate(CANARY, 0))
attempt("delete a file", lambda: Path(CANARY).unlink())
attempt("rename a file", lambda: os.rename(CANARY, CANARY + "2"))
attempt("change rights", lambda: os.chmod(CANARY, 0o777))
attempt("change owner", lambda: os.chown(CANARY, 1, 1))
attempt("change times", lambda: os.utime(CANARY, (1, 1)))
attempt("make a link", lambda: os.symlink("/etc/passwd", own + "/link"))
attempt("make a hard link", lambda: os.link(CANARY, own + "/link"))
attempt("make a folder", lambda: os.mkdir(own + "/folder"))
attempt("write 10,000 files", lambda: many_files(own))
attempt("write to /tmp", lambda: many_files("/tmp"))
attempt("write to /dev/shm", lambda: Path("/dev/shm/unifiednn-test").write_bytes(b"x"))
attempt("make a temporary file", lambda: tempfile.TemporaryFile())
attempt("change itself", lambda: Path(__file__).write_text(""))
attempt("open a GPU", lambda: os.open("/dev/nvidiactl", os.O_RDWR))
attempt("TCP", lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", PLACES["tcp"])))
attempt("UDP", lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", PLACES["udp"])))
attempt("IPv6", lambda: socket.socket(socket.AF_INET6))
attempt("unix socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, PLACES["unix"]))
attempt("abstract socket", lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, PLACES["abstract"]))
attempt("pair of sockets", lambda: socket.socketpair())
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("vsock", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
attempt("crypto of the kernel", lambda: socket.socket(socket.AF_ALG))
attempt("a thread", lambda: threading.Thread(target=print).start())
attempt("memory to run", lambda: os.execv(f"/proc/self/fd/{os.memfd_create('x')}", ["x"]))
attempt("type at a terminal", lambda: fcntl.ioctl(0, 0x5412, b"x"))
attempt("grow a pipe", lambda: fcntl.fcntl(1, 1031, 2**20))
attempt("fork", lambda: os.fork() or os._exit(0))
attempt("run a program", lambda: subprocess.run(["/bin/true"]))
attempt("spawn a program", lambda: os.posix_spawn("/bin/true", ["true"], {}))
attempt("become a program", lambda: os.execv("/bin/true", ["true"]))
attempt("ask for its parent", lambda: os.kill(os.getppid(), 0))
attempt("end its parent", lambda: os.kill(os.getppid(), signal.SIGTERM))
attempt("end everybody", lambda: os.kill(-1, signal.SIGTERM))
attempt("have a signal sent", lambda: fcntl.fcntl(1, fcntl.F_SETOWN, os.getppid()))
attempt("slow its parent", lambda: os.sched_setaffinity(os.getppid(), {0}))
attempt("limit its parent", lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1)))
attempt("raise its limits", lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)))
attempt("become root", lambda: os.setuid(0))
attempt("8 GB of bytes", lambda: bytearray(8 * 1024**3))
attempt("8 GB in a map", lambda: mmap.mmap(-1, 8 * 1024**3))
attempt("8 GB in a tensor", lambda: torch.empty(8 * 1024**3, dtype=torch.uint8))
if platform.machine() == "x86_64":
    flags = os.O_WRONLY | os.O_CREAT
    path = CANARY.encode()
    calls = {
        "open": (2, path, 0, 0), "creat": (85, path, 0o600), "openat": (257, -100, path, 0, 0),
        "openat to write": (257, -100, path, flags, 0o600), "openat2": (437, -100, path, b"\\0" * 24, 24),
        "socket": (41, 2, 1, 0), "vfork": (58,), "clone": (56, 17, 0, 0, 0, 0), "clone3": (435, b"\\0" * 88, 88),
        "execve": (59, b"/bin/true", 0, 0), "execveat": (322, -100, b"/bin/true", 0, 0, 0),
        "ptrace": (101, 0, 0, 0, 0), "mount": (165, b"x", b"/mnt", b"tmpfs", 0, 0), "unshare": (272, 0x10000000),
        "setns": (308, 0, 0), "bpf": (321, 0, 0, 0), "keyctl": (250, 0, -3, 1), "io_uring": (425, 1, b"\\0" * 120),
        "userfaultfd": (323, 1), "memfd_create": (319, b"x", 0), "process_vm_readv": (310, os.getppid(), 0, 0, 0, 0, 0),
        "perf_event_open": (298, b"\\0" * 128, 0, -1, -1, 0), "pidfd_open": (434, os.getppid(), 0),
        "tgkill": (234, os.getppid(), os.getppid(), 15), "tkill": (200, os.getppid(), 15),
        "shmget": (29, 0, 4096, 0o1600), "chroot": (161, b"/"), "prctl": (157, 4, 0, 0, 0, 0),
        "open_by_handle_at": (304, -100, b"\\0" * 8, 0), "fanotify_init": (300, 0, 0), "inotify_init": (253,),
        "x32 getpid": (0x40000027,), "name_to_handle_at": (303, -100, path, b"\\0" * 8, b"\\0" * 4, 0),
    }
    for name, (number, *arguments) in calls.items():
        attempt("system call " + name, lambda: libc.syscall(ctypes.c_long(number), *arguments))
held = [number for number in range(256) if libc.fcntl(number, 1) != -1]
secrets = [name for name in os.environ if "SECRET" in name]
print("TRIED", tried, "GOT THROUGH", got_through, "ENVIRONMENT", secrets, "OPEN", len(held))
"""


def require_walls() -> None:
    """Skip where this machine has nothing to build walls from; where it has, they must hold."""
    if not landlock.version() and bubblewrap.program() is None:
        pytest.skip("the kernel has no Landlock, and bubblewrap is not installed")
    assert probe.find().reason == ""


def good(folder: Path) -> Path:
    """A network without anything else."""
    return _written(folder / "good.py", NETWORK)


def curious(folder: Path, places: dict[str, object]) -> Path:
    """The same network in a file that tries to get at `places`, and tells what it got."""
    attempts = ATTEMPTS.replace("PLACES_TEXT", repr(json.dumps(places)))
    return _written(folder / "curious.py", f"{NETWORK}\nimport json\n{attempts}")


def saying(folder: Path, code: str) -> Path:
    """The same network behind other code."""
    return _written(folder / "other.py", f"{NETWORK}\n{code}")


def forging(folder: Path, payload: bytes, answer: bytes | None) -> Path:
    """Code that writes a result and, with `answer`, a report of its own, and ends its process."""
    said = "" if answer is None else f"os.pwrite(ANSWER, {answer!r}, 0)\n"
    code = f"""
import json, os, sys
job = json.loads(sys.argv[1])
RESULT, ANSWER = job["result"], job["answer"]
with os.fdopen(os.dup(RESULT), "wb") as file:
    file.write({payload!r})
{said}os._exit(0)
"""
    return _written(folder / "forging.py", code)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
