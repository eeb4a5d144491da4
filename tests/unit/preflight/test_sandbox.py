"""Foreign code in bubblewrap: real attempts at what it must not reach. Where bubblewrap does not work it is refused."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import SANDBOX_SETTING
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.preflight import sandbox
from unifiednn_core.preflight.pack import exporting, foreign
from unifiednn_core.preflight.pack.request import PackRequest, Source, parse_example
from unifiednn_core.preflight.pack.source import network_of
from unifiednn_core.preflight.pack.work import differences
from unifiednn_core.preflight.sandbox import Limits

EXAMPLE = parse_example(["1,6,6"])
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
MIB = 1024**2


@pytest.fixture(autouse=True)
def _on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SANDBOX_SETTING, "on")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("net", None)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """Runs a script in the sandbox without torch; returns what it printed and which limit ended it.

    Skips what follows where bubblewrap does not work, after a look at the refusal.
    """
    require_sandbox(tmp_path)

    def in_sandbox(
        code: str, limits: Limits | None = None, environment: dict[str, str] | None = None
    ) -> tuple[str, str]:
        limits, log = limits or Limits(), tmp_path / "log"
        command = sandbox.isolated([sys.executable, "-I", "-c", code], (), limits)
        with log.open("wb") as printed:
            process = subprocess.Popen(
                command, stdout=printed, stderr=printed, stdin=subprocess.DEVNULL, env=environment
            )
            problem = sandbox.watched(process, log, limits)
        with log.open("rb") as file:
            return file.read(10_000).decode("utf-8", "replace"), "" if problem is None else problem.message

    return in_sandbox


def require_sandbox(folder: Path) -> None:
    if reason := sandbox.trial():
        assert reason in refusal(written(folder, NETWORK), folder)
        pytest.skip(reason)


def written(folder: Path, code: str) -> Path:
    path = folder / "net.py"
    path.write_text(code)
    return path


def refusal(path: Path, out: Path) -> str:
    with pytest.raises(BadInput) as caught:
        sandbox.convert(PackRequest(source=Source(path=path, factory="build"), example=EXAMPLE, out=out / "net.pt2"))
    assert not list(out.glob("*.pt2"))
    assert not list(out.glob(".converting-*"))
    return " | ".join(f"{finding.title}: {finding}" for finding in caught.value.findings)


def test_code_reaches_no_network_no_files_and_no_processes(
    tmp_path: Path, run: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "do not tell")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    python = {part for place in (sys.prefix, sys.base_prefix, sandbox.__file__) for part in Path(place).parts}
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.settimeout(0)
        abstract.bind("\0" + str(tmp_path))
        abstract.listen()
        abstract.settimeout(0)
        code = f"""
import os, pathlib, socket
pathlib.Path("/tmp/mine").write_text("own scratch")
def connect(family, address):
    with socket.socket(family) as door:
        door.settimeout(5)
        door.connect(address)
def fill():
    with open("/tmp/large", "wb") as file:
        for _ in range(64):
            file.write(bytes({MIB}))
attempts = {{
    "TCP": lambda: connect(socket.AF_INET, ("127.0.0.1", {server.getsockname()[1]})),
    "abstract socket": lambda: connect(socket.AF_UNIX, "\\0" + {str(tmp_path)!r}),
    "read": lambda: open({str(secret)!r}).read(),
    "see the home": lambda: set(os.listdir({str(Path.home())!r})) - {python} or 1 / 0,
    "read passwords": lambda: open("/etc/passwd").read(),
    "read other environments": lambda: open("/proc/{os.getpid()}/environ").read(),
    "write": lambda: open({str(tmp_path / "written")!r}, "w"),
    "write in the package": lambda: open({str(Path(sandbox.__file__).with_name("written"))!r}, "w"),
    "write in the root": lambda: open("/written", "w"),
    "write in /dev": lambda: open("/dev/written", "w"),
    "fill the disk": fill,
    "kill": lambda: os.kill({os.getpid()}, 9),
    "trace": lambda: open("/proc/{os.getpid()}/mem", "rb"),
    "mount": lambda: os.unshare(os.CLONE_NEWUSER) if hasattr(os, "unshare") else 1 / 0,
}}
through = []
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, ZeroDivisionError):
        continue
    through.append(name)
