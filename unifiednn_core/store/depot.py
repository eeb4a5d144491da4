"""The files of the library and of runs, where several hosts may need them.

On one machine they stay in the home, and nothing here does anything. With `UNIFIEDNN_BLOBS` each is kept as a blob,
too, and a host fetches into its own home what it needs: files of the library to where they always are, since their
names are their content; what runs keep to a cache by content, since a worker may just write the file of that name.
"""

import json
import os
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from unifiednn_core.base.errors import BadInput, BlobLost, BlobsUnreachable, NotFound
from unifiednn_core.base.files import file_sha256, is_plain, move
from unifiednn_core.base.paths import BLOBS_SETTING, Home
from unifiednn_core.store.blob_rows import CHECKPOINTS, MODELS, BlobRows, file_key
from unifiednn_core.store.blobs import BlobDamaged, Blobs, asked_url, blobs_at
from unifiednn_core.store.people import People
from unifiednn_core.store.schema import BlobRow

SETTING = "blobs"
MARKING = "blobs-marking"
"""Setting with the place that is being marked: after a kill it tells this mark from that of another database."""
CACHED_S = 24 * 3600.0
"""How long a file stays in the cache of a host."""
YOUNG_S = 3600.0
"""What was fetched so lately is looked at later: its row may be newer than the look."""
PROBES = ".probes.safetensors"
_ATTEMPT = ".attempt"


class _Place(NamedTuple):
    """Where blobs are, as the server's host finds them, and what identifies the place."""

    url: str
    mark: str
    host: str
    """Name of the server's host."""


