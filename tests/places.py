"""Places where several hosts keep files: a folder, and an object store that lives in the process of the tests."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.store.blobs import MARK

BUCKET = "unifiednn-tests"


@dataclass
class Place:
    """A place for files; "" is the home of one host."""

    url: str
    folder: Path
    files: Any = None

    def another(self, folder: Path) -> "Place":
        """A new place of this kind."""
        if self.files is None:
            return Place(str(folder / "shared") if self.url else "", folder)
        return Place(f"s3://{BUCKET}/{folder.name}?{self.url.partition('?')[2]}", folder, self.files)

    def names(self) -> set[str]:
        """All files in the place, by key."""
        if self.files is None:
            root = Path(self.url)
            found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
        else:
            root = self.url.removeprefix("s3://").partition("?")[0]
            found = {path.removeprefix(f"{root}/") for path in self.files.find(root)}
        return found - {MARK}

    def write(self, key: str, content: bytes | None) -> None:
        """Change the bytes of a blob, or remove it, behind everybody's back."""
        if self.files is None:
            path = Path(self.url) / key
            path.unlink() if content is None else path.write_bytes(content)
            return
        path = f"{self.url.removeprefix('s3://').partition('?')[0]}/{key}"
        self.files.rm_file(path) if content is None else self.files.pipe_file(path, content)


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """Endpoint of a server of S3 that lives in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from moto.server import ThreadedMotoServer

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Place":
    """A new place for files, of the kind that the test asks for."""
    if request.param == "home":
        return Place("", tmp_path)
    if request.param == "folder":
        return Place(str(tmp_path / "shared"), tmp_path)
    endpoint = request.getfixturevalue("object_store")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"AWS_{name}", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import fsspec

    files = fsspec.filesystem("s3", endpoint_url=endpoint, skip_instance_cache=True, use_listings_cache=False)
    with suppress(FileExistsError):
        files.mkdir(BUCKET)
    return Place(f"s3://{BUCKET}/{tmp_path.name}?endpoint_url={endpoint}", tmp_path, files)
