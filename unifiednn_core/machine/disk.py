"""What files and folders take on the disk."""

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.base.paths import Home


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes of a home folder by kind, and of its disk."""

    library: int = 0
    models: int = 0
    checkpoints: int = 0
    uploads: int = 0
    """Uploads that have not been read yet."""
    database: int = 0
    other: int = 0
    """Logs, kept checks, samples."""
    free: int = 0
    """Of the disk."""

    @property
    def home(self) -> int:
        """All that the home folder takes."""
        return self.library + self.models + self.checkpoints + self.uploads + self.database + self.other


def size_of(folder: Path, *, without: Collection[str] = ()) -> int:
    """Bytes of all files below a folder, without those entries of it; 0 if it is gone. Links are not followed."""
    total = 0
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in without:
                    continue
                try:
                    below = entry.is_dir(follow_symlinks=False)
                    total += size_of(Path(entry.path)) if below else entry.stat(follow_symlinks=False).st_size
                except OSError:  # it went meanwhile
                    continue
    except OSError:
        return 0
    return total


def disk_use(home: Home) -> DiskUse:
    """Look at each file of a home once: with many runs that takes seconds."""
    of_runs, others = (home.root / "runs", home.shared), (home.files, home.quarantine, home.database.parent)
    runs = [run for folder in of_runs for run in folder.glob("*")]
    models = sum(size_of(run / "models") for run in runs)
    checkpoints = sum(size_of(run / "checkpoints") for run in runs)
    library, uploads, database = map(size_of, others)
    other = sum(size_of(run, without=("models", "checkpoints")) for run in runs)
    other += size_of(home.root, without={folder.name for folder in (*of_runs, *others)})
    return DiskUse(library, models, checkpoints, uploads, database, other, shutil.disk_usage(home.root).free)
