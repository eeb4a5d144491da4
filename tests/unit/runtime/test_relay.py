"""The files of a relay: whole and hashed, in the folders of its node alone."""

import hashlib
from pathlib import Path

import pytest

from unifiednn_core.base.errors import BadInput
from unifiednn_core.runtime import cluster, remote_store
from unifiednn_core.runtime.relay import Relay

RUN = "20260101-000000-abcdef"
CONTENT = bytes(range(256)) * 40
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Relay:
    monkeypatch.setenv("UNIFIEDNN_HOME", str(tmp_path))
    return Relay("nodes/n1", RUN)


@pytest.fixture
def folder(relay: Relay, tmp_path: Path) -> Path:
    folder = tmp_path / "nodes/n1/runs" / RUN
    folder.mkdir(parents=True)
    return folder


def test_a_file_counts_once_it_is_whole(relay: Relay) -> None:
    for offset in range(0, len(CONTENT), 3000):
        relay.write(SHA256, offset, CONTENT[offset : offset + 3000])
        assert not relay.has(SHA256)
    relay.write(SHA256, 3000, CONTENT[3000:])  # a part that was sent again, as after a lost answer
    relay.write(SHA256, len(CONTENT), b"")
    assert relay.has(SHA256)


def test_a_damaged_file_is_refused_and_gone(relay: Relay, tmp_path: Path) -> None:
    relay.write(SHA256, 0, CONTENT[:-1])
    with pytest.raises(OSError, match="arrived damaged"):
        relay.write(SHA256, len(CONTENT) - 1, b"")
    assert not relay.has(SHA256)
    assert not [path for path in (tmp_path / "nodes/n1/files").rglob("*") if path.is_file()]


def test_checkpoints_come_to_their_place_after_older_ones_are_gone(relay: Relay, folder: Path) -> None:
    name = "checkpoints/a/step-7.safetensors"
    (folder / "checkpoints/a").mkdir(parents=True)
    (folder / "checkpoints/a/step-9.safetensors").write_bytes(b"newer, and known to nobody")
    relay.empty(RUN, "a")
    relay.write(SHA256, 0, CONTENT, (RUN, name))
    relay.write(SHA256, len(CONTENT), b"", (RUN, name))
    assert [path.name for path in (folder / "checkpoints/a").iterdir()] == ["step-7.safetensors"]
    assert relay.describe(RUN, name) == SHA256
    assert relay.read(RUN, name, 0) == CONTENT and relay.read(RUN, name, len(CONTENT)) == b""


def test_links_of_a_worker_lead_nowhere(relay: Relay, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"of the user of this node")
    (folder / "checkpoints").symlink_to(outside)
    (folder / "models").mkdir()
    (folder / "models/a.zip").symlink_to(outside / "secret")
    (folder / "worker.log").symlink_to(outside / "secret")
    with pytest.raises(OSError):
        relay.read(RUN, "models/a.zip", 0)
    with pytest.raises(OSError):
        relay.describe(RUN, "checkpoints/secret")
    with pytest.raises(OSError, match="checkpoints"):
        relay.empty(RUN, "a")
    relay.write(SHA256, 0, CONTENT, (RUN, "checkpoints/a/step-1.safetensors"))
    with pytest.raises(OSError, match="checkpoints"):
        relay.write(SHA256, len(CONTENT), b"", (RUN, "checkpoints/a/step-1.safetensors"))
    assert relay.poll([], None).log == b""
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_a_socket_of_a_long_name_can_be_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with remote_store.short(folder / "relay") as place:
        assert len(place) < 60 and Path(place).parent.samefile(folder)


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.1:6379", "head:6379"])
def test_addresses_of_a_cluster(address: str) -> None:
    assert cluster.ray_address(address) == address


@pytest.mark.parametrize(
    ("address", "message"),
    [("ray://head:10001", "client cannot start"), ("head", "is no address"), (":1", "is no address"), ("a:b", "is no")],
)
def test_other_addresses_are_refused_with_a_sentence(address: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        cluster.ray_address(address)
    assert cluster.address_in(["app.py", "--ray", address]) == address and cluster.address_in(["app.py"]) is None


def test_without_ray_the_server_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BadInput, match="pip install"):
        cluster.ray_address("auto")
