"""Where everything is kept: the folders under `UNIFIEDNN_HOME`."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Home:
    """Folder layout of one installation; `create` makes the folders."""

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
        """Uploaded files that nobody has looked at yet."""
        return self.root / "quarantine"

    @property
    def files(self) -> Path:
        """Model and data files, named by the SHA-256 of their bytes."""
        return self.root / "files"

    def file(self, sha256: str) -> Path:
        """Place of a model or data file."""
        return self.files / sha256[:2] / sha256

    def run(self, run_id: str) -> Path:
        """Folder of one run: its log and its separated models."""
        return self.root / "runs" / run_id

    def checkpoints(self, run_id: str, submodel: str) -> Path:
        """Folder of the checkpoints of one sub-model."""
        return self.run(run_id) / "checkpoints" / submodel

    def at_work(self, run_id: str) -> Path:
        """File in which a worker marks what it is doing."""
        return self.run(run_id) / "at_work"

    def create(self) -> "Home":
        """Make the folders; safe to call again."""
        for folder in (self.root, self.quarantine, self.files, self.root / "runs"):
            folder.mkdir(parents=True, exist_ok=True)
        return self
