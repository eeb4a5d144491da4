"""Files that only their own code can read: TorchScript, Python, full pickles. They come in by the sandbox alone."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from unifiednn_core.sandbox import converter
from unifiednn_core.sandbox.request import ConversionRequest, SandboxView
from unifiednn_core.taking_in import TakingIn
from unifiednn_core.views.runs import FileView

_BLOCK_BYTES = 1024**2


class Converting(TakingIn):
    """Foreign code is run once, behind walls; what it leaves is taken in like any other file."""

    def sandbox(self) -> SandboxView:
        """Whether foreign code can be run here, and behind which walls; off unless `UNIFIEDNN_SANDBOX=on`."""
        return converter.state()

    def import_converted(self, request: ConversionRequest) -> FileView:
        """Convert a file and take the `.pt2` into the library; raises `BadInput`, and then nothing is kept."""
        with tempfile.TemporaryDirectory(prefix=".converted-", dir=self.home.quarantine) as folder:
            done = converter.convert(request, Path(folder))
            return self.import_file(done.path.name, _blocks(done.path), ("model",))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
