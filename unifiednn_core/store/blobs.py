"""Where several hosts keep the files that they share: a folder, or any place that fsspec reaches, such as S3.

A blob is a file under a key that ends with the SHA-256 of its bytes: `files/SHA256`. Nothing here lists: rows of the
database say which keys there are (`store.blob_rows`), so a blob counts only once its row says so.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadInput, BlobLost, BlobsUnreachable, UnifiedNNError
from unifiednn_core.base.files import atomic_replace, file_sha256, sync
from unifiednn_core.base.paths import BLOBS_SETTING

MARK = "unifiednn-blobs"
"""Name of the blob that identifies a place: an empty mount point or another bucket does not have it."""
CONNECT_S, READ_S, TRIES = 10, 60, 3
_SECRETS = {"key", "secret", "token", "password", "account_key", "sas_token", "connection_string"}
_OF_S3: dict[str, Any] = {
    "config_kwargs": {"connect_timeout": CONNECT_S, "read_timeout": READ_S, "retries": {"max_attempts": TRIES}}
}


class Blobs(Protocol):
    """Keeps files by key. Methods raise `BlobsUnreachable`, and may be called from any thread."""

    url: str

    def put(self, path: Path, key: str, *, again: bool = False) -> None:
        """Keep a copy of a file, whose bytes the key names; once this returns, it is whole and durable.

        A blob of that key may stay as it is, unless it is put `again`.
        """

    def fetch(self, key: str, to: Path) -> None:
        """Write a blob to `to`, atomically. Raises `BlobLost` if it is missing or its bytes are others."""

    def delete(self, key: str) -> None:
        """Delete a blob; nothing if it is gone."""

    def read_mark(self) -> str | None:
        """What identifies this place; None for a place without it."""

    def write_mark(self, text: str) -> None:
        """Write what identifies this place."""


def blobs_at(url: str) -> Blobs:
    """The blobs at an absolute path or a URL. Raises `BadInput`."""
    split = urlsplit(url)
    named = {name for name, _ in parse_qsl(split.query)}
    if split.password is not None or split.username is not None or named & _SECRETS:
        message, remedy = "This URL holds credentials.", "Leave them out: each host has them in its environment."
        raise BadInput.of("Credentials", BLOBS_SETTING, message, remedy)
    if split.scheme in ("", "file"):
        if not split.path.startswith("/"):
            raise BadInput.of("No absolute path", BLOBS_SETTING, f"'{url}' is not absolute.", "Begin it with a /.")
        return FolderBlobs(Path(split.path))
    return FsspecBlobs(url)


class FolderBlobs:
    """A folder that all hosts mount: a blob appears by a rename, after its bytes are on disk."""

    def __init__(self, root: Path):
        self.root, self.url = root, str(root)

    def put(self, path: Path, key: str, *, again: bool = False) -> None:  # noqa: D102
        target = self.root / key
        with self._reached(must_be_marked=True):
            failpoints.passing("blob.before_put")
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with atomic_replace(target) as temporary:
                    shutil.copyfile(path, temporary)
                    failpoints.passing("blob.before_rename")
            except FileNotFoundError:
                if not path.exists():
                    raise
                raise BlobsUnreachable(f"A folder of {self.root} was just deleted") from None
            for folder in (target.parent, *target.parent.relative_to(self.root).parents):
                sync(self.root / folder)
        failpoints.passing("blob.after_put")

    def fetch(self, key: str, to: Path) -> None:  # noqa: D102
        def copy(temporary: Path) -> None:
            with self._reached(), (self.root / key).open("rb") as source, temporary.open("wb") as target:
                shutil.copyfileobj(source, target, 1024**2)

        _receive(self, copy, key, to)

    def delete(self, key: str) -> None:  # noqa: D102
        failpoints.passing("blob.before_delete")
        target = self.root / key
        with self._reached(must_be_marked=True):
            for left in (*target.parent.glob(f".{target.name}.*.part"), target):  # what a kill left of it, too
                left.unlink(missing_ok=True)
            with suppress(OSError):  # others are in there
                for folder in list(target.relative_to(self.root).parents)[:-1]:
                    (self.root / folder).rmdir()
        failpoints.passing("blob.after_delete")

    def read_mark(self) -> str | None:  # noqa: D102
        place = self.root / MARK
        with self._reached():
            return place.read_text(encoding="ascii").strip() if place.is_file() else None

    def write_mark(self, text: str) -> None:  # noqa: D102
        with self._reached():
            self.root.mkdir(parents=True, exist_ok=True)
            with atomic_replace(self.root / MARK) as temporary:
                temporary.write_text(text, encoding="ascii")
            sync(self.root)

    @contextmanager
    def _reached(self, *, must_be_marked: bool = False) -> Iterator[None]:
        if must_be_marked and not (self.root / MARK).is_file():
            raise BlobsUnreachable(f"The shared folder {self.root} is not there, or not mounted")
        with _reaching(self.url):
            yield


class FsspecBlobs:
    """Any URL of fsspec: S3, other object stores, SFTP. What such stores show under a name is whole.

    Settings of the file system may follow as a query: `s3://bucket/folder?endpoint_url=http://minio:9000`. Credentials
    come from the environment, or from files of the host.
    """

    def __init__(self, url: str):
        """Raises `BadInput` if fsspec, or its part for this kind of URL, is not installed or does not take it."""
        self.url, split = url, urlsplit(url)
        self._is_s3 = split.scheme in ("s3", "s3a")
        options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
        options |= parse_qsl(split.query)
        if self._is_s3:
            options |= _OF_S3
        try:
            from fsspec.core import url_to_fs

            self._fs, root = url_to_fs(split._replace(query="").geturl(), **options)
        except ImportError as error:
            remedy = "Install it: pip install 'unifiednn[s3]'"
            raise BadInput.of("Not installed", BLOBS_SETTING, f"{url} needs more packages: {error}.", remedy) from None
        except (ValueError, TypeError) as error:
            message, remedy = f"{url} cannot be used: {error}.", "Give a path, or a URL such as s3://bucket/folder."
            raise BadInput.of("Unknown place", BLOBS_SETTING, message, remedy) from None
        self._root = str(root).rstrip("/")

    def put(self, path: Path, key: str, *, again: bool = False) -> None:  # noqa: D102
        failpoints.passing("blob.before_put")
        with _reaching(self.url):
            if not self._is_s3:
                self._fs.makedirs(self._at(key).rpartition("/")[0], exist_ok=True)
            if again or not self._is_s3 or not self._created(path, key):
                self._fs.put_file(str(path), self._at(key))
        failpoints.passing("blob.after_put")

    def fetch(self, key: str, to: Path) -> None:  # noqa: D102
        def download(temporary: Path) -> None:
            with _reaching(self.url):
                self._fs.get_file(self._at(key), str(temporary))

        _receive(self, download, key, to)

    def delete(self, key: str) -> None:  # noqa: D102
        failpoints.passing("blob.before_delete")
        with _reaching(self.url), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(key))
        failpoints.passing("blob.after_delete")

    def read_mark(self) -> str | None:  # noqa: D102
        with _reaching(self.url):
            try:
                return str(self._fs.cat_file(self._at(MARK)), "ascii").strip()
            except FileNotFoundError:
                return None

    def write_mark(self, text: str) -> None:  # noqa: D102
        with _reaching(self.url):
            if not self._is_s3:
                self._fs.makedirs(self._root, exist_ok=True)
            self._fs.pipe_file(self._at(MARK), text.encode("ascii"))

    def _created(self, path: Path, key: str) -> bool:
        """Put a blob that is not there; False for a store that knows no conditions, or does not say which failed."""
        try:
            self._fs.put_file(str(path), self._at(key), mode="create")
        except FileExistsError:  # these very bytes
            return True
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.EINVAL):
                return False
            raise
        return True

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


def _receive(blobs: Blobs, read: Callable[[Path], None], key: str, to: Path) -> None:
    """Let `read` write a blob to a temporary file, which becomes `to` if its bytes are those that the key names."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with atomic_replace(to) as temporary:
        try:
            read(temporary)
        except FileNotFoundError:
            if blobs.read_mark() is None:
                raise BlobsUnreachable(f"{blobs.url} is not there, or not mounted") from None
            raise BlobLost(f"The file {key} is missing in {blobs.url}.") from None
        if file_sha256(temporary) != key.rpartition("/")[2]:
            raise BlobDamaged(f"The file {key} in {blobs.url} is damaged: its bytes are others than its name says.")


class BlobDamaged(BlobLost):
    """The bytes of a blob are not those that its key names."""


@contextmanager
def _reaching(url: str) -> Iterator[None]:
    """Turn every error but a missing file into `BlobsUnreachable`: each library has its own."""
    try:
        yield
    except (UnifiedNNError, FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        raise BlobsUnreachable(f"{url} cannot be used now ({reason[:200].rstrip('.')})") from error


def asked_url() -> str:
    """`UNIFIEDNN_BLOBS`; "" without it."""
    return os.environ.get(BLOBS_SETTING, "").strip()