class Depot:
    """Keeps files for all hosts, and brings them to this one. Methods raise `BlobsUnreachable` and `BlobLost`.

    Safe to share between threads. Where `is_shared` is False, all files are in this home and stay there.
    """

    def __init__(self, home: Home, rows: BlobRows, place: _Place | None, blobs: Blobs | None = None):
        """`blobs` replaces those of the place."""
        self.home, self.rows, self._place, self._given = home, rows, place, blobs
        self._known: dict[tuple[Path, int, int, int], str] = {}
        self._fetching: dict[str, threading.Lock] = {}

    @classmethod
    def of(cls, home: Home, rows: BlobRows, people: People) -> "Depot":
        """The depot of a home, as the setting in its database says."""
        row = people.setting(SETTING)
        return cls(home, rows, None if row is None else _Place(**json.loads(row.value)))

    @property
    def is_shared(self) -> bool:
        """Whether files are kept for several hosts."""
        return self._place is not None

    @property
    def url(self) -> str:
        """Where this host finds the blobs; "" on one machine."""
        return "" if self._place is None else asked_url() or self._place.url

    @cached_property
    def blobs(self) -> Blobs:
        """The blobs. Raises `BadInput` if this host has not what they need."""
        return self._given or blobs_at(self.url)

    def require_place(self) -> None:
        """Raise `BadInput` if this host finds other blobs than the server, and `BlobsUnreachable` if it finds none."""
        if self._place is None:
            return
        found = self.blobs.read_mark()
        if found is None:
            raise BlobsUnreachable(f"{self.url} is not there, or not mounted")
        if found != self._place.mark:
            message, remedy = f"{self.url} holds the files of another database.", f"Correct or unset {BLOBS_SETTING}."
            raise BadInput.of("Other files", BLOBS_SETTING, message, remedy)

    # -- the library

    def keep_file(self, sha256: str) -> None:
        """Keep a file of the library that is in this home."""
        if self.is_shared:
            path, key = self.home.file(sha256), file_key(sha256)
            self._is_copy(sha256)
            coming = self.rows.announce(key, size_bytes=path.stat().st_size)
            if coming != "whole":
                self.blobs.put(path, key, again=coming == "again")
                self.rows.confirm(key)

    def bring_file(self, sha256: str) -> Path:
        """The file in this home, fetched if it was not; without shared files it may be missing."""
        path = self.home.file(sha256)
        if self.is_shared and not path.is_file():
            self._is_copy(sha256)
            self._fetch(file_key(sha256), path)
        return path

    def _is_copy(self, sha256: str) -> None:
        """Note that the file goes from this home with its row. What was here before files were shared does not."""
        (self.home.fetched / sha256).mkdir(parents=True, exist_ok=True)

    def bring_files(self, references: Iterable[str]) -> None:
        """Bring what a spec names by content; other names are left out."""
        if self.is_shared:
            for name in dict.fromkeys(references):
                if name.startswith("sha256:"):
                    with suppress(BlobLost):  # whoever reads it says that it is missing
                        self.bring_file(name.removeprefix("sha256:"))

    def drop_file(self, sha256: str) -> bool:
        """Delete the blob of a file that is marked in the library; False if somebody imported it again."""
        if not self.is_shared:
            return True
        gone = self.rows.leave_file(sha256)
        self.sweep()
        return gone

    # -- what runs keep; names are places in the folder of the run

    def keep(self, run_id: str, submodel: str, names: Sequence[str]) -> dict[str, str]:
        """Keep files from the folder of a run; returns the key of each. They count once the caller's row says so."""
        return {name: self._keep(run_id, submodel, name, self.home.run(run_id) / name) for name in names}

    def _keep(self, run_id: str, submodel: str, name: str, path: Path) -> str:
        key, size_bytes = f"runs/{run_id}/{submodel}/{self._sha256(path)}", path.stat().st_size
        coming = self.rows.announce(key, size_bytes=size_bytes, run_id=run_id, submodel=submodel, name=name)
        if coming != "whole":
            self.blobs.put(path, key, again=coming == "again")
            self.rows.came(key)
        return key

    def keep_copy(self, run_id: str, submodel: str, name: str, path: Path) -> dict[str, str]:
        """Keep `path` as the file of this name; returns its key. The file moves into the cache."""
        key = self._keep(run_id, submodel, name, path)
        move(path, self.home.fetched / _sha256_in(key) / Path(name).name)
        return {name: key}

    def bring(self, run_id: str, submodel: str, name: str) -> Path:
        """A file of a run: in its folder if that is the newest, else from the cache, fetched if necessary.

        Without shared files it may be missing. Raises `NotFound` for a link, which a worker may have made.
        """
        path = self.home.run(run_id) / name
        if not is_plain(self.home.run(run_id), name):
            raise NotFound(f"{name} of run {run_id} is a link.")
        if not self.is_shared:
            return path
        found = next((row for row in self.rows.of(run_id, submodel) if row.name == name), None)
        return path if found is None else self._brought(found)

    def _brought(self, row: BlobRow) -> Path:
        path, sha256 = self.home.run(row.run_id) / row.name, _sha256_in(row.key)
        if self._holds(path, sha256):
            return path
        cached = self.home.fetched / sha256 / path.name
        if not self._holds(cached, sha256):
            self._fetch(row.key, cached)
        with suppress(OSError):
            os.utime(cached)
        return cached

    def newest_checkpoint(self, run_id: str, submodel: str) -> Path | None:
        """The newest checkpoint of a sub-model, fetched if necessary; None without one. Raises as `bring`."""
        if self.is_shared and (rows := self._checkpoint_rows(run_id, submodel)):
            return self._brought(rows[0])
        newest = max(self.home.checkpoints(run_id, submodel).glob("step-*.safetensors"), default=None)
        return None if newest is None else self.bring(run_id, submodel, str(newest.relative_to(self.home.run(run_id))))

    def begun(self, run_id: str, submodel: str, attempt: int) -> None:
        """Note that an attempt begins here: until another host begins one, the checkpoints here are the newest."""
        folder = self.home.checkpoints(run_id, submodel)
        with suppress(OSError):  # without the note they are fetched
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _ATTEMPT).write_text(str(attempt), encoding="ascii")

    def bring_checkpoints(self, run_id: str, submodel: str, recorded: str | None, attempt: int) -> list[str]:
        """Make the folder of a sub-model's checkpoints what its blobs say, unless the last `attempt` was made here.

        `recorded` is the name of the newest one, by its row. Returns a sentence for each that is lost.
        """
        folder = self.home.checkpoints(run_id, submodel)
        if _number_in(folder / _ATTEMPT) == attempt and any(folder.glob("step-*.safetensors")):
            return []
        named = {Path(row.name).name: row for row in self._checkpoint_rows(run_id, submodel)}
        if recorded is not None and recorded not in named:
            if (folder / recorded).is_file():  # a worker wrote it before files were shared
                return []
            if not named:
                message = f"The checkpoint {recorded} of {submodel} is missing in {self.url}, and there is no other."
                raise BlobLost(message, "Retry it once it is there, or from the start.")
        for stale in folder.glob("step-*"):
            if stale.name not in named:
                stale.unlink(missing_ok=True)
        lost = {} if recorded is None or recorded in named else {recorded: "is missing"}
        for name, row in named.items():
            if not self._holds(folder / name, _sha256_in(row.key)):
                try:
                    self._fetch(row.key, folder / name)
                except BlobLost as error:
                    (folder / name).unlink(missing_ok=True)
                    lost[name] = "is damaged" if isinstance(error, BlobDamaged) else "is missing"
        left = max((path.name for path in folder.glob("step-*.safetensors")), default="")
        if lost and not left:  # this host may be at fault: to begin anew would delete them for all
            name = max(lost)
            message = f"The checkpoint of {submodel} at step {_step_of(name)} {lost[name]} in {self.url}, as this host"
            message += " reads it, and there is no earlier one."
            raise BlobLost(message, "Retry it, on another host if this one is at fault, or from the start.")
        return [
            f"The checkpoint of {submodel} at step {_step_of(name)} {how} in {self.url}; "
            f"the one at step {_step_of(left)} is used."
            for name, how in lost.items()
            if name > left
        ]

    def bring_to_folder(self, run_id: str, submodel: str, name: str) -> None:
        """Fetch a file to the folder of its run itself, for a worker that reads it there while nobody writes it."""
        path = self.home.run(run_id) / name
        for row in self.rows.of(run_id, submodel):
            if row.name == name and not self._holds(path, _sha256_in(row.key)):
                self._fetch(row.key, path)

    def _checkpoint_rows(self, run_id: str, submodel: str) -> list[BlobRow]:
        """The newest first: names have the step."""
        rows = [row for row in self.rows.of(run_id, submodel) if row.name.startswith(CHECKPOINTS)]
        return sorted(rows, key=lambda row: row.name, reverse=True)

    # -- the end

    def sweep(self, run_id: str | None = None) -> int:
        """Delete the blobs that are to leave, of one run or of all; returns how many."""
        gone = 0
        while self.is_shared and (keys := self.rows.take_leaving(run_id)):
            left = list(keys)
            try:
                for key in keys:
                    self.blobs.delete(key)
                    self.rows.forget(key)
                    left.remove(key)
                    gone += 1
            finally:
                if left:
                    self.rows.give_back(left)
        return gone

    def drop_run(self, run_id: str) -> None:
        """Delete all blobs of a run, but those that another host is putting or deleting, which go by age."""
        if self.is_shared:
            self.rows.leave_run(run_id)
            self.sweep(run_id)

    def keep_what_is_here(self) -> None:
        """Keep what has no blob and is in this home: from before files were shared, or of an import that died."""
        if not self.is_shared:
            return
        for sha256 in self.rows.files_without():
            if self.home.file(sha256).is_file():
                self.keep_file(sha256)
        for row in self.rows.submodels_without():
            folder = self.home.run(row.run_id)
            models = (row.artifact, row.model_path and Path(row.model_path).name, f"{row.name}{PROBES}")
            kept = [path.name for path in self.home.checkpoints(row.run_id, row.name).glob("step-*.safetensors")]
            names = [f"{CHECKPOINTS}{row.name}/{name}" for name in kept if row.checkpoint is not None]
            names += [f"{MODELS}{name}" for name in models if name and row.artifact is not None]
            if names := [name for name in names if (folder / name).is_file()]:
                self.rows.confirm_of(row.run_id, row.name, self.keep(row.run_id, row.name, names))

    def tidy_cache(self, there: Iterable[str], now_s: float | None = None) -> None:
        """Delete what was fetched and is old, and files of the library that are not `there` any more."""
        known, now_s = set(there), time.time() if now_s is None else now_s
        for folder in self.home.fetched.glob("*") if self.is_shared else ():
            with suppress(OSError):
                inside = list(folder.iterdir())
                if now_s - folder.stat().st_mtime < YOUNG_S:
                    continue
                if folder.name not in known:
                    self.home.file(folder.name).unlink(missing_ok=True)
                old = all(now_s - path.stat().st_mtime > CACHED_S for path in inside)
                if old and (inside or folder.name not in known):
                    shutil.rmtree(folder)

    def _fetch(self, key: str, to: Path) -> None:
        """Fetch a blob, once for all that want it now. One that is lost twice is put again by whoever has it.

        Nothing is deleted: the memory, disk or network of this host may be at fault.
        """
        with self._fetching.setdefault(key, threading.Lock()):
            if self._holds(to, _sha256_in(key)):
                return
            try:
                self.blobs.fetch(key, to)
            except BlobLost:
                try:
                    self.blobs.fetch(key, to)
                except BlobLost:
                    self.rows.doubt(key)
                    raise

    def _holds(self, path: Path, sha256: str) -> bool:
        try:
            return self._sha256(path) == sha256
        except OSError:
            return False

    def _sha256(self, path: Path) -> str:
        """Hash of a file, computed once as long as the file is the same."""
        stat = path.stat()
        facts = (path, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        known = self._known.get(facts)  # other threads may clear them
        if known is None:
            if len(self._known) > 1000:
                self._known.clear()
            known = self._known[facts] = file_sha256(path)
        return known


def settle(home: Home, rows: BlobRows, people: People) -> None:
    """Write what `UNIFIEDNN_BLOBS` of a server says into the database. Raises `BadInput` and `BlobsUnreachable`.

    All hosts then find the blobs by it. A database that has blobs elsewhere keeps its place.
    """
    url, known = asked_url(), people.setting(SETTING)
    place = None if known is None else _Place(**json.loads(known.value))
    if not url or (place is not None and url == place.url):
        return
    blobs, host = blobs_at(url), socket.gethostname()
    if Path(blobs.url).is_relative_to(home.root):
        message, remedy = f"{url} is in the home of this host.", "Name a folder outside of every home."
        raise BadInput.of("In a home", BLOBS_SETTING, message, remedy)
    found, marking = blobs.read_mark(), people.setting(MARKING)
    if place is not None and found == place.mark:
        if host != place.host:  # only this host finds it there
            return
    elif rows.any() and place is not None:
        message = f"The files of this database are in {place.url}, and {url} is another place."
        remedy = f"Unset {BLOBS_SETTING}, or copy all of that there first, the file 'unifiednn-blobs' included."
        raise BadInput.of("Other files", BLOBS_SETTING, message, remedy)
    elif found is None:
        found = secrets.token_hex(8)
        people.set_setting(MARKING, json.dumps([url, found]), "server")
        blobs.write_mark(found)
    elif marking is None or json.loads(marking.value) != [url, found]:
        message, remedy = f"{url} holds the files of another database.", "Name another folder."
        raise BadInput.of("Other files", BLOBS_SETTING, message, remedy)
    people.set_setting(SETTING, json.dumps({"url": url, "mark": found, "host": host}), "server")


def _step_of(name: str) -> int:
    return int(name.removeprefix("step-").partition(".")[0])


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _sha256_in(key: str) -> str:
    return key.rpartition("/")[2]
