"""Files and drafts of one person."""

import json
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import copy_into, folder_lock, safe_file_name
from unifiednn_core.base.paths import Home
from unifiednn_core.data.values import AS_STORED, ImportOptions, split_plan
from unifiednn_core.formats.architectures import registry as architectures
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import FileReport
from unifiednn_core.runtime import removal
from unifiednn_core.service import samples, server_folders
from unifiednn_core.service.importing import BLOCK_BYTES, KINDS, FileImporter
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.quotas import Room
from unifiednn_core.service.roles import Role
from unifiednn_core.service.submission import Submissions
from unifiednn_core.service.uploads import Uploads
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import MAX_SPEC_BYTES, RunSpec, document_of
from unifiednn_core.spec.run_query import MOST_USES_COUNTED, KeptQuery
from unifiednn_core.store import Store
from unifiednn_core.store.library import files_of
from unifiednn_core.store.removals import NEEDS
from unifiednn_core.store.schema import RunRow
from unifiednn_core.views.certificate import standing_of
from unifiednn_core.views.library import (
    DraftView,
    FileUse,
    KeptModel,
    KeptModels,
    Lineage,
    Origin,
    QuotaView,
    ServerFile,
    ShelvedFile,
    UploadView,
)
from unifiednn_core.views.people import view_of
from unifiednn_core.views.runs import FileView

MODEL_KINDS = ("model", "weights")
MOST_USES = 50
LEFT_OUT = ("owner", "loading")
"""Entries of a sub-model that its submission decided."""


