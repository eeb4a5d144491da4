"""Where an exercise takes place: a folder with a home, a journal, a clock, and room for downloads."""

from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.drill.journal import Journal
from unifiednn_core.home import Home


@dataclass(frozen=True, slots=True)
class Scene:
    """Folder of one exercise."""

    folder: Path

    @property
    def home(self) -> Home:
        """Its own home; never that of the operator."""
        return Home(self.folder / "home")

    @property
    def database(self) -> Path:
        """The store of that home."""
        return self.home.root / "unifiednn.sqlite3"

    @property
    def journal(self) -> Journal:
        """A new reader or writer of what was done."""
        return Journal(self.folder / "journal.jsonl")

    @property
    def clock(self) -> Path:
        """Offset of the clock that all processes of the exercise share."""
        return self.folder / "clock"

    @property
    def downloads(self) -> Path:
        """Where models are downloaded to."""
        return self.folder / "downloads"

    @property
    def hashes(self) -> Path:
        """What the trained models read back as."""
        return self.folder / "hashes.json"

    def log(self, role: str) -> Path:
        """What the processes of a role print."""
        return self.folder / f"{role}.log"
