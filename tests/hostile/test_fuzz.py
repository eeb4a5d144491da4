"""Bytes that nobody thought of: readers survive them, and nothing of them runs."""

import io
import json
import random
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn

from tests.hostile.corpus import CORPUS, archives, documents, images, pickles, tables
from tests.hostile.test_corpus import probed
from tests.unit.formats import kit

MEMORY_CAP_BYTES = 512 * 1024**2
CPU_CAP_S = 30.0
SEED_BYTES = 256 * 1024
COUNT = 3000
INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"{",
    b"}",
    b'"',
    b"-1",
    b"9999999999",
    b"PK\x03\x04",
    b"..",
    b"/",
    b"c",
    b".",
)
LARGEST_BYTES = 4 * 1024**2


def changed(content: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The bytes with one to eight changes."""
    changing = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(changing) + 1)
        match chance.randrange(6):
            case 0 if changing:
                changing[at % len(changing)] ^= 1 << chance.randrange(8)
            case 1:
                changing[at:at] = chance.choice(INTERESTING)
            case 2:
                del changing[at : at + chance.randint(1, 64)]
            case 3:
                piece = chance.choice(others)
                begin = chance.randrange(len(piece) + 1)
                changing[at:at] = piece[begin : begin + chance.randint(1, 256)]
            case 4:
                changing[at : at + 4] = chance.randrange(2**32).to_bytes(4, "little")
            case _:
                changing[at:at] = changing[at : at + chance.randint(1, 64)]
    return bytes(changing[:LARGEST_BYTES])


def changed_inside(content: bytes, others: Sequence[bytes], chance: random.Random) -> bytes:
    """The bytes of a zip with changes in one of its entries, whose sums are right again; any other bytes changed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as source:
            infos = source.infolist()[:64]
            if not infos or sum(info.file_size for info in infos) > LARGEST_BYTES:
                raise ValueError("too large to be packed again")
            entries = [(info, source.read(info)) for info in infos]
        number, stream = chance.randrange(len(entries)), io.BytesIO()
        with zipfile.ZipFile(stream, "w") as target:
            for at, (info, data) in enumerate(entries):
                target.writestr(info, changed(data, others, chance) if at == number else data)
        return stream.getvalue()
    except Exception:  # a damaged zip fails in any way
        return changed(content, others, chance)


def seeds(folder: Path) -> None:
    """Good files of every format, and the small ones of the corpus: they are where it breaks."""
    folder.mkdir()
    shutil.copy(archives.good(), folder / "good.pt2")
    for name, module in {
        "module": pickles.network(),
        "recurrent": nn.Sequential(nn.Embedding(5, 4), nn.LSTM(4, 3, 2)),
        "encoder": nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 1),
    }.items():
        torch.save(module, folder / f"{name}.pt")
    torch.save(kit.network("cnn").state_dict(), folder / "weights.pt")
    inputs, targets = np.random.default_rng(0).random((9, 2)), np.arange(9) % 3
    torch.save({"inputs": torch.from_numpy(inputs), "targets": torch.from_numpy(targets)}, folder / "data.pt")
    np.savez_compressed(folder / "packed.npz", inputs=inputs, targets=targets)
    (folder / "config.json").write_text(json.dumps(documents.config()))
    images.images(*images.GOOD)(folder)
    (folder / "data.csv").write_bytes(tables.ROWS)
    parquet.write_table(pa.table({"a": inputs[:, 0], "target": ["x", "y", "z"] * 3}), folder / "data.parquet")
    for number, make in enumerate(CORPUS.values()):
        place = folder.parent / f"case{number}"
        place.mkdir()
        path = make(place)
        if path.stat().st_size <= SEED_BYTES:
            shutil.copy(path, folder / f"{number}{path.suffix}")
        shutil.rmtree(place)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_readers_survive_what_nobody_thought_of(tmp_path: Path) -> None:
    """Good files and hostile ones with a few changes, many of them inside their zips."""
    seeds(tmp_path / "seeds")
    pool = [(path.name, path.read_bytes()) for path in sorted((tmp_path / "seeds").iterdir())]
    chance, others = random.Random(1), [content for _, content in pool]
    for number in range(COUNT):
        name, content = chance.choice(pool)
        change = changed_inside if content[:2] == b"PK" and chance.random() < 0.7 else changed
        place = tmp_path / "cases" / f"{number} document {name}"  # whose library is loaded first
        place.mkdir(parents=True)
        (place / name).write_bytes(change(content, others, chance))
    found = probed(tmp_path / "cases", "few")  # fails, too, where a reader dies of a signal
    assert len(found) == COUNT
    wrong = {
        name: case
        for name, case in found.items()
        if case["heard"] or case["grown_bytes"] > MEMORY_CAP_BYTES or case["cpu_s"] > CPU_CAP_S
    }
    assert wrong == {}
    assert not list(tmp_path.rglob("canary"))
