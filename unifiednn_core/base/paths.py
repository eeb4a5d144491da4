"""Folders under `UNIFIEDNN_HOME` and of the application; the sandbox setting."""

import os
from dataclasses import dataclass
from pathlib import Path

SANDBOX_SETTING = "UNIFIEDNN_SANDBOX"


def sandbox_is_on() -> bool:
    """Whether the operator allows foreign code to run in the sandbox; off by default."""
    return os.environ.get(SANDBOX_SETTING, "").strip().lower() in ("on", "1", "true", "yes")


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
    def database_url(self) -> str:
        """`UNIFIEDNN_DATABASE_URL`, or the SQLite file in this home."""
        return os.environ.get("UNIFIEDNN_DATABASE_URL") or f"sqlite:///{self.root / 'unifiednn.sqlite3'}"

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
    def samples(self) -> Path:
        """Sample models and their data, if the application's own folder has none."""
        return self.root / "samples"

    def run(self, run_id: str) -> Path:
        """Folder of one run: its log and its separated models."""
        return self.root / "runs" / run_id

    def checkpoints(self, run_id: str, submodel: str) -> Path:
        """Folder of the checkpoints of one sub-model."""
        return self.run(run_id) / "checkpoints" / submodel

    def at_work(self, run_id: str) -> Path:
        """File in which a worker marks its current step."""
        return self.run(run_id) / "at_work"

    def create(self) -> "Home":
        """Make the folders; idempotent."""
        for folder in (self.root, self.quarantine, self.files, self.root / "runs"):
            folder.mkdir(parents=True, exist_ok=True)
        return self
