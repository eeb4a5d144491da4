"""Bytes that nobody thought of: readers survive them, and nothing of them runs."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch import nn

from tests.hostile.corpus import CORPUS, archives, documents, images, pickles, tables
from tests.hostile.fuzz import READERS, Edges
from tests.unit.formats import kit
from unifiednn_core.data import cells
from unifiednn_core.formats import zips

ROOT = Path(__file__).parents[2]
MEMORY_CAP_BYTES = 512 * 1024**2
CPU_CAP_S = 30.0
SEED_BYTES = 256 * 1024


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


def test_the_fuzzer_is_led_by_the_rooms_that_read() -> None:
    """A room that was renamed would leave it blind."""
    assert [room for room in READERS if not (ROOT / room).is_dir()] == []
    seen = Edges()
    assert seen.run(partial(cells.is_number, "1")) > 0
    assert seen.run(partial(cells.is_number, "1")) == 0
    assert seen.run(partial(zips.is_zip, Path(__file__))) > 0
    assert seen.run(partial(kit.network, "cnn")) == 0


SECONDS = 240


@pytest.mark.long
@pytest.mark.timeout(600)
def test_readers_survive_what_nobody_thought_of(tmp_path: Path) -> None:
    seeds(tmp_path / "seeds")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz", str(tmp_path / "seeds"), str(SECONDS), "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]  # a negative one is the signal that a reader died of
    found = json.loads(done.stdout)
    assert found["heard"] == []
    assert found["tried"] > 0
    assert found["edges"] >= found["edges_at_first"] > 0
    assert found["grown_bytes"] < MEMORY_CAP_BYTES
    assert found["slowest_s"] < CPU_CAP_S
    assert not list(tmp_path.rglob("canary"))