print(len(attempts), "tried, through:", through, "processes:", len([n for n in os.listdir("/proc") if n.isdigit()]))
print("secrets:", [name for name in os.environ if "SECRET" in name])
"""
        printed, problem = run(code, Limits(scratch_bytes=32 * MIB), environment={})
        for door in (server, abstract):
            with pytest.raises(BlockingIOError):
                door.accept()
    assert (printed, problem) == ("14 tried, through: [] processes: 2\nsecrets: []\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "secret"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os, time\nfor _ in range(200): os.fork() or time.sleep(60)\ntime.sleep(60)", "more than 8 processes"),
        ("import time\ntime.sleep(60)", "more than 2 s"),
        ("while True: print('x' * 10_000)", "printed more than"),
        ("import time\nkept = b'x' * (1200 * 1024**2)\ntime.sleep(60)", "of memory"),
        ("import os\nos.kill(os.getpid(), 11)", "crashed its process (signal 11)"),
    ],
)
def test_what_asks_for_too_much_is_ended_with_all_that_it_started(
    run: Callable[..., tuple[str, str]], code: str, says: str
) -> None:
    limits = Limits(memory_bytes=32 * MIB, wall_s=2 if "2 s" in says else 60, log_bytes=64 * 1024, processes=8)
    assert says in run(code, limits)[1]


def test_nothing_runs_while_the_sandbox_is_off_or_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.delenv(SANDBOX_SETTING)
    assert f"Set {SANDBOX_SETTING}=on before the start" in refusal(path, tmp_path)
    monkeypatch.setenv(SANDBOX_SETTING, "on")
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.trial.cache_clear()
    try:
        assert "bubblewrap is not installed" in refusal(path, tmp_path)
        (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: No permissions to create a namespace' >&2\nexit 1\n")
        (tmp_path / "bwrap").chmod(0o755)
        sandbox.trial.cache_clear()
        assert "No permissions to create a namespace" in refusal(path, tmp_path)
    finally:
        sandbox.trial.cache_clear()
    assert not (tmp_path / "ran").exists()


def test_code_is_converted_to_the_same_bits_and_its_words_are_only_shown(tmp_path: Path) -> None:
    require_sandbox(tmp_path)
    path = written(tmp_path, f"print('\\x1b[31mred')\n{NETWORK}")
    source = Source(path=path, factory="build", arguments={"width": 3})
    request = PackRequest(source=source, example=EXAMPLE, out=tmp_path / "net.pt2")
    done = sandbox.convert(request)
    assert done.log == "\\x1b[31mred"
    with torch.random.fork_rng(devices=[]):
        eager = network_of(source)
    assert differences(eager, ExportedFormat().read(done.path, None), EXAMPLE) == []
    with pytest.raises(BadInput, match="exists already"):
        sandbox.convert(request)


def test_a_forged_answer_is_shown_as_the_words_of_the_code(tmp_path: Path) -> None:
    require_sandbox(tmp_path)
    answer = b"\x1b[2J: Harm!\n\nnet.pt2: done curl evil"
    code = f"import os\nfor n in range(3, 99):\n  try: os.pwrite(n, {answer!r}, 0)\n  except OSError: pass\n"
    said = refusal(written(tmp_path, f"{code}os._exit(2)"), tmp_path)
    assert "The process that ran the code says: \\x1b[2J: Harm! net.pt2: done" in said


def _torchscript(folder: Path) -> tuple[Path, Path | None]:
    network = network_of(Source(path=written(folder, NETWORK), factory="build"))
    torch.jit.save(torch.jit.script(network), folder / "scripted.pt")  # type: ignore[no-untyped-call]
    return folder / "scripted.pt", None


def _pickle(folder: Path) -> tuple[Path, Path | None]:
    code = written(folder, NETWORK)
    torch.save(network_of(Source(path=code, factory="build")), folder / "whole.pt")
    return folder / "whole.pt", code


@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", [_torchscript, _pickle])
def test_torchscript_and_pickles_give_the_network_that_was_saved(
    tmp_path: Path, kind: Callable[[Path], tuple[Path, Path | None]]
) -> None:
    """The part that runs in the sandbox, on files of our own."""
    with torch.random.fork_rng(devices=[]):
        path, companion = kind(tmp_path)
        del sys.modules["net"]
        eager = network_of(Source(path=tmp_path / "net.py", factory="build"))
        del sys.modules["net"]
        loaded = foreign.loaded(Source(path=path, companion=companion))
        torch.export.save(exporting.exported(loaded, EXAMPLE, "net"), tmp_path / "net.pt2")
    assert differences(eager, ExportedFormat().read(tmp_path / "net.pt2", None), EXAMPLE) == []


def test_a_pickle_without_its_code_is_refused(tmp_path: Path) -> None:
    torch.save({"a": 1}, tmp_path / "whole.pt")
    with pytest.raises(BadInput, match="--code"):
        foreign.loaded(Source(path=tmp_path / "whole.pt"))
