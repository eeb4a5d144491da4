"""Uploads in progress, drafts, and files in the server's folders, as values."""

from dataclasses import dataclass
from typing import Literal

from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.certificate import Standing
from unifiednn_core.views.runs import FileView


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The run that a file of the library was taken from."""

    run_id: str
    run_name: str
    submodel: str
    what: Literal["model", "checkpoint"]
    step: int | None = None
    """Of a checkpoint."""
    is_there: bool = True
    """Whether the run still is there to be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileUse:
    """A sub-model of a run that names a file."""

    run_id: str
    run_name: str
    submodel: str
    entry: str
    """Entry of the spec: `model`, `train_data`, `test_data` or `start_from.file`."""
    needed: bool
    """Whether the run has not ended, so the file cannot be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShelvedFile:
    """A file of the library with what uses it."""

    file: FileView
    runs: int = 0
    """How many runs use it that the person sees; `MOST_USES_COUNTED` for as many or more."""
    drafts: tuple[tuple[str, str], ...] = ()
    """Id and name of drafts that name it."""
    origin: Origin | None = None
    owners: int = 1
    """How many people have it; 1 for people who see only their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModel:
    """A trained model or a checkpoint that a run keeps on this server, with where it is from."""

    run_id: str
    run_name: str
    submodel: str
    number: int
    state: State
    what: Literal["model", "checkpoint"]
    filename: str
    size_bytes: int
    at_s: float
    """When it was written."""
    step: int | None = None
    test_accuracy: float | None = None
    state_sha256: str = ""
    certificate: Standing | None = None
    """Of a model: how its certificate stands; None without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptModels:
    """Some of what runs keep."""

    models: tuple[KeptModel, ...]
    total: int
    """How many match; `MOST_COUNTED` for as many or more."""
    size_bytes: int | None
    """Of all that match; None if not all were counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What a trained model was made of: names and SHA-256 of files, by entry of the spec."""

    run_id: str
    run_name: str
    submodel: str
    files: tuple[tuple[str, str, str, bool], ...]
    """Entry, name, SHA-256, and whether the library still has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """What the files of a person take, in bytes, and the limits; None is no limit, or not for this person."""

    person: str
    library: int = 0
    models: int = 0
    checkpoints: int = 0
    quota_bytes: int | None = None
    home_bytes: int | None = None
    home_limit_bytes: int | None = None
    free_bytes: int | None = None

    @property
    def used_bytes(self) -> int:
        """All of the person's files."""
        return self.library + self.models + self.checkpoints
