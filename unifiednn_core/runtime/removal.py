"""Deleting runs and files: first a mark in the store, then the files, then the rows.

A crash leaves at most a mark; `finish` does the rest, at the next start at the latest.
"""

import secrets
import shutil
from contextlib import suppress
from pathlib import Path

from unifiednn_core.base import failpoints
from unifiednn_core.base.files import folder_lock, sync
from unifiednn_core.base.paths import Home
from unifiednn_core.store import Store

_HIDDEN = "checkpoints-removed-"


def remove_run(home: Home, store: Store, run_id: str) -> None:
    """Delete a run that has ended, with its files. Raises `NotFound` and `BadInput`.

    What others need stays: files of the library, and other runs of its fingerprint.
    """
    store.removals.mark_run(run_id)
    _finish_run(home, store, run_id)
    _tidy_hybrids(home, store)


def remove_checkpoints(home: Home, store: Store, run_id: str) -> None:
    """Delete the checkpoints of a run that has ended. Raises `NotFound` and `BadInput`.

    The folder gets another name together with the rows; `finish` deletes one that a crash has left.
    """
    folder = home.run(run_id) / "checkpoints"
    hidden = folder.with_name(f"{_HIDDEN}{secrets.token_hex(4)}")

    def hide() -> None:
        with suppress(FileNotFoundError):
            folder.rename(hidden)

    store.removals.drop_checkpoints(run_id, hide)
    failpoints.passing("removal.after_mark")
    _erase(hidden)


def remove_file(home: Home, store: Store, sha256: str, owner: str, *, for_all: bool) -> None:
    """Take a file of the library from its owner or from all; its bytes go with the last one.

    Raises `NotFound`, and `BadInput` while a run needs it.
    """
    with folder_lock(home.files, exclusive=True):
        if store.removals.mark_file(sha256, owner, for_all=for_all):
            _finish_file(home, store, sha256)


def finish(home: Home, store: Store) -> None:
    """Finish the deletions that a crash has interrupted."""
    for run_id in store.removals.marked_runs():
        _finish_run(home, store, run_id)
    for hidden in (home.root / "runs").glob(f"*/{_HIDDEN}*"):
        _erase(hidden)
    if store.removals.marked_files():
        with folder_lock(home.files, exclusive=True):
            for sha256 in store.removals.marked_files():  # an import may have brought one back meanwhile
                _finish_file(home, store, sha256)
    _tidy_hybrids(home, store)


def _finish_run(home: Home, store: Store, run_id: str) -> None:
    _erase(home.run(run_id))
    failpoints.passing("removal.after_files")
    store.removals.forget_run(run_id)


def _finish_file(home: Home, store: Store, sha256: str) -> None:
    home.file(sha256).unlink(missing_ok=True)
    failpoints.passing("removal.after_files")
    store.removals.forget_file(sha256)


def _tidy_hybrids(home: Home, store: Store) -> None:
    """Delete shared hybrids of which no run tells any more: their log, their memory figures."""
    for hybrid_id in store.removals.empty_hybrids():
        _erase(home.run(hybrid_id))
        store.removals.forget_run(hybrid_id)


def _erase(folder: Path) -> None:
    """Delete a folder durably; raises `OSError` for anything but that it is gone."""
    if folder.is_dir():
        try:
            shutil.rmtree(folder)
        except OSError:  # a certificate was put in there meanwhile
            if folder.is_dir():
                shutil.rmtree(folder)
        sync(folder.parent)
