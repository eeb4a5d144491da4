"""The library of one person with what uses each file, and the models and checkpoints that runs keep."""

import json
import secrets
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from unifiednn_core.base.errors import BadInput, NotFound
from unifiednn_core.base.files import copy_into
from unifiednn_core.base.paths import Home
from unifiednn_core.service.importing import FileImporter
from unifiednn_core.service.roles import Actor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store import Store
from unifiednn_core.store.removals import NEEDS
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.store.uses import files_of
from unifiednn_core.views.certificate import standing_of
from unifiednn_core.views.library import FileUse, KeptModel, Lineage, Origin, ShelvedFile
from unifiednn_core.views.runs import FileView

MODEL_KINDS = ("model", "weights")


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
        library, only_of = self.store.library, self._only_of
        uses: dict[str, list[FileUse]] = defaultdict(list)
        for row in library.uses(only_of):
            uses[row.sha256].append(
                FileUse(
                    run_id=row.run_id, run_name=row.run_name, submodel=row.submodel, entry=row.entry,
                    needed=row.state in NEEDS,
                )
            )  # fmt: skip
        drafts = {
            draft_id: (str(document.get("name") or ""), json.dumps(document.get("submodels", ())))
            for draft_id, document in library.draft_documents(only_of).items()
        }
        origins, owners = library.origins(self.actor.id), {} if only_of is not None else library.owner_counts()
        return tuple(
            ShelvedFile(
                file=file,
                uses=tuple(uses.get(file.sha256, ())),
                drafts=tuple((key, name) for key, (name, written) in drafts.items() if file.sha256 in written),
                origin=Origin(**origins[file.sha256]) if file.sha256 in origins else None,
                owners=owners.get(file.sha256, 1),
            )
            for file in self.importer.files()
        )

    def kept(self) -> tuple[KeptModel, ...]:
        """Trained models and newest checkpoints, the newest first."""
        found, certified = [], self.store.library.certified()
        for run, parts in self.store.runs.listed():
            for part in parts:
                if run.mode != HYBRID or self._only_of not in (None, part.owner):
                    continue
                same = {"run_id": run.id, "run_name": run.name, "submodel": part.name, "number": part.number,
                        "state": State(part.state), "test_accuracy": part.test_accuracy}  # fmt: skip
                known = certified.get((run.id, part.name))
                if part.artifact is not None:
                    found.append(
                        KeptModel(
                            **same, what="model", filename=part.artifact, size_bytes=part.artifact_bytes or 0,
                            at_s=part.artifact_at_s or run.created_at_s, state_sha256=part.state_sha256 or "",
                            certificate=None if known is None else standing_of(*known),
                        )
                    )  # fmt: skip
                if part.checkpoint_step is not None:
                    found.append(
                        KeptModel(
                            **same, what="checkpoint", filename=part.checkpoint or "", step=part.checkpoint_step,
                            size_bytes=part.checkpoint_bytes or 0, at_s=part.checkpoint_at_s or run.created_at_s,
                        )
                    )  # fmt: skip
        return tuple(sorted(found, key=lambda one: one.at_s, reverse=True))

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
            source = self.home.run(run_id) / "models" / Path(row.model_path).name
            return self._import(source, f"{submodel}-trained{source.suffix}", MODEL_KINDS, origin)
        kept = sorted(self.home.checkpoints(run_id, submodel).glob("step-*.safetensors"))
        if not kept:
            raise NotFound(f"Sub-model '{submodel}' of run '{run_id}' has no checkpoint yet.")
        origin = replace(origin, step=row.checkpoint_step)
        return self._import(kept[-1], f"{submodel}-{kept[-1].name}", ("checkpoint",), origin)

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
