import gc
import os
from pathlib import Path

import pytest

from unifiednn_core.base.errors import NotFound
from unifiednn_core.service import server_folders
from unifiednn_core.service.server_folders import FOLDERS_VARIABLE


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Two folders with what people and attackers leave there; the secret lies beside them."""
    (tmp_path / "secret.pt").write_bytes(b"secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.pt").write_bytes(b"secret")
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "sub").mkdir(parents=True)
    two.mkdir()
    (one / "a.pt").write_bytes(b"a")
    (one / "sub" / "b.PT2").write_bytes(b"bb")
    (one / "notes.txt").write_bytes(b"n")
    (one / ".hidden.pt").write_bytes(b"h")
    (one / "link.pt").symlink_to(tmp_path / "secret.pt")
    (one / "out").symlink_to(tmp_path / "outside")
    os.mkfifo(one / "pipe.pt")
    (two / "c.npz").write_bytes(b"ccc")
    monkeypatch.setenv(FOLDERS_VARIABLE, f"{one}{os.pathsep}{two}{os.pathsep}{tmp_path / 'missing'}")
    return one


def test_files_of_the_suffixes_are_listed_without_links(folders):
    found = server_folders.listing(("pt", "pt2"))
    assert [(file.name, file.shown, file.size_bytes) for file in found] == [
        ("0/a.pt", "one/a.pt", 1),
        ("0/sub/b.PT2", "one/sub/b.PT2", 2),
    ]
    assert [file.shown for file in server_folders.listing(("npz",))] == ["two/c.npz"]


def test_what_is_listed_can_be_opened(folders):
    for file in server_folders.listing():
        with server_folders.open_file(file.name) as opened:
            assert len(opened.read()) == file.size_bytes


@pytest.mark.parametrize(
    "name",
    [
        "0/../secret.pt",
        "0/sub/../../secret.pt",
        "0/link.pt",
        "0/out/secret.pt",
        "0//a.pt",
        "0/./a.pt",
        "0/.hidden.pt",
        "0/sub",
        "0/",
        "0",
        "",
        "/etc/passwd",
        "0//etc/passwd",
        "2/a.pt",
        "9/a.pt",
        "-1/c.npz",
        "²/a.pt",
        "0/pipe.pt",
        "0/a.pt\0",
        "0/nothing.pt",
    ],
)
def test_nothing_else_can_be_opened(folders, name):
    with pytest.raises(NotFound):
        server_folders.open_file(name)


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(folders, tmp_path):
    [named] = [file.name for file in server_folders.listing(("pt2",))]
    (folders / "sub" / "b.PT2").unlink()
    (folders / "sub").rmdir()
    (folders / "sub").symlink_to(tmp_path / "outside")
    (tmp_path / "outside" / "b.PT2").write_bytes(b"secret")
    with pytest.raises(NotFound):
        server_folders.open_file(named)


def test_no_file_handle_is_left_open(folders):
    gc.collect()  # handles of other tests, whose objects wait for it
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("0/link.pt", "0/sub/../a.pt", "0/pipe.pt", "0/sub/nothing", "0/sub"):
        with pytest.raises(NotFound):
            server_folders.open_file(name)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_without_the_setting_there_are_no_folders(monkeypatch):
    monkeypatch.delenv(FOLDERS_VARIABLE, raising=False)
    assert server_folders.listing() == ()
    with pytest.raises(NotFound):
        server_folders.open_file("0/a.pt")
