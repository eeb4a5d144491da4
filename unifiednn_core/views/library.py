"""Uploads in progress, drafts, and files in the server's folders, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UploadView:
    """One upload in progress."""

    upload_id: str
    filename: str
    size_bytes: int
    offset_bytes: int
    """Bytes received so far."""
    sha256: str | None
    """Of the complete file, if the sender announced it."""
    kinds: tuple[str, ...]
    """Kinds that the file may have."""
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftView:
    """An unfinished run."""

    draft_id: str
    name: str
    submodels: int
    """How many it has, without one that is still open in the form."""
    changed_at_s: float
    shared: bool
    """Whether it is of the page Submit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """A file in one of the folders that the server's operator opened."""

    name: str
    """`FOLDER/PATH`, the folder by its place in the list, the path below it."""
    shown: str
    """For people: the folder's last part and the path below it."""
    size_bytes: int
