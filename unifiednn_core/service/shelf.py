"""The library of one person with what uses each file, and the models and checkpoints that runs keep."""

import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import copy_into
from unifiednn_core.base.paths import Home
from unifiednn_core.service.importing import FileImporter
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run_query import MOST_USES_COUNTED, KeptQuery
from unifiednn_core.store import Store
from unifiednn_core.store.removals import NEEDS
from unifiednn_core.store.uses import files_of
from unifiednn_core.views.certificate import standing_of
from unifiednn_core.views.library import FileUse, KeptModel, KeptModels, Lineage, Origin, ShelvedFile
from unifiednn_core.views.runs import FileView

MODEL_KINDS = ("model", "weights")
MOST_USES = 50


@dataclass(frozen=True, slots=True)
class Shelf:
    """Reads the library of one person, and copies what runs keep into it."""

    home: Home
    store: Store
    actor: Actor
    importer: FileImporter

    @property
    def _only_of(self) -> str | None:
        return self.actor.id if self.actor.sees_only_own else None

    def files(self) -> tuple[ShelvedFile, ...]:
        """All files with the runs and drafts that name them."""
        library, kept, only_of = self.store.library, self.store.kept, self._only_of
        runs = kept.use_counts(only_of, MOST_USES_COUNTED)
        drafts = {
            draft_id: (str(document.get("name") or ""), json.dumps(document.get("submodels", ())))
            for draft_id, document in library.draft_documents(only_of).items()
        }
        origins, owners = library.origins(self.actor.id), {} if only_of is not None else library.owner_counts()
        return tuple(
            ShelvedFile(
                file=file,
                runs=runs.get(file.sha256, 0),
                drafts=tuple((key, name) for key, (name, written) in drafts.items() if file.sha256 in written),
                origin=Origin(**origins[file.sha256]) if file.sha256 in origins else None,
                owners=owners.get(file.sha256, 1),
            )
            for file in self.importer.files()
        )

    def uses(self, sha256: str) -> tuple[FileUse, ...]:
        """Runs that use a file: those that need it, then the newest, at most `MOST_USES`."""
        return tuple(
            FileUse(
                run_id=row.run_id,
                run_name=row.run_name,
                submodel=row.submodel,
                entry=row.entry,
                needed=row.state in NEEDS,
            )
            for row in self.store.kept.uses(sha256, self._only_of, MOST_USES)
        )

    def used_by(self, text: str) -> frozenset[str]:
        """Files of runs or sub-models whose name has this part."""
        return self.store.kept.used_by(text, self._only_of)

    def kept(self, query: KeptQuery) -> KeptModels:
        """Trained models, or newest checkpoints."""
        found = self.store.kept.of_runs(query, self._only_of)
        return KeptModels(
            models=tuple(_kept(row, query.what) for row in found.rows), total=found.total, size_bytes=found.size_bytes
        )

    def lineage(self, run_id: str, submodel: str) -> Lineage:
        """Files that a sub-model was made of."""
        run, rows = self.store.runs.get(run_id)
        part = next((one for one in run.spec.get("submodels", ()) if one["name"] == submodel), None)
        if part is None or submodel not in {row.name for row in rows}:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'.")
        held = {file.sha256: file.filename for file in self.importer.files()}
        names = run.environment.get("files", {}).get(submodel, {})
        files = tuple(
            (entry, held.get(sha256) or names.get(f"sha256:{sha256}") or sha256[:12], sha256, sha256 in held)
            for entry, sha256 in files_of(part).items()
        )
        return Lineage(run_id=run_id, run_name=run.name, submodel=submodel, files=files)

    def take(self, run_id: str, submodel: str, what: Literal["model", "checkpoint"]) -> FileView:
        """Copy a trained model or the newest checkpoint into the library."""
        run, rows = self.store.runs.get(run_id)
        row = next((row for row in rows if row.name == submodel), None)
        if row is None:
            raise NotFound(f"Run '{run_id}' has no sub-model '{submodel}'.")
        origin = Origin(run_id=run_id, run_name=run.name, submodel=submodel, what=what)
        if what == "model":
            if row.artifact is None or row.model_path is None:
                raise NotFound(f"Run '{run_id}' has no trained model of '{submodel}' yet. It appears after training.")
            source = self.store.depot(self.home).bring(run_id, submodel, f"models/{Path(row.model_path).name}")
            return self._import(source, f"{submodel}-trained{source.suffix}", MODEL_KINDS, origin)
        newest = self.store.depot(self.home).newest_checkpoint(run_id, submodel)
        if newest is None:
            raise NotFound(f"Sub-model '{submodel}' of run '{run_id}' has no checkpoint yet.")
        origin = replace(origin, step=row.checkpoint_step)
        return self._import(newest, f"{submodel}-{newest.name}", ("checkpoint",), origin)

    def _import(self, source: Path, filename: str, kinds: tuple[str, ...], origin: Origin) -> FileView:
        try:
            waiting = copy_into(source, self.home.quarantine, secrets.token_hex(8))
        except FileNotFoundError:
            message, remedy = "It is gone; a newer one may have replaced it.", "Open the page again."
            raise BadInput.of("File gone", source.name, message, remedy) from None
        try:
            return self.importer.import_moved(waiting, filename, kinds, origin=origin)
        finally:
            waiting.unlink(missing_ok=True)


def _kept(row: Any, what: Literal["model", "checkpoint"]) -> KeptModel:
    same: dict[str, Any] = {
        "run_id": row.run_id,
        "run_name": row.run_name,
        "submodel": row.name,
        "number": row.number,
        "state": State(row.state),
        "test_accuracy": row.test_accuracy,
        "what": what,
    }
    if what == "checkpoint":
        return KeptModel(
            **same,
            filename=row.checkpoint or "",
            step=row.checkpoint_step,
            size_bytes=row.checkpoint_bytes or 0,
            at_s=row.checkpoint_at_s,
        )
    made = row.certificate or {}
    outcomes = {one["what"]: one["outcome"] for one in made.get("compared") or ()}
    stands = standing_of(bool(made["holds"]), outcomes) if made.get("holds") is not None else None
    return KeptModel(
        **same,
        filename=row.artifact or "",
        size_bytes=row.artifact_bytes or 0,
        at_s=row.artifact_at_s,
        state_sha256=row.state_sha256 or "",
        certificate=stands,
    )