class LibraryService:
    """Model and data files, uploads and drafts. People own what they import."""

    def __init__(
        self, guard: Guard, home: Home, store: Store, importer: FileImporter, submissions: Submissions, room: Room
    ):
        self.guard, self._store, self._runs, self._room = guard, store, store.runs, room
        self._home, self._library, self._importer, self._submissions = home, store.library, importer, submissions
        self._uploads = Uploads(home.quarantine)
        self._only_of = guard.actor.id if guard.actor.sees_only_own else None

    # -- files

    @permission(Role.VIEWER, audited=False)
    def architectures(self) -> tuple[str, ...]:
        """Networks that a weights file can name."""
        return architectures.names()

    @permission(Role.VIEWER, audited=False)
    def architecture_defaults(self, name: str) -> dict[str, object]:
        """Arguments of an architecture with their defaults; raises `BadInput` for an unknown name."""
        return {parameter.name: parameter.default for parameter in architectures.parameters_of(name)}

    @permission(Role.SUBMITTER, audited=False)
    def files(self) -> tuple[FileView, ...]:
        """Models and data sets of this person, or of everyone for an operator; the newest first."""
        return self._importer.files()

    @permission(Role.SUBMITTER, audited=False, here=True)
    def inspect(self, path: Path) -> FileReport:
        """Inspect a file of this machine in the intake process."""
        return client.inspect(path, path.name)

    @permission(Role.SUBMITTER, about="{filename}")
    def import_file(
        self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = KINDS, options: ImportOptions = AS_STORED
    ) -> FileView:
        """Import a file of one of `kinds`; raises `BadInput`, and then nothing is kept.

        A file with a training and a test part becomes a data set for each; the training part is returned.
        """
        return self._importer.import_chunks(filename, chunks, kinds, options)

    @permission(Role.SUBMITTER, audited=False)
    def server_files(self, suffixes: Sequence[str] = ()) -> tuple[ServerFile, ...]:
        """Files in the folders that the server's operator shares; none for a submitter."""
        return () if self._only_of is not None else server_folders.listing(suffixes)

    @permission(Role.OPERATOR, about="{name}")
    def import_server_file(
        self, name: str, kinds: Sequence[str] = KINDS, options: ImportOptions = AS_STORED
    ) -> FileView:
        """Copy a file of `server_files` into the library; raises `NotFound` and `BadInput`."""
        if all(file.name != name for file in server_folders.listing()):
            raise server_folders.unknown()
        with server_folders.open_file(name) as file:
            return self._importer.import_chunks(name, iter(lambda: file.read(BLOCK_BYTES), b""), kinds, options)

    @permission(Role.SUBMITTER)
    def prepare_samples(self) -> RunSpec:
        """Return the demo, ready to submit; writes missing files. Raises `SamplesFailed`."""
        demo = samples.demo(self._home)
        return demo if self.guard.actor.here else self._submissions.imported(demo, Path("/"))

    @permission(Role.SUBMITTER, about="{sha256:.12}")
    def split_data(
        self, sha256: str, *, test_share: float = 0.2, seed: int = 0, by_class: bool = True
    ) -> tuple[FileView, FileView]:
        """Split a data set of the library; returns the training part and the test part.

        The same data, share and seed always give the same two files. Raises `NotFound` and `BadInput`.
        """
        plan = split_plan(test_share=test_share, seed=seed, by_class=by_class)
        held = {view.sha256: view for view in self._importer.files() if view.kind == "data"}
        if sha256 not in held:
            raise NotFound(f"There is no data set '{sha256[:12]}' in the library.")
        filename = held[sha256].filename
        self._room.require(filename, held[sha256].size_bytes)
        with folder_lock(self._home.files):  # the intake process writes the parts to where they stay
            report = client.split(self._home.file(sha256), filename, plan, self._home)
            if report.train is None or report.test is None:
                raise BadInput(report.findings)
            self._importer.remember(report.test, plan.filename("test", filename))
            self._importer.remember(report.train, plan.filename("train", filename))
        return self._importer.file(report.train.sha256), self._importer.file(report.test.sha256)

    # -- what uses a file, and what runs keep

    @permission(Role.SUBMITTER, audited=False)
    def shelf(self) -> tuple[ShelvedFile, ...]:
        """The files of `files` with the runs and drafts that name them."""
        library, kept, only_of = self._library, self._store.kept, self._only_of
        runs = kept.use_counts(only_of, MOST_USES_COUNTED)
        drafts = {
            draft_id: (str(document.get("name") or ""), json.dumps(document.get("submodels", ())))
            for draft_id, document in library.draft_documents(only_of).items()
        }
        origins, owners = library.origins(self.guard.actor.id), {} if only_of is not None else library.owner_counts()
        return tuple(
            ShelvedFile(
                file=file,
                runs=runs.get(file.sha256, 0),
                drafts=tuple((key, name) for key, (name, written) in drafts.items() if file.sha256 in written),
                origin=Origin(**origins[file.sha256]) if file.sha256 in origins else None,
                owners=owners.get(file.sha256, 1),
            )
            for file in self._importer.files()
        )

    @permission(Role.SUBMITTER, audited=False)
    def file_uses(self, sha256: str) -> tuple[FileUse, ...]:
        """Runs of this person that name a file: those that have not ended, then the newest."""
        return tuple(
            view_of(FileUse, row, needed=row.state in NEEDS)
            for row in self._store.kept.uses(sha256, self._only_of, MOST_USES)
        )

    @permission(Role.SUBMITTER, audited=False)
    def files_used_by(self, text: str) -> frozenset[str]:
        """SHA-256 of the files of this person's runs or sub-models whose name has this part."""
        return self._store.kept.used_by(text, self._only_of)

    @permission(Role.SUBMITTER, audited=False)
    def kept(self, query: KeptQuery) -> KeptModels:
        """Trained models, or newest checkpoints, of this person's sub-models."""
        found = self._store.kept.of_runs(query, self._only_of)
        return KeptModels(
            models=tuple(_kept(row, query.what) for row in found.rows), total=found.total, size_bytes=found.size_bytes
        )

    @permission(Role.SUBMITTER, Own.PART, audited=False)
    def lineage(self, run_id: str, submodel: str) -> Lineage:
        """What a trained model was made of; raises `NotFound`."""
        run, rows = self._runs.get(run_id)
        part = next((one for one in run.spec.get("submodels", ()) if one["name"] == submodel), None)
        if part is None or submodel not in {row.name for row in rows}:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'.")
        held = {file.sha256: file.filename for file in self._importer.files()}
        names = run.environment.get("files", {}).get(submodel, {})
        files = tuple(
            (entry, held.get(sha256) or names.get(f"sha256:{sha256}") or sha256[:12], sha256, sha256 in held)
            for entry, sha256 in files_of(part).items()
        )
        return Lineage(run_id=run_id, run_name=run.name, submodel=submodel, files=files)

    @permission(Role.SUBMITTER, Own.PART, about="{what}")
    def take(self, run_id: str, submodel: str, what: Literal["model", "checkpoint"]) -> FileView:
        """Copy a trained model or the newest checkpoint of a run into the library, to start from.

        Raises `NotFound` before it is written, and `BadInput`.
        """
        run, rows = self._runs.get(run_id)
        row = next((row for row in rows if row.name == submodel), None)
        if row is None:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'.")
        origin = Origin(run_id=run_id, run_name=run.name, submodel=submodel, what=what)
        if what == "model":
            if row.artifact is None or row.model_path is None:
                raise NotFound(f"Run '{run_id}' has no trained model of '{submodel}' yet. It appears after training.")
            source = self._home.kept(run_id, f"models/{Path(row.model_path).name}")
            return self._take(source, f"{submodel}-trained{source.suffix}", MODEL_KINDS, origin)
        newest = self._home.newest_checkpoint(run_id, submodel)
        if newest is None:
            raise NotFound(f"Sub-model '{submodel}' of run '{run_id}' has no checkpoint yet.")
        origin = replace(origin, step=row.checkpoint_step)
        return self._take(newest, f"{submodel}-{newest.name}", ("checkpoint",), origin)

    @permission(Role.SUBMITTER, about="{sha256:.12} {filename}")
    def rename_file(self, sha256: str, filename: str) -> None:
        """Give a file of one's own another name; others keep theirs. Raises `NotFound` and `BadInput`."""
        self._library.rename(sha256, safe_file_name(filename), self.guard.actor.id)

    @permission(Role.SUBMITTER, about="{sha256:.12}")
    def delete_file(self, sha256: str) -> None:
        """Delete a file from one's library; its bytes go with its last owner. An operator deletes it for everybody.

        Figures of ended runs stay, but training them again needs the file. Raises `NotFound`, and `BadInput` while a
        run that has not ended needs it.
        """
        for_all = self._only_of is None
        removal.remove_file(self._home, self._store, sha256, self.guard.actor.id, for_all=for_all)

    @permission(Role.SUBMITTER, audited=False)
    def quota(self) -> QuotaView:
        """What this person's files take, and how much they may."""
        return self._room.view()

    # -- uploads

    @permission(Role.SUBMITTER, about="{filename}")
    def begin_upload(
        self, filename: str, size_bytes: int, sha256: str | None = None, kinds: Sequence[str] = KINDS
    ) -> UploadView:
        """Announce an upload in pieces; raises `BadInput` if it cannot be accepted."""
        self._room.require(filename, size_bytes)
        return self._uploads.begin(filename, size_bytes, sha256, kinds, self.guard.actor.id)

    @permission(Role.SUBMITTER, audited=False)
    def upload(self, upload_id: str) -> UploadView:
        """An upload in progress; raises `NotFound`."""
        return self._uploads.get(upload_id, self._only_of)

    @permission(Role.SUBMITTER, audited=False)
    async def append_upload(self, upload_id: str, offset_bytes: int, chunks: AsyncIterator[bytes]) -> UploadView:
        """Write the next piece; raises `NotFound`, `BadInput`, and `UploadConflict` for a wrong offset."""
        self._uploads.get(upload_id, self._only_of)
        return await self._uploads.append(upload_id, offset_bytes, chunks)

    @permission(Role.SUBMITTER, about="{upload_id}")
    def finish_upload(
        self, upload_id: str, options: ImportOptions = AS_STORED, *, keep_refused: bool = False
    ) -> FileView:
        """Import a complete upload; `keep_refused` keeps one that is refused, to be read with other options.

        Raises `BadInput`, `IntakeFailed` (try again), `UploadConflict` (bytes are missing), `NotFound`.
        """
        self._uploads.get(upload_id, self._only_of)
        with self._uploads.finishing(upload_id, keep_refused=keep_refused) as (upload, path):
            return self._importer.import_moved(path, upload.filename, upload.kinds, options)

    @permission(Role.SUBMITTER, audited=False)
    def document_in(self, upload_id: str) -> dict[str, Any] | None:
        """The spec or the hyper-parameters in a complete upload of a `.json`; None for any other. Raises `NotFound`."""
        upload = self._uploads.get(upload_id, self._only_of)
        if not upload.filename.lower().endswith(".json"):
            return None
        text = self._uploads.small(upload_id, MAX_SPEC_BYTES)
        return None if text is None else document_of(text, upload.filename)

    @permission(Role.SUBMITTER, about="{upload_id}")
    def drop_upload(self, upload_id: str) -> None:
        """Delete an upload; raises `NotFound`."""
        self._uploads.get(upload_id, self._only_of)
        self._uploads.drop(upload_id)

    # -- drafts

    @permission(Role.SUBMITTER, audited=False)
    def save_draft(self, document: dict[str, object], draft_id: str | None = None) -> str:
        """Save an unfinished run; returns the draft's id, a new one if the draft belongs to someone else.

        The entry `filenames` keeps the name that each file had when it entered the draft.
        """
        kept_id = draft_id or ""
        names = {f"sha256:{file.sha256}": file.filename for file in self._importer.files()}
        try:
            names |= self._library.draft(kept_id, self._only_of).get("filenames", {})
        except NotFound:
            kept_id = kept_id if kept_id and self._only_of is None else secrets.token_hex(4)
        written = json.dumps(document.get("submodels", ()))
        used = {reference: name for reference, name in names.items() if reference in written}
        self._library.save_draft(kept_id, {**document, "filenames": used}, self.guard.actor.id)
        return kept_id

    @permission(Role.SUBMITTER, audited=False)
    def draft(self, draft_id: str) -> dict[str, object]:
        """Document of a draft; raises `NotFound`."""
        return self._library.draft(draft_id, self._only_of)

    @permission(Role.SUBMITTER, audited=False)
    def drafts(self) -> tuple[DraftView, ...]:
        """Unfinished runs of this person, the last changed first."""
        return tuple(
            DraftView(
                draft_id=row.id,
                name=str(row.document.get("name") or "run"),
                submodels=len(row.document.get("submodels", ())),
                changed_at_s=row.changed_at_s,
                shared=row.document.get("hybrid") == "shared",
            )
            for row in self._library.drafts(self.guard.actor.id)
        )

    @permission(Role.SUBMITTER, about="{draft_id}")
    def delete_draft(self, draft_id: str) -> None:
        """Delete a draft."""
        self._library.delete_draft(draft_id, self._only_of)

    @permission(Role.SUBMITTER, audited=False)
    def finish_draft(self, draft_id: str, became: str) -> None:
        """Keep nothing of a draft but the id of the run that it became."""
        self._library.finish_draft(draft_id, became, self._only_of)

    @permission(Role.SUBMITTER, audited=False)
    def run_of_draft(self, draft_id: str) -> str | None:
        """The run that a draft became; None for any other."""
        return self._library.run_of_draft(draft_id, self._only_of)

    @permission(Role.SUBMITTER, Own.PART)
    def clone_run(self, run_id: str, submodel: str | None = None) -> str:
        """Make a draft of a run, or of one of its sub-models, with the names of its files; returns the draft's id."""
        run, rows = self._runs.get(run_id)
        if submodel is not None and submodel not in {row.name for row in rows}:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'.")
        draft_id = secrets.token_hex(4)
        self._library.save_draft(draft_id, cloned(run, submodel), self.guard.actor.id)
        return draft_id

    def _take(self, source: Path, filename: str, kinds: tuple[str, ...], origin: Origin) -> FileView:
        try:
            waiting = copy_into(source, self._home.quarantine, secrets.token_hex(8))
        except FileNotFoundError:
            message, remedy = "It is gone; a newer one may have replaced it.", "Open the page again."
            raise BadInput.of("File gone", source.name, message, remedy) from None
        try:
            return self._importer.import_moved(waiting, filename, kinds, origin=origin)
        finally:
            waiting.unlink(missing_ok=True)


