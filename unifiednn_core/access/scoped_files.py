"""Files, drafts and checks, as one person may have them."""

import re
from pathlib import Path

from unifiednn_core.access.scoped_uploads import ScopedUploads
from unifiednn_core.errors import BadInput, Finding
from unifiednn_core.service import CheckReport, FileReport
from unifiednn_core.spec import RunSpec, SubModelSpec
from unifiednn_core.submission import with_files
from unifiednn_core.views.runs import FileView

_BY_CONTENT = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK_BYTES = 1024**2


class ScopedFiles(ScopedUploads):
    """The part of the scoped service that has to do with files. Methods are those of `Service`."""

    def architectures(self) -> tuple[str, ...]:
        """Networks that files of bare weights can name."""
        with self._may("architectures") as service:
            return service.architectures()

    def architecture_defaults(self, name: str) -> dict[str, object]:
        """Arguments of an architecture with their defaults."""
        with self._may("architecture_defaults") as service:
            return service.architecture_defaults(name)

    def inspect(self, path: Path) -> FileReport:
        """Say what a file of this machine is."""
        with self._may("inspect") as service:
            self._require_here()
            return service.inspect(path)

    def files(self) -> tuple[FileView, ...]:
        """Models and data sets of this person, the newest first; of everybody for an operator."""
        with self._may("files") as service:
            return service.files()

    def prepare_samples(self) -> RunSpec:
        """Return the demo, ready to submit, its files among this person's."""
        with self._may("prepare_samples") as service:
            demo = service.prepare_samples()
            return demo if self.actor.here else self._taken_in(demo, Path("/"))

    def check(self, spec: RunSpec, base: Path | None = None) -> CheckReport:
        """Look at everything that a spec names; paths are relative to `base`."""
        with self._may("check") as service:
            return service.check(self._with_own_files(spec, base), base)

    def save_draft(self, document: dict[str, object], draft_id: str | None = None) -> str:
        """Keep a run that is still being put together; returns the draft's id."""
        with self._may("save_draft") as service:
            return service.save_draft(document, draft_id)

    def draft(self, draft_id: str) -> dict[str, object]:
        """Document of a draft of this person; raises `NotFound`."""
        with self._may("draft") as service:
            return service.draft(draft_id)

    def delete_draft(self, draft_id: str) -> None:
        """Forget a draft of this person."""
        with self._may("delete_draft", about=draft_id) as service:
            service.delete_draft(draft_id)

    # -- inside

    def _with_own_files(self, spec: RunSpec, base: Path | None) -> RunSpec:
        """The spec with files that this person may name; raises `BadInput`.

        A hash of somebody else's file is answered as one that nobody has. Paths are for who sits at the machine; the
        files there become this person's before anything else is done with them.
        """
        if self.actor.here and not self.actor.id:
            return spec
        own = self._own_files()
        findings: list[Finding] = []
        for part in spec.submodels:
            for entry, reference in _references(part):
                by_content = _BY_CONTENT.fullmatch(reference) is not None
                if by_content and self.actor.sees_own_alone and reference not in own:
                    findings.append(_not_found(part, entry, reference))
                elif not by_content and not self.actor.here:
                    findings.append(_no_path(part, entry))
            if part.owner not in (None, self.actor.id) and self.actor.sees_own_alone:
                findings.append(_not_his(part))
        if findings:
            raise BadInput(findings)
        return self._taken_in(spec, base or Path.cwd())

    def _taken_in(self, spec: RunSpec, base: Path) -> RunSpec:
        """The spec with every file named by content; those named by path are imported."""
        paths = {reference for part in spec.submodels for _, reference in _references(part)}
        found: dict[str, str] = {}
        for reference in sorted(paths):
            if _BY_CONTENT.fullmatch(reference):
                found[reference] = reference
                continue
            path = base / Path(reference).expanduser()
            if not path.is_file():
                remedy = f"Paths are relative to {base}."
                raise BadInput.of("File not found", field=reference, message=f"There is no {path}.", remedy=remedy)
            with path.open("rb") as file:
                chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
                found[reference] = f"sha256:{self._service.import_file(path.name, chunks).sha256}"
        return with_files(spec, found)


def _references(part: SubModelSpec) -> list[tuple[str, str]]:
    """Files that a sub-model names, by the entry that names them."""
    start = None if part.start_from is None else part.start_from.file
    named = (("model", part.model), ("train_data", part.train_data), ("test_data", part.test_data))
    return [(entry, name) for entry, name in (*named, ("start_from.file", start)) if name is not None]


def _not_found(part: SubModelSpec, entry: str, reference: str) -> Finding:
    return Finding(
        title="File not found",
        field=f"submodels.{part.name}.{entry}",
        message=f"Your library has no file '{reference}'.",
        remedy="Upload it, or choose another one.",
    )


def _no_path(part: SubModelSpec, entry: str) -> Finding:
    return Finding(
        title="File not found",
        field=f"submodels.{part.name}.{entry}",
        message="Paths of the server are not read for people who sign in.",
        remedy="Upload the file, and name it by its content: sha256:…",
    )


def _not_his(part: SubModelSpec) -> Finding:
    return Finding(
        title="Whose is it",
        field=f"submodels.{part.name}.owner",
        message="Only an operator says whose a sub-model is.",
        remedy="Leave the owner out; what you hand in is yours.",
    )
