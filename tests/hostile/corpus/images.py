"""Zips of images that unpack without end, point outside, or hold no images."""

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from PIL import Image

Maker = Callable[[Path], Path]
Member = tuple[str, bytes | Callable[[], bytes]]
SYMLINK, DEVICE = 0o120777 << 16, 0o020666 << 16


def chunk(kind: bytes, body: bytes) -> bytes:
    """One part of a PNG."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: bytes, *more: bytes, depth: int = 8) -> bytes:
    """A grey PNG of any claimed size around any rows."""
    head = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), *more, chunk(b"IDAT", zlib.compress(rows, 9)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _jpeg(width: int = 8, height: int = 8) -> bytes:
    stream = io.BytesIO()
    Image.new("L", (width, height)).save(stream, "JPEG")
    return stream.getvalue()


def _claiming(content: bytes, width: int, height: int) -> bytes:
    """A JPEG that claims another size in its first frame."""
    at = content.index(b"\xff\xc0") + 5
    return content[:at] + struct.pack(">HH", height, width) + content[at + 4 :]


def _text(size_bytes: int) -> bytes:
    return chunk(b"zTXt", b"note\0\0" + zlib.compress(bytes(size_bytes), 9))


def _profile(size_bytes: int) -> bytes:
    return chunk(b"iCCP", b"note\0\0" + zlib.compress(bytes(size_bytes), 9))


SMALL = png(4, 4, bytes(5) * 4)
GOOD = (("cat/1.png", SMALL), ("dog/1.png", SMALL))
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><image href="http://127.0.0.1:9/"/><script>alert(1)</script></svg>'


def images(*members: Member, mode: int | None = None) -> Maker:
    """A zip of these files; what is large is made when it is written."""

    def make(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "images.zip", "w") as archive, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that occur twice
            for name, content in members:
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                if mode is not None:
                    info.external_attr = mode
                archive.writestr(info, content if isinstance(content, bytes) else content())
        return folder / "images.zip"

    return make


def _beside(*members: Member) -> Maker:
    return images(*GOOD, *members)


def _edited(edit: Callable[[bytearray], None]) -> Maker:
    def make(folder: Path) -> Path:
        path = images(*GOOD)(folder)
        content = bytearray(path.read_bytes())
        edit(content)
        path.write_bytes(content)
        return path

    return make


def _each(content: bytearray, mark: bytes, change: Callable[[int], None]) -> None:
    at = content.find(mark)
    while at >= 0:
        change(at)
        at = content.find(mark, at + 4)


def _encrypt(content: bytearray) -> None:
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        _each(content, mark, lambda at, place=place: content.__setitem__(at + place, content[at + place] | 1))  # type: ignore[misc]


def _overlap(content: bytearray) -> None:
    """All entries are the first one."""
    _each(content, b"PK\x01\x02", lambda at: struct.pack_into("<L", content, at + 42, 0))


def _many_in_one(folder: Path) -> Path:
    """Very many names for one bomb: 16 GiB out of 100 KB."""
    inner = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = png(4, 4, bytes(5) * 4, chunk(b"zzZz", bytes(32 * 1024**2)))
    packed = inner.compress(bomb) + inner.flush()
    name, sizes = b"cat/1.png", struct.pack("<LLL", zlib.crc32(bomb), len(packed), len(bomb))
    local = b"PK\x03\x04" + struct.pack("<HHHHH", 20, 0, 8, 0, 33) + sizes + struct.pack("<HH", len(name), 0) + name
    rest = struct.pack("<HHHHHLL", len(name), 0, 0, 0, 0, 0, 0) + name
    record = b"PK\x01\x02" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 33) + sizes + rest
    directory = record * 512
    end = b"PK\x05\x06" + struct.pack("<HHHHLLH", 0, 0, 512, 512, len(directory), len(local) + len(packed), 0)
    (folder / "images.zip").write_bytes(local + packed + directory + end)
    return folder / "images.zip"


def _nested() -> bytes:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("cat/1.png", SMALL)
    return inner.getvalue()


MAKERS: dict[str, Maker] = {
    "bomb": images(("cat/1.png", lambda: png(30_000, 30_000, bytes(30_001) * 3_000)), ("dog/1.png", SMALL)),
    "that lies": images(("cat/1.png", png(2**31 - 1, 2**31 - 1, b"x")), ("dog/1.png", SMALL)),
    "of no width": _beside(("cat/2.png", png(0, 4, b""))),
    "JPEG that lies": images(("cat/1.jpg", _claiming(_jpeg(), 65_000, 65_000)), ("dog/1.jpg", _jpeg())),
    "JPEG that claims 16 million pixels": images(("cat/1.jpg", _claiming(_jpeg(), 4096, 4097)), ("dog/1.jpg", _jpeg())),
    "text bomb": _beside(("cat/2.png", lambda: png(4, 4, bytes(20), _text(96 * 1024**2)))),
    "profile bomb": _beside(("cat/2.png", lambda: png(4, 4, bytes(20), _profile(96 * 1024**2)))),
    "outside": images(("../../cat/1.png", SMALL), ("dog/1.png", SMALL)),
    "outside by backslashes": images(("..\\..\\cat\\1.png", SMALL), ("dog/1.png", SMALL)),
    "by absolute path": images(("/etc/cat/1.png", SMALL), ("dog/1.png", SMALL)),
    "by drive": images(("C:/cat/1.png", SMALL), ("dog/1.png", SMALL)),
    "with NUL in its name": _edited(lambda content: _each(content, b"cat/1", lambda at: content.__setitem__(at, 0))),
    "symbolic link": images(("cat/1.png", b"/etc/passwd"), ("dog/1.png", b"/etc/passwd"), mode=SYMLINK),
    "device": images(*GOOD, mode=DEVICE),
    "encrypted": _edited(_encrypt),
    "overlapping": _edited(_overlap),
    "many names for one bomb": _many_in_one,
    "archive in archive": images(("cat/1.zip", _nested())),
    "archive by another name": _beside(("cat/2.png", _nested())),
    "no image": images(("cat/1.png", b"text"), ("dog/1.png", SMALL)),
    "GIF by another name": _beside(("cat/2.png", b"GIF89a\x01\x00\x01\x00\x00\x00\x00;")),
    "SVG": _beside(("cat/2.svg", SVG)),
    "SVG by another name": _beside(("cat/2.png", SVG)),
    "PostScript by another name": _beside(("cat/2.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n")),
    "script": _beside(("cat/run.sh", b"mkdir canary")),
    "many empty members": lambda folder: images(*((f"cat/{n}.png", b"") for n in range(20_000)))(folder),
    "cut short": _beside(("cat/2.png", SMALL[:-30])),
    "cut in its header": _beside(("cat/2.png", SMALL[:20])),
    "of another size": _beside(("cat/2.png", png(5, 4, bytes(6) * 4))),
    "of 16 bits": _beside(("cat/2.png", png(4, 4, bytes(9) * 4, depth=16))),
    "without folders": images(("1.png", SMALL), ("2.png", SMALL)),
    "too deep": images(("a/b/c/1.png", SMALL), ("a/b/d/1.png", SMALL)),
    "folder of a long name": images(("x" * 300 + "/1.png", SMALL), ("dog/1.png", SMALL)),
    "two of a name": images(*GOOD, GOOD[0]),
    "without an end": _edited(lambda content: content.__delitem__(slice(-30, None))),
    "with a wrong sum": _edited(lambda content: content.__setitem__(60, content[60] ^ 0xFF)),
}
HARMLESS: dict[str, Maker] = {"image and archive at once": _beside(("cat/2.png", SMALL + _nested()))}
"""Its pixels are taken, and nothing else of it."""
