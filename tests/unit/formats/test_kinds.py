"""Files that nothing here reads are named by their content, sound or cut short, with the line that converts them."""

import gzip
import io
import struct
import wave
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import feather

from tests.unit.data import data_files as made
from unifiednn_core.preflight.inspection import inspect_file
from unifiednn_core.preflight.process import run_inspect
from unifiednn_core.preflight.report import FileReport

HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(200)
EXAMPLE = b"\n\x12\n\x10\n\x05label\x12\x07\x1a\x05\n\x03\1\2\3"
TABLE = pa.table({"a": [1, 2], "label": [0, 1]})


def zipped(**files: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, inside in files.items():
            archive.writestr(name, inside)
    return content.getvalue()


def sound() -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(200))
    return content.getvalue()


def arrow(*, stream: bool) -> bytes:
    content = io.BytesIO()
    if stream:
        with pa.ipc.new_stream(content, TABLE.schema) as writer:
            writer.write_table(TABLE)
    else:
        feather.write_feather(TABLE, content)
    return content.getvalue()


def image(form: str) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8)).save(content, form)
    return content.getvalue()


KERAS = {"metadata.json": b"{}", "config.json": b"{}", "model.weights.h5": HDF5}
SHEET = {"[Content_Types].xml": b"<Types/>", "xl/workbook.xml": b"<workbook/>", "xl/media/image1.png": image("PNG")}
ONNX = b'\x08\x08\x12\x07pytorch\x1a\x052.4.0:\x50\n\x10\n\x01x\n\x01w\x12\x01y"\x04Gemm' + bytes(40)
KINDS: Mapping[str, tuple[bytes, str, str]] = {
    "net.onnx": (ONNX, "an ONNX network", "onnx2torch.convert"),
    "bare.onnx": (b"\x08\x0a:\x50\n\x10\n\x01x" + bytes(60), "an ONNX network", "unifiednn pack"),
    "weights.h5": (HDF5, "an HDF5 file", "h5py.File"),
    "block.h5": (bytes(512) + HDF5, "an HDF5 file", "h5py.File"),
    "net.keras": (zipped(**KERAS), "a network of Keras 3", "keras.saving.load_model"),
    "llama.gguf": (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + bytes(64), "a GGUF file", "save_pretrained"),
    "part.tfrecord": (struct.pack("<QI", 20, 0x15293D5E) + EXAMPLE, "a TFRecord file", "tfrecord_loader"),
    "table.arrow": (arrow(stream=False), "an Arrow file", "feather.read_table"),
    "stream.arrow": (arrow(stream=True), "an Arrow stream", "ipc.open_stream"),
    "v5.mat": (b"MATLAB 5.0 MAT-file, Platform".ljust(124) + b"\0\1IM" + bytes(64), "MATLAB file (v5)", "loadmat"),
    "v7.mat": (b"MATLAB 7.3 MAT-file, Platform".ljust(512) + HDF5, "MATLAB file (v7.3", "h5py.File"),
    "scan.dcm": (bytes(128) + b"DICM" + bytes(60), "a DICOM image", "pydicom.dcmread"),
    "brain.nii": (struct.pack("<i", 348) + bytes(340) + b"n+1\0" + bytes(20), "a NIfTI image", "nibabel.load"),
    "table.xlsx": (zipped(**SHEET), "an Excel file", "read_excel"),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(90), "an old Microsoft Office", "read_excel"),
    "db.sqlite": (b"SQLite format 3\0" + bytes(100), "an SQLite database", "read_sql"),
    "speech.zip": (zipped(**{f"{c}/1.wav": sound() for c in ("yes", "no")}), "an archive of audio files", "soundfile"),
    "kaggle.zip": (zipped(**{"train.zip": zipped(a=b"")}), "an archive of archives", "each archive by itself"),
    "table.zip": (zipped(**{"data/train.csv": b"a,label\n1,2\n"}), "an archive with a table", "submit the table"),
    "notes.zip": (zipped(**{"a/notes.xyz": b""}), "1 other files, such as 'a/notes.xyz'", "one folder for each class"),
    "a.7z": (b"7z\xbc\xaf'\x1c\x00\x04" + bytes(60), "a 7-Zip archive", "7z x"),
    "a.rar": (b"Rar!\x1a\x07\x01\x00" + bytes(60), "a RAR archive", "7z x"),
    "a.csv.xz": (b"\xfd7zXZ\0" + bytes(60), "packed with bzip2, xz or Zstandard", "7z x"),
    "a.csv.gz": (gzip.compress(b"a,label\n1,2\n"), "packed with gzip", "Unpack it"),
    "a.wav": (sound(), "a WAV or AIFF audio file", "soundfile.read"),
    "a.mp3": (b"ID3\x04" + bytes(60), "an MP3 audio file", "soundfile.read"),
    "b.mp3": (b"\xff\xfb\x90\x64" + bytes(60), "an MP3 audio file", "soundfile.read"),
    "a.flac": (b"fLaC\0\0\0\x22" + bytes(60), "a FLAC or Ogg audio file", "soundfile.read"),
    "a.ogg": (b"OggS\0\2" + bytes(60), "a FLAC or Ogg audio file", "soundfile.read"),
    "a.m4a": (b"\0\0\0\x18ftypM4A " + bytes(60), "an MPEG-4 audio file", "ffmpeg"),
    "video.mp4": (b"\0\0\0\x18ftypmp42" + bytes(60), "an MPEG-4 or QuickTime video", "ffmpeg"),
    "video.avi": (b"RIFF\0\1\0\0AVI LIST" + bytes(60), "an AVI, Matroska or WebM video", "ffmpeg"),
    "video.mkv": (b"\x1a\x45\xdf\xa3" + bytes(60), "an AVI, Matroska or WebM video", "ffmpeg"),
    "photo.heic": (b"\0\0\0\x18ftypheic" + bytes(60), "a HEIF or AVIF image", "magick"),
    "photo.jpg": (image("JPEG"), "one image", "one folder for each class"),
    "paper.pdf": (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "a PDF", "pdftotext"),
    "objects.npy": (made.npy(np.array([np.zeros(2), "x"], object)), "Python objects", "allow_pickle=True"),
    "cp1252.csv": ("größe;label\r\n1;2\r\n".encode("cp1252"), "line 1 has the byte 0xf6", "iconv -f WINDOWS-1252"),
    "utf16.csv": ("size\tlabel\r\n1\t2\r\n".encode("utf-16"), "UTF-16", "iconv -f UTF-16"),
    "bare16.csv": ("size\tlabel\r\n1\t2\r\n".encode("utf-16-le"), "UTF-16", "iconv -f UTF-16"),
    "comment.csv": (b"# of Ada\nsize,label\n1,2\n3,4\n", "begins in line 2, with 2 values separated by ','", "Delete"),
    "empty": (b"", "The file is empty", "Copy it again"),
}
HONEST = (
    "The file is empty.",
    "No format knows this file; it may be damaged.",
    "The zip is damaged or empty",
    "The text describes no network",
    "The file is no text in UTF-8: line",
    "The file cannot be read: it is cut short",
)
"""What may be said of any file that is cut short."""


