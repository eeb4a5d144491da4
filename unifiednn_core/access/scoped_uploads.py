"""Files that come in, as one person may bring them."""

from collections.abc import AsyncIterator, Iterable, Sequence

from unifiednn_core.access.scoped_runs import ScopedRuns
from unifiednn_core.sandbox.request import ConversionRequest, SandboxView
from unifiednn_core.server_folders import ServerFile
from unifiednn_core.taking_in import KINDS
from unifiednn_core.uploads import UploadView
from unifiednn_core.views.runs import FileView


class ScopedUploads(ScopedRuns):
    """The part of the scoped service that takes files in; they become this person's. Methods are those of `Service`."""

    def import_file(self, filename: str, chunks: Iterable[bytes], kinds: Sequence[str] = KINDS) -> FileView:
        """Take a file of one of `kinds` into the library."""
        with self._may("import_file", about=filename) as service:
            return service.import_file(filename, chunks, kinds)

    def begin_upload(
        self, filename: str, size_bytes: int, sha256: str | None = None, kinds: Sequence[str] = KINDS
    ) -> UploadView:
        """Announce a file that comes in pieces."""
        with self._may("begin_upload", about=filename) as service:
            return service.begin_upload(filename, size_bytes, sha256, kinds)

    def upload(self, upload_id: str) -> UploadView:
        """An upload of this person that is under way; raises `NotFound`."""
        with self._may("upload") as service:
            return service.upload(upload_id)

    async def append_upload(self, upload_id: str, offset_bytes: int, chunks: AsyncIterator[bytes]) -> UploadView:
        """Write the next piece."""
        with self._may("append_upload") as service:
            return await service.append_upload(upload_id, offset_bytes, chunks)

    def finish_upload(self, upload_id: str) -> FileView:
        """Take an upload that is whole into the library."""
        with self._may("finish_upload", about=upload_id) as service:
            return service.finish_upload(upload_id)

    def drop_upload(self, upload_id: str) -> None:
        """Forget an upload."""
        with self._may("drop_upload", about=upload_id) as service:
            service.drop_upload(upload_id)

    def server_files(self, suffixes: Sequence[str] = ()) -> tuple[ServerFile, ...]:
        """Files in the folders that this server's operator allows to be read; a submitter is shown none."""
        with self._may("server_files") as service:
            return () if self.actor.sees_own_alone else service.server_files(suffixes)

    def import_server_file(self, name: str, kinds: Sequence[str] = KINDS) -> FileView:
        """Copy a file of `server_files` into the library."""
        with self._may("import_server_file", about=name) as service:
            return service.import_server_file(name, kinds)

    def split_data(
        self, sha256: str, *, test_share: float = 0.2, seed: int = 0, by_class: bool = True
    ) -> tuple[FileView, FileView]:
        """Part a data set of this person into one to train on and one to test with."""
        with self._may("split_data", about=sha256[:12]) as service:
            return service.split_data(sha256, test_share=test_share, seed=seed, by_class=by_class)

    def sandbox(self) -> SandboxView:
        """Whether foreign code can be run here, and behind which walls."""
        with self._may("sandbox") as service:
            return service.sandbox()

    def import_converted(self, request: ConversionRequest) -> FileView:
        """Convert a file of this machine that holds foreign code, behind walls, and take in what comes of it."""
        with self._may("import_converted", about=request.path.name) as service:
            self._require_here()
            return service.import_converted(request)
