"""Looking at runs and fetching what they gave, as one person may."""

from pathlib import Path
from typing import Any

from unifiednn_core.access.filtering import graph_of, own_run, share_of, without_files
from unifiednn_core.access.guard import Guard
from unifiednn_core.errors import Forbidden
from unifiednn_core.ownership import RunOwners
from unifiednn_core.presentation import runs as present
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.runs import RunView, TrainedView


class ScopedRuns(Guard):
    """The part of the scoped service that shows runs. Methods are those of `Service`."""

    def runs(self) -> tuple[RunView, ...]:
        """Runs in which this person has a part, the newest first, without curves."""
        with self._may("runs") as service:
            owners = service.owners()
            return tuple(self._seen(view, owners[view.run_id]) for view in service.runs() if self._sees(view, owners))

    def observe(self, run_id: str) -> RunView:
        """One run with its curves, latest slices, memory and events."""
        with self._may("observe", run_id) as service:
            return self._seen(service.observe(run_id), service.owners_of(run_id))

    def document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn train --json` prints."""
        with self._may("document", run_id) as service:
            if not self.actor.sees_own_alone:
                return self._without_paths(service.document(run_id))
            return present.document(self._seen(service.observe(run_id), service.owners_of(run_id)), {})

    def spec_document(self, run_id: str) -> dict[str, object]:
        """The spec of a run, with this person's files named by content."""
        with self._may("spec_document", run_id) as service:
            return self._seen(service.observe(run_id), service.owners_of(run_id)).spec

    def graph_dot(self, run_id: str) -> str:
        """The hybrid graph as DOT text; empty until the worker has merged the networks."""
        with self._may("graph_dot", run_id) as service:
            dot = service.graph_dot(run_id)
            own = service.owners_of(run_id).names_of(self.actor.id)
            return graph_of(dot, own) if self.actor.sees_own_alone and dot else dot

    def comparable(self, run_id: str) -> tuple[RunView, ...]:
        """Runs of equal fingerprint, this one among them, the newest first, without curves."""
        with self._may("comparable", run_id) as service:
            owners = service.owners()
            found = [view for view in service.comparable(run_id) if self._sees(view, owners)]
            return tuple(self._seen(view, owners[view.run_id]) for view in found) or (self.observe(run_id),)

    def comparison(self, run_id: str) -> Comparison:
        """A hybrid against its baselines; raises `NotFound` where there is no such thing."""
        with self._may("comparison", run_id) as service:
            return service.comparison(run_id)

    def comparison_document(self, run_id: str) -> dict[str, object]:
        """The document that `unifiednn compare --json` prints."""
        with self._may("comparison_document", run_id) as service:
            found: dict[str, Any] = service.comparison_document(run_id)
            for arm in (found["hybrid"], *found["baselines"].values()):
                self._without_paths(arm)
            return found

    def report(self, run_id: str) -> str:
        """The comparison of a run as one HTML page that needs no network."""
        with self._may("report", run_id) as service:
            return service.report(run_id)

    def trained(self) -> tuple[TrainedView, ...]:
        """Separated models that this person can download, the newest first."""
        with self._may("trained") as service:
            owners = service.owners()
            found = service.trained()
            if not self.actor.sees_own_alone:
                return found
            return tuple(view for view in found if view.submodel in owners[view.run_id].names_of(self.actor.id))

    def artifact(self, run_id: str, submodel: str) -> Path:
        """The zip of a separated model; raises `NotFound` where there is none yet."""
        with self._may("artifact", run_id, submodel) as service:
            return service.artifact(run_id, submodel)

    def checkpoint(self, run_id: str, submodel: str) -> Path:
        """The newest checkpoint of a sub-model, one file; raises `NotFound` where there is none."""
        with self._may("checkpoint", run_id, submodel) as service:
            return service.checkpoint(run_id, submodel)

    def download(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy the zip of a separated model into a folder of this machine."""
        with self._may("download", run_id, submodel) as service:
            self._require_here()
            return service.download(run_id, submodel, folder)

    def download_checkpoint(self, run_id: str, submodel: str, folder: Path) -> Path:
        """Copy a sub-model's newest checkpoint into a folder of this machine."""
        with self._may("download_checkpoint", run_id, submodel) as service:
            self._require_here()
            return service.download_checkpoint(run_id, submodel, folder)

    # -- inside

    def _without_paths(self, document: dict[str, Any]) -> dict[str, object]:
        """The document of a run; where the files of this machine stand is for those who sit at it."""
        if not self.actor.here:
            for part in document["submodels"].values():
                part["model_path"] = None
        return document

    def _require_here(self) -> None:
        if not self.actor.here:
            raise Forbidden("Folders of the server are read and written from its own terminal alone.")

    def _sees(self, view: RunView, owners: dict[str, RunOwners]) -> bool:
        if not self.actor.sees_own_alone:
            return view.run_id in owners  # one that was handed in since is shown the next time
        return view.run_id in owners and bool(owners[view.run_id].names_of(self.actor.id))

    def _seen(self, view: RunView, owners: RunOwners) -> RunView:
        """A run as this person sees it."""
        if not self.actor.sees_files:
            return without_files(view)
        if not self.actor.sees_own_alone:
            return view
        if owners.wholly_of(self.actor.id):
            return own_run(view, self._own_files())
        return share_of(view, owners.names_of(self.actor.id), self._own_files())

    def _own_files(self) -> frozenset[str]:
        return frozenset(f"sha256:{file.sha256}" for file in self._service.files())
