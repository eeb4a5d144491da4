"""What a file is that nothing here reads, judged by its content, and the line that turns it into one that is taken."""

import codecs
import csv
import re
import struct
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from unifiednn_core.formats import tensor_files, zips
from unifiednn_core.formats.base import PACK

HEAD_BYTES = 2**20
DELIMITERS = ",;\t|"
_OLD_PICKLE = rb"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19"  # torch before 1.6
_UNWRITTEN = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # control characters that no text has
_CLASS_FOLDERS = "Pack images in one folder for each class: cat/1.png, dog/1.png. Submit any other file unpacked."
_LINES = 20  # in which a table begins


class Said(NamedTuple):
    """A finding on a file, without its name."""

    title: str
    message: str
    remedy: str


def _stacked(module: str, read: str) -> str:
    """The line that makes one data set of many files; `read` gives the array of the file `f`."""
    return (
        f"With one folder for each class: import glob, numpy, {module}; p = sorted(glob.glob('*/*')); "
        f"numpy.savez('data.npz', x=numpy.stack([{read} for f in p]), "
        "y=numpy.unique([f.split('/')[0] for f in p], return_inverse=True)[1])"
    )


def _arrays(module: str, opened: str, x: str, y: str) -> str:
    """The line that takes two arrays from one file."""
    line = f"import {module}, numpy; f = {opened}; numpy.savez('data.npz', x={x}, y={y})"
    return f"{line}, with the names that list(f) shows."


