"""How a worker asks the process that watches its host for files: by small files in a folder that both may write.

Workers are confined, and should need neither network nor credentials nor libraries of an object store. A worker writes
`NAME.ask`, the carrier answers with `NAME.told`; both are JSON. Both ends may die and come back: what is asked stays.
"""

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from unifiednn_core.base.errors import BlobsUnreachable
from unifiednn_core.base.files import open_plain

SILENT_S = 60.0
"""After so long without a sign of the carrier, a worker stops waiting for it, and asks again later."""
LOOK_S = 0.05
MOST_BYTES = 2**20
_ALIVE, _ASK, _TOLD = "alive", ".ask", ".told"


class Question:
    """One question of a worker. A new one has a new name, so that no answer is taken for that of another."""

    def __init__(self, folder: Path, asked: Mapping[str, Any]):
        """Ask. Raises `OSError`."""
        self._folder, self._name = folder, secrets.token_hex(8)
        self._asked_s = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / f"{self._name}{_ASK}", asked)

    def answer(self) -> dict[str, Any] | None:
        """The answer, once there is one. Raises `BlobsUnreachable` if nobody seems to hear, or the question is gone."""
        told, asks = self._folder / f"{self._name}{_TOLD}", (self._folder / f"{self._name}{_ASK}").exists()
        try:
            found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if not asks:  # a newer worker of this hybrid took it away
                raise BlobsUnreachable("What was asked is gone") from None
            if time.monotonic() - self._asked_s > SILENT_S and _age_s(self._folder / _ALIVE) > SILENT_S:
                self.forget()
                raise BlobsUnreachable("The agent of this host does not answer") from None
            return None
        told.unlink(missing_ok=True)
        return found

    def wait(self) -> dict[str, Any]:
        """The answer, however long its transfer takes; raises as `answer`."""
        while (found := self.answer()) is None:
            time.sleep(LOOK_S)
        return found

    def forget(self) -> None:
        """Take the question back."""
        with suppress(OSError):
            (self._folder / f"{self._name}{_ASK}").unlink(missing_ok=True)


def questions(folder: Path) -> dict[str, dict[str, Any]]:
    """What is asked in a folder, by name. A worker may write anything there: what cannot be read is left out."""
    found = {}
    for path in folder.glob(f"*{_ASK}"):
        with suppress(OSError, ValueError, RecursionError):
            with _open(path) as file:
                asked = json.loads(file.read(MOST_BYTES))
            if isinstance(asked, dict):
                found[path.stem] = asked
    return found


def tell(folder: Path, name: str, answer: Mapping[str, Any]) -> None:
    """Answer a question; nothing if it was taken back. It goes last: without it nobody would answer again."""
    asked = folder / f"{name}{_ASK}"
    if asked.exists():
        _write(folder / f"{name}{_TOLD}", answer)
        asked.unlink(missing_ok=True)


def show_life(folder: Path) -> None:
    """Let workers see that somebody works on what they ask."""
    with suppress(OSError), _open(folder / _ALIVE, os.O_WRONLY | os.O_CREAT) as file:
        os.utime(file.fileno())


def empty(folder: Path) -> None:
    """Delete what an earlier worker asked."""
    for path in (*folder.glob(f"*{_ASK}"), *folder.glob(f"*{_TOLD}")):
        path.unlink(missing_ok=True)


def _write(path: Path, document: Mapping[str, Any]) -> None:
    temporary = path.with_suffix(".part")
    with _open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
        file.write(json.dumps(dict(document)).encode())
    temporary.replace(path)


def _open(path: Path, flags: int = os.O_RDONLY) -> BinaryIO:
    """Open a file of a spool, which a worker may have replaced by a link, or all of the spool."""
    handle = open_plain(path.parents[1], f"{path.parent.name}/{path.name}", flags)
    return os.fdopen(handle, "wb" if flags & os.O_WRONLY else "rb")


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return SILENT_S * 2
