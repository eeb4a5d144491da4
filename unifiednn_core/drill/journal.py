"""What was done to the processes of an exercise: one JSON line each, written by whoever does it, read by the drill."""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

What = Literal[
    "started",
    "ended",
    "shot",
    "struck",
    "damaged",
    "jumped",
    "stepped",
    "paused",
    "asked",
    "refused",
    "downloaded",
    "over",
]
Role = Literal["worker", "server", "commands", "check", "drill"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line. Fields that say nothing for `what` are empty."""

    what: What
    role: Role
    pid: int = 0
    at_s: float = 0.0
    """By the clock of the machine that never goes back; the same for all processes."""
    number: int = -1
    """Of the round, or of what was asked."""
    fresh: bool = False
    code: int = 0
    """How a process ended: its exit code, or minus the signal."""
    point: str = ""
    action: str = ""
    text: str = ""
    command: int | None = None
    """Id in the store of what was asked and acknowledged."""


class Journal:
    """A file of lines. Appending is one write, so that lines of several processes do not mix."""

    def __init__(self, path: Path):
        self.path, self._read_bytes = path, 0

    def write(self, entry: Entry) -> None:
        """Append a line, with the time of now."""
        line = json.dumps({**asdict(entry), "at_s": time.monotonic()}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def news(self) -> list[Entry]:
        """Lines since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [Entry(**json.loads(line)) for line in whole.splitlines()]
