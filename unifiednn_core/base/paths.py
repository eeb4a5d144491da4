"""Folders under `UNIFIEDNN_HOME` and of the application; settings from the environment."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import is_plain

SANDBOX_SETTING = "UNIFIEDNN_SANDBOX"
HOSTS_SETTING = "UNIFIEDNN_HOSTS"
SHARED_RUN, SHARED_HYBRID = "s", "h"
"""First letters of ids; those of private runs begin with a digit."""
DEVICES_SETTING = "UNIFIEDNN_DEVICES"
NO_DEVICE = "none"
MOST_CPU_DEVICES = 64
_DATABASE = "unifiednn.sqlite3"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def worker_sandbox_is_on() -> bool:
    """Whether workers run in the sandbox where it works; on by default."""
    return os.environ.get(SANDBOX_SETTING, "").strip().lower() not in ("off", "0", "false", "no")


def named_hosts() -> list[str]:
    """Host names in `UNIFIEDNN_HOSTS`, separated by commas there: those by which people reach the server."""
    return [name.strip() for name in os.environ.get(HOSTS_SETTING, "").split(",") if name.strip()]


def offered_devices() -> tuple[str, ...] | None:
    """What this machine offers of its devices, in words of a spec, as the environment says; None is all of them."""
    words = os.environ.get(DEVICES_SETTING, "").replace(",", " ").split()
    return tuple(word for word in words if word.lower() != NO_DEVICE) if words else None


def cpu_devices() -> int:
    """Number of logical devices that share the CPU: as many as `UNIFIEDNN_DEVICES` names. Raises `BadInput`."""
    words = [word.lower().removeprefix("cpu:") for word in offered_devices() or () if word.lower().startswith("cpu:")]
    for word in words:
        if not word.isdecimal() or int(word) >= MOST_CPU_DEVICES:
            remedy = f"Name cpu:0 to cpu:{MOST_CPU_DEVICES - 1} at most, or cpu for the whole."
            raise BadInput.of("Devices", DEVICES_SETTING, f"'cpu:{word}' is no part of the CPU.", remedy)
    return 1 + max(map(int, words), default=0)


def application() -> Path:
    """Read-only folder of app.py, pages/ and sample_models/: inside the installed package, next to it in a clone."""
    package = Path(__file__).parents[1]
    installed = package / "_application"
    return installed if installed.is_dir() else package.parent


@dataclass(frozen=True, slots=True)
class Home:
    """Folder layout of the home folder; `create` makes the folders."""

    root: Path

    @classmethod
    def default(cls) -> "Home":
        """`UNIFIEDNN_HOME`, or `~/.unifiednn`."""
        return cls(Path(os.environ.get("UNIFIEDNN_HOME") or Path.home() / ".unifiednn").expanduser().resolve())

    @property
    def database(self) -> Path:
        """The SQLite file, in a folder of its own with the files that SQLite puts beside it."""
        return self.root / "store" / _DATABASE

    @property
    def quarantine(self) -> Path:
        """Uploaded files that have not been read yet."""
        return self.root / "quarantine"

    @property
    def files(self) -> Path:
        """Model and data files, named by the SHA-256 of their bytes."""
        return self.root / "files"

    def file(self, sha256: str) -> Path:
        """Path of a model or data file."""
        return self.files / sha256[:2] / sha256

    @property
    def checks(self) -> Path:
        """Reports of checks, kept by content."""
        return self.root / "checks"

    @property
    def answers(self) -> Path:
        """What torch itself says about networks, kept by content. Workers write here: little may rely on it."""
        return self.root / "answers"

    @property
    def samples(self) -> Path:
        """Sample models and their data, if the application's own folder has none."""
        return self.root / "samples"

    @property
    def shared(self) -> Path:
        """Folders of the runs in shared hybrids, whose workers may write all of it: others join later."""
        return self.root / "shared"

    def run(self, run_id: str) -> Path:
        """Folder of a run: its separated models and checkpoints; or of a hybrid: its log. A private one has both."""
        folders = {SHARED_RUN: self.shared, SHARED_HYBRID: self.root / "hybrids"}
        return folders.get(run_id[:1], self.root / "runs") / run_id

    def checkpoints(self, run_id: str, submodel: str) -> Path:
        """Folder of the checkpoints of one sub-model."""
        return self.run(run_id) / "checkpoints" / submodel

    def kept(self, run_id: str, name: str) -> Path:
        """A file in the folder of a run; it may be missing. Raises `NotFound` for a link, which a worker may make."""
        if not is_plain(self.run(run_id), name):
            raise NotFound(f"{name} of run {run_id} is a link.")
        return self.run(run_id) / name

    def newest_checkpoint(self, run_id: str, submodel: str) -> Path | None:
        """The newest checkpoint of a sub-model; None without one. Raises as `kept`."""
        newest = max(self.checkpoints(run_id, submodel).glob("step-*.safetensors"), default=None)
        return None if newest is None else self.kept(run_id, str(newest.relative_to(self.run(run_id))))

    def at_work(self, hybrid_id: str) -> Path:
        """File in which a worker marks its current step."""
        return self.run(hybrid_id) / "at_work"

    def log(self, hybrid_id: str) -> Path:
        """Log of the workers of a hybrid."""
        return self.run(hybrid_id) / "worker.log"

    def create(self) -> "Home":
        """Make the folders and close them to other users; idempotent."""
        for folder in self._folders:
            folder.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)
            mode = folder.stat().st_mode
            if mode & _OTHERS and not mode & stat.S_ISVTX:  # a folder for everybody, such as /tmp, stays as it is
                with suppress(PermissionError):  # it belongs to another user, who decides
                    folder.chmod(stat.S_IRWXU)
        return self

    @property
    def is_private(self) -> bool:
        """Whether no other user of this machine, except root, can enter its folders."""
        root, *inside = (bool(folder.stat().st_mode & _OTHERS) for folder in self._folders)
        return not root or not any(inside)

    @property
    def _folders(self) -> tuple[Path, ...]:
        runs = (self.root / "runs", self.shared, self.root / "hybrids")
        return self.root, self.quarantine, self.files, *runs, self.database.parent, self.checks, self.answers
