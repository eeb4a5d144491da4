import io
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.data import pictures
from unifiednn_core.data.containers import container_of
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.formats import zips

PIXELS = np.arange(6 * 4 * 3, dtype=np.uint8).reshape(6, 4, 3)  # 6 high, 4 wide


def image(mode: str = "RGB", form: str = "PNG", pixels: "np.ndarray" = PIXELS) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(content, form)
    return content.getvalue()


def packed(folder: Path, entries: Mapping[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(folder / "images.zip", "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return folder / "images.zip"


@pytest.mark.parametrize("root", ["", "photos/"])
def test_folders_are_classes_and_pixels_are_kept(root: str, tmp_path: Path) -> None:
    names = ("dog/1.png", "cat/b.png", "cat/a.PNG")
    litter = {"__MACOSX/cat/._a.png": b"x", f"{root}cat/.DS_Store": b"x"}
    path = packed(tmp_path, {root + name: image() for name in names} | litter)
    assert container_of(path) == "archive"
    dataset = read_dataset(path)
    assert dataset.first.dtype is torch.uint8
    assert torch.equal(dataset.first, torch.from_numpy(PIXELS).permute(2, 0, 1).expand(3, 3, 6, 4))
    assert dataset.targets.tolist() == [1, 0, 0]
    assert dataset.notes.class_names == ("cat", "dog")


@pytest.mark.parametrize(("modes", "channels"), [(("L", "1"), 1), (("L", "RGB"), 3), (("P", "RGBA"), 3)])
def test_grey_images_have_one_channel_unless_others_have_colour(
    modes: tuple[str, ...], channels: int, tmp_path: Path
) -> None:
    path = packed(tmp_path, {f"c/{mode}.png": image(mode) for mode in modes})
    assert read_dataset(path).first.shape == (2, channels, 6, 4)


def test_sizes_that_differ_are_named(tmp_path: Path) -> None:
    path = packed(tmp_path, {"c/1.png": image(), "c/2.jpg": image(form="JPEG"), "d/3.png": image(pixels=PIXELS[:3])})
    with pytest.raises(BadInput, match=r"Images are 6x4 \(height x width\), but 'd/3.png' \(3x4\)"):
        read_dataset(path)


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("c/link.png")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


GOOD = {"c/1.png": image()}


@pytest.mark.parametrize(
    ("entry", "content", "words"),
    [
        ("../c/2.png", image(), "leads outside its folder"),
        ("c/../../2.png", image(), "leads outside its folder"),
        ("/etc/2.png", image(), "leads outside its folder"),
        ("C:/x/2.png", image(), "leads outside its folder"),
        ("c\\..\\..\\2.png", image(), "leads outside its folder"),
        (link(), b"/etc/passwd", "is a link or a device"),
        ("c/inner.zip", b"PK\x03\x04", "other files and archives are not read"),
        ("c/notes.txt", b"hello", "neither PNG nor JPEG"),
        ("2.png", image(), "is in no class folder"),
        ("train/c/2.png", image(), "is in no class folder"),
        ("c/2.png", b"hello", "is damaged, or not a PNG or JPEG image"),
        ("c/2.png", image()[:50], "damaged"),
        ("c/2.png", image(form="BMP"), "is damaged, or not a PNG or JPEG image"),
        ("c/2.png", image("I;16"), "pixels of the kind I;16"),
    ],
)
def test_what_is_no_folder_of_images_is_refused(
    entry: str | zipfile.ZipInfo, content: bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises((BadInput, HostileFile), match=words):
        read_dataset(packed(tmp_path, {**GOOD, entry: content}))


def test_encrypted_archives_are_refused(tmp_path: Path) -> None:
    content = bytearray(packed(tmp_path, GOOD).read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag that says so
    (tmp_path / "images.zip").write_bytes(content)
    with pytest.raises(HostileFile, match="encrypted"):
        read_dataset(tmp_path / "images.zip")


def test_bombs_are_refused_before_they_unpack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = packed(tmp_path, {**GOOD, "c/2.png": bytes(pictures.MAX_IMAGE_BYTES + 1)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(HostileFile, match="would unpack to"):
        read_dataset(bomb)
    giant = bytearray(image())
    giant[16:24] = (60_000).to_bytes(4, "big") * 2  # the sides that a PNG declares
    with pytest.raises((HostileFile, BadInput), match=r"more than .* pixels|damaged"):
        read_dataset(packed(tmp_path, {**GOOD, "c/2.png": bytes(giant)}))
    monkeypatch.setattr(pictures, "MAX_PIXELS", 23)
    with pytest.raises(HostileFile, match="more than 23 pixels"):
        read_dataset(packed(tmp_path, GOOD))
    monkeypatch.undo()
    monkeypatch.setattr(pictures, "FREE_DECODED_BYTES", 100)
    monkeypatch.setattr(zips, "MAX_UNPACKED_RATIO", 0)
    with pytest.raises(BadInput, match="2 images of 72 bytes each need more than"):
        read_dataset(packed(tmp_path, {"c/1.png": image(), "d/1.png": image()}))


def test_archives_with_absurdly_many_files_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path, {f"c/{n}.png": b"x" for n in range(50)})
    monkeypatch.setattr(zips, "MAX_MEMBERS", 49)
    with pytest.raises(HostileFile, match="lists 50 files"):
        zips.members(path)
    monkeypatch.setattr(zips, "MAX_DIRECTORY_BYTES", 200)
    monkeypatch.setattr(zipfile, "ZipFile", None)  # nobody parses it
    with pytest.raises(HostileFile, match="more than 49 files"):
        zips.members(path)