_AUDIO = _stacked("soundfile", "soundfile.read(f, frames=16000, fill_value=0, always_2d=True, dtype='float32')[0].T")
_DICOM = _stacked("pydicom", "pydicom.dcmread(f).pixel_array")
_VIDEO = "Save its pictures in one folder for each class: ffmpeg -i FILE -r 1 cat/%04d.png. Zip the folders."
_IMAGE = "Zip PNG or JPEG images in one folder for each class: cat/1.png, dog/1.png. Convert others: magick FILE 1.png"
_SHEET = (
    "import pandas; pandas.read_excel('FILE').to_csv('table.csv', index=False). Or save it as 'CSV UTF-8' in Excel."
)
_ONNX = (
    "import onnx2torch, torch; torch.save(onnx2torch.convert('FILE'), 'network.pt'). "
    "Then: unifiednn pack network.pt --input SHAPE"
)
_KERAS = (
    "import keras; keras.saving.load_model('FILE').export('network.onnx', format='onnx'). "
    f"Then: {_ONNX.replace('FILE', 'network.onnx')}"
)
_SCRIPTED = f"Take the Python class that it was made from, or use torch.export in your own environment. {PACK}"
_UNPACK = "Unpack it (7z x FILE), and submit the file in it, or zip what is in it."
_EXAMPLES = (
    "from tfrecord.reader import tfrecord_loader; import numpy; r = list(tfrecord_loader('FILE', None)); "
    "numpy.savez('data.npz', x=numpy.stack([i['x'] for i in r]), y=numpy.stack([i['label'] for i in r])), "
    "with the names that r[0] shows."
)
_BEGINNINGS = tuple(
    (re.compile(begins, re.DOTALL), what, remedy)
    for begins, what, remedy in (
        (
            rb"MATLAB 7\.3 MAT-file",
            "a MATLAB file (v7.3, HDF5)",
            _arrays("h5py", "h5py.File('FILE')", "f['x'][:].T", "f['y'][:].ravel()"),
        ),
        (
            rb"MATLAB 5\.0 MAT-file",
            "a MATLAB file (v5)",
            _arrays("scipy.io", "scipy.io.loadmat('FILE')", "f['x']", "f['y'].ravel()"),
        ),
        (
            rb"(.{512}|.{1024}|.{2048})?\x89HDF\r\n\x1a\n",
            "an HDF5 file, as Keras, pandas and h5py write",
            _arrays("h5py", "h5py.File('FILE')", "f['x']", "f['y']"),
        ),
        (
            rb"GGUF[\1-\x09]\0\0\0",
            "a GGUF file, as llama.cpp writes",
            "from transformers import AutoModelForCausalLM; "
            "AutoModelForCausalLM.from_pretrained('.', gguf_file='FILE').save_pretrained('network')",
        ),
        (
            rb"ARROW1\0\0",
            "an Arrow file (Feather)",
            "from pyarrow import feather, parquet; parquet.write_table(feather.read_table('FILE'), 'table.parquet')",
        ),
        (
            rb"\xff{4}...\0[\4-\x40]\0\0\0",
            "an Arrow stream, as the datasets library writes",
            "from pyarrow import ipc, parquet; parquet.write_table(ipc.open_stream(open('FILE', 'rb')).read_all(), "
            "'table.parquet')",
        ),
        (rb".{128}DICM", "a DICOM image", _DICOM),
        (rb".{344}n[+i]1\0", "a NIfTI image", _stacked("nibabel", "nibabel.load(f).get_fdata()")),
        (rb"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
        (rb"Rar!\x1a\x07", "a RAR archive", _UNPACK),
        (rb"BZh[1-9]1AY&SY|\xfd7zXZ\0|\x28\xb5\x2f\xfd", "a file packed with bzip2, xz or Zstandard", _UNPACK),
        (
            rb"SQLite format 3\0",
            "an SQLite database",
            "import pandas, sqlite3; pandas.read_sql('SELECT * FROM name', sqlite3.connect('FILE'))"
            ".to_csv('table.csv', index=False)",
        ),
        (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a file of an old Microsoft Office, such as .xls", _SHEET),
        (rb"RIFF....WAVE|RF64....WAVE|FORM....AIF", "a WAV or AIFF audio file", _AUDIO),
        (rb"fLaC[\0\x80]|OggS\0", "a FLAC or Ogg audio file", _AUDIO),
        (rb"ID3[\2-\4]|\xff[\xe2\xe3\xf2\xf3\xfa\xfb][\x10-\xeb]", "an MP3 audio file", _AUDIO),
        (rb"\0\0..ftypM4[AB] ", "an MPEG-4 audio file", f"Convert it to WAV first: ffmpeg -i FILE cat/1.wav. {_AUDIO}"),
        (rb"\0\0..ftyp(hei[cx]|mif1|avif)", "a HEIF or AVIF image", _IMAGE),
        (rb"\0\0..ftyp.{4}", "an MPEG-4 or QuickTime video", _VIDEO),
        (rb"RIFF....AVI |\x1a\x45\xdf\xa3", "an AVI, Matroska or WebM video", _VIDEO),
        (rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF....WEBP", "one image", _IMAGE),
        (rb"%PDF-\d", "a PDF", "Save its text: pdftotext FILE text.txt"),
    )
)
_IN_ARCHIVES = tuple(
    (re.compile(name, re.IGNORECASE), what, remedy)
    for name, what, remedy in (
        (r"xl/workbook\.(xml|bin)", "an Excel file", _SHEET),
        (r"model\.weights\.h5", "a network of Keras 3", _KERAS),
        (
            r"(word|ppt)/\w+\.xml|META-INF/manifest\.xml",
            "an office document",
            "Save its text as .txt, or its table as .csv.",
        ),
        (r".*\.(wav|mp3|flac|ogg|aiff?|m4a)", "an archive of audio files", f"Unpack it. {_AUDIO}"),
        (r".*\.dcm", "an archive of DICOM images", f"Unpack it. {_DICOM}"),
        (r".*\.(mp4|avi|mkv|webm|mov)", "an archive of videos", f"Unpack it. {_VIDEO}"),
        (r".*\.(zip|tar|tgz|gz|7z|rar)", "an archive of archives", "Unpack it, and submit each archive by itself."),
        (r".*\.(csv|tsv|jsonl|parquet)", "an archive with a table", "Unpack it, and submit the table by itself."),
    )
)
_PACKAGES = 3  # of these kinds every file is one document, whatever else is in it


def recognised(path: Path) -> Said | None:
    """Say what a file is that no format and no reader of data knows; None if it cannot be told.

    Raises `HostileFile` for an archive of too many files.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    names = zips.names(path)
    if not head:
        return Said("Empty file", "The file is empty.", "Copy it again, and copy it whole.")
    for begins, what, remedy in _BEGINNINGS:
        if begins.match(head):
            return _is(what, remedy)
    kinds = (
        (
            any(name.endswith("/constants.pkl") for name in names),
            "TorchScript",
            "A TorchScript file is a program. The server does not run it.",
            _SCRIPTED,
        ),
        (
            any(name.endswith((".so", ".cubin")) for name in names),
            "Compiled network",
            "The file holds compiled code. The server does not run it.",
            PACK,
        ),
        (
            re.match(_OLD_PICKLE, head),
            "Old file",
            "A torch older than 1.6 wrote the file.",
            "Load it, and save it with a newer torch.",
        ),
        (
            tensor_files.WEIGHTS in (tensor_files.document_of(path, "") or {}),
            "Description alone",
            "The weights of this network are in a .safetensors file beside it.",
            "Submit that .safetensors file: it holds the description, too.",
        ),
        (
            re.search(rb"^\s*(import|from) torch\b", head[:4096], re.MULTILINE),
            "Python source",
            "A Python file is a program. The server does not run it.",
            PACK,
        ),
        (_is_onnx(head), *_is("an ONNX network", _ONNX)),
        (_is_tfrecord(head, checked=True), *_is("a TFRecord file, as TensorFlow writes", _EXAMPLES)),
        (
            _is_tfrecord(head, checked=False),
            "TFRecord",
            "This is a TFRecord file, as TensorFlow writes, but the checksum of its first record is wrong: "
            "it is damaged.",
            f"Write it again, and copy it whole. Then: {_EXAMPLES}",
        ),
        (
            head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"),
            "Pickle",
            "A pickle of Python is a program. The server does not run it.",
            "Save arrays: numpy.savez(path, x=x, y=y). Save a network with torch.save(network.state_dict(), path).",
        ),
        (
            head[:2] == b"\x1f\x8b",
            "Gzip",
            "The file is packed with gzip, and neither a tar nor an IDX file can be read in it.",
            "Unpack it first.",
        ),
    )
    found = next((Said(*said) for holds, *said in kinds if holds), None)
    return found or (_of_zip(names) if zips.is_zip(path) else _of_text(head))


def in_archive(names: Sequence[str]) -> Said | None:
    """Say what an archive is by the names of its files; None if they are of no kind that is known."""
    for pattern, what, remedy in _IN_ARCHIVES:
        if any(map(pattern.fullmatch, names)):
            return _is(what, remedy)
    return None


def is_package(names: Sequence[str]) -> bool:
    """Whether the files of an archive are one document or network together, whatever images it has."""
    return any(pattern.fullmatch(name) for pattern, *_ in _IN_ARCHIVES[:_PACKAGES] for name in names)


def _is(what: str, remedy: str) -> Said:
    return Said("Other kind of file", f"This is {what}.", remedy)


def _of_zip(names: Sequence[str]) -> Said:
    if not names:
        return Said(
            "Zip",
            "The zip is damaged or empty: it has no list of files that can be read.",
            "Pack it again, and copy it whole.",
        )
    message = "The zip holds neither a network nor arrays nor images"
    shown = ", ".join(f"'{name[:80]}'" for name in names[:3])
    return in_archive(names) or Said(
        "Zip", f"{message}, but {len(names):,} other files, such as {shown}.", _CLASS_FOLDERS
    )


def _of_text(head: bytes) -> Said | None:
    if re.match(rb"\xff\xfe(?!\0\0)|\xfe\xff|([\t\n\r -~]\0){4}", head):
        message = "The text is in UTF-16, as Excel saves 'Unicode Text'; UTF-8 is read."
        return Said("Encoding", message, _in_utf_8("UTF-16"))
    if head[:64].lstrip().startswith((b"{", b"[")):
        message = "The JSON describes no network, or it is damaged, nested too deep or not UTF-8."
        remedy = 'A config.json of transformers has "model_type".'
        return Said("JSON", message, remedy)
    if _UNWRITTEN.search(head):
        return None
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head, final=len(head) < HEAD_BYTES)
    except UnicodeDecodeError as error:
        line = head.count(b"\n", 0, error.start) + 1
        message = (
            f"The file is no text in UTF-8: line {line:,} has the byte 0x{head[error.start]:02x}. Excel often saves "
        )
        message += "in Windows-1252, which is also called ANSI."
        return Said("Encoding", message, _in_utf_8("WINDOWS-1252"))
    if (begins := _begin_of_table(text.splitlines()[:_LINES])) is not None:
        line, values, delimiter = begins
        shown = {"\t": "a tab"}.get(delimiter, f"'{delimiter}'")
        message = (
            f"If this is a table, it begins in line {line}, with {values} values separated by {shown} in each line."
        )
        return Said("Lines above a table", message, "Delete the lines above the names of the columns.")
    remedy = (
        "A network is a .pt2, .pt, .pth, .safetensors or .json file. A table is a .csv in UTF-8: one line of names, "
        "then rows of as many values (2 or more), separated by comma, semicolon, tab or '|'."
    )
    return Said("Text", "The text describes no network and is not a table.", remedy)


def _in_utf_8(encoding: str) -> str:
    return f"Save it as 'CSV UTF-8' in Excel, or convert it: iconv -f {encoding} -t UTF-8 FILE > table.csv"


def _begin_of_table(lines: Sequence[str]) -> tuple[int, int, str] | None:
    """Number of the line below the first from which all have as many values; this number, and what separates them."""
    for at in range(1, len(lines) - 1):
        for delimiter in DELIMITERS:
            try:
                widths = {len(row) for row in csv.reader(lines[at:], delimiter=delimiter) if row}
            except csv.Error:
                continue
            if len(widths) == 1 and (values := widths.pop()) > 1:
                return at + 1, values, delimiter
    return None


def _is_onnx(head: bytes) -> bool:
    """Whether the fields of a protobuf are those of ONNX's `ModelProto` up to its graph: version, texts, graph."""
    at, fields = 0, list[int]()
    while at < len(head) and len(fields) < 8:
        field, kind = head[at] >> 3, head[at] & 7
        value, at = _varint(head, at + 1)
        if (field, kind) == (7, 2):
            return fields[:1] == [1] and head[at : at + 1] in (b"\n", b"\x12", b"*", b"R", b"Z")
        if (field, kind) not in ((1, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2), (8, 2)) or (field == 1 and value > 99):
            return False
        if kind == 2:
            if field != 8 and _UNWRITTEN.search(head, at, at + value):
                return False
            at += value
        fields.append(field)
    return False


def _is_tfrecord(head: bytes, *, checked: bool) -> bool:
    """Whether the length of a first record has its checksum, or, if not `checked`, is that of a `tf.train.Example`."""
    if len(head) < 13:
        return False
    length, checksum = struct.unpack_from("<QI", head)
    if checked:
        return bool(checksum == _masked_crc32c(head[:8]))
    value, at = _varint(head, 13)
    return head[12:13] == b"\n" and at - 12 + value == length


def _masked_crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at this place of a protobuf, and the place after it."""
    value = 0
    for shift, byte in enumerate(islice(content, at, at + 10)):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    return value, len(content)