def written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def said(report: FileReport) -> tuple[str, str]:
    assert report.kind == "unknown"
    [finding] = report.findings
    return finding.message, finding.remedy


@pytest.mark.parametrize("name", KINDS)
def test_a_sound_file_of_another_kind_is_named_with_the_line_that_converts_it(name: str, tmp_path: Path) -> None:
    content, what, line = KINDS[name]
    path = written(tmp_path, name, content)
    message, remedy = said(run_inspect(path, name, tmp_path / "converted"))
    assert what in message and line in remedy
    assert "damaged" not in message


@pytest.mark.parametrize("name", KINDS)
def test_of_a_file_that_is_cut_short_nothing_false_is_said(name: str, tmp_path: Path) -> None:
    content, what, _ = KINDS[name]
    for end in {*range(0, min(len(content), 24)), *range(0, len(content), max(1, len(content) // 12))}:
        path = written(tmp_path, name, content[:end])
        message, _ = said(inspect_file(path, name))
        assert what in message or message.startswith(HONEST), (end, message)


def test_a_damaged_file_is_still_called_damaged(tmp_path: Path) -> None:
    images = zipped(**{"cat/1.png": image("PNG")})
    record = struct.pack("<QI", 20, 0) + EXAMPLE
    for content in (images[:-30], record, bytes(range(40))):
        message, _ = said(inspect_file(written(tmp_path, "file", content), "file"))
        assert "damaged" in message


def test_sounds_in_a_tar_are_named_too(tmp_path: Path) -> None:
    path = made.tarred(tmp_path / "speech.tar.gz", {"yes/1.wav": sound()})
    assert "an archive of audio files" in said(run_inspect(path, path.name, tmp_path / "converted"))[0]