def _kept(row: Any, what: Literal["model", "checkpoint"]) -> KeptModel:
    named: dict[str, Any] = {"submodel": row.name, "state": State(row.state), "what": what}
    if what == "checkpoint":
        named |= {
            "filename": row.checkpoint or "",
            "size_bytes": row.checkpoint_bytes or 0,
            "at_s": row.checkpoint_at_s,
        }
        return view_of(KeptModel, row, **named, step=row.checkpoint_step, state_sha256="", certificate=None)
    made = row.certificate or {}
    outcomes = {one["what"]: one["outcome"] for one in made.get("compared") or ()}
    stands = standing_of(bool(made["holds"]), outcomes) if made.get("holds") is not None else None
    named |= {"filename": row.artifact or "", "size_bytes": row.artifact_bytes or 0, "at_s": row.artifact_at_s}
    return view_of(KeptModel, row, **named, step=None, state_sha256=row.state_sha256 or "", certificate=stands)


def cloned(run: RunRow, submodel: str | None = None) -> dict[str, Any]:
    """Document of a draft that asks for what a run asked for, or for one of its sub-models alone."""
    parts = [
        {entry: value for entry, value in part.items() if entry not in LEFT_OUT}
        for part in run.spec.get("submodels", ())
        if submodel in (None, part["name"])
    ]
    if submodel is not None:  # alone, it is no member of a sweep
        parts = [{entry: value for entry, value in part.items() if entry != "sweep_of"} for part in parts]
    given = run.environment.get("files", {})
    names = {file: name for part in parts for file, name in given.get(part["name"], {}).items()}
    name = run.name if submodel is None else submodel
    return {**run.spec, "name": name, "submodels": parts, "filenames": names}
