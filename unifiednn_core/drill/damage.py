"""Spoils the newest checkpoint of a sub-model, as a disk does that lies."""

import sqlite3
from contextlib import closing
from pathlib import Path

from unifiednn_core.home import Home

OPEN_STATES = ("queued", "running", "pausing", "paused", "interrupted")


def spoil(home: Home, run_id: str, how: str, share: float) -> Path | None:
    """Flip a byte of, or cut off, the newest checkpoint of one that still trains and has an earlier one.

    Returns the file; None where no sub-model has two checkpoints.
    """
    with closing(sqlite3.connect(home.root / "unifiednn.sqlite3")) as database:
        marks = ", ".join("?" * len(OPEN_STATES))
        rows = database.execute(
            f"SELECT name FROM submodels WHERE run_id = ? AND state IN ({marks}) ORDER BY name",
            (run_id, *OPEN_STATES),
        )
        candidates = [paths for (name,) in rows if len(paths := checkpoints(home, run_id, name)) > 1]
    if not candidates:
        return None
    path = candidates[int(share * len(candidates))][-1]
    content = bytearray(path.read_bytes())
    place = int(share * len(content))
    if how == "flip":
        content[place] ^= 0xFF
        path.write_bytes(content)
    else:
        path.write_bytes(content[:place])
    return path


def checkpoints(home: Home, run_id: str, submodel: str) -> list[Path]:
    """Checkpoints of a sub-model by their names, the oldest first."""
    return sorted(home.checkpoints(run_id, submodel).glob("step-*.safetensors"))
