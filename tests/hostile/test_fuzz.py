"""Bytes that nobody thought of: readers survive them, and nothing of them runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.hostile.corpus import CORPUS, archives, data, documents, pickles
from tests.unit.intake import kit

ROOT = Path(__file__).parents[2]
MEMORY_CAP_BYTES = 512 * 1024**2
SEED_BYTES = 256 * 1024


def seeds(folder: Path) -> None:
    """Good files of every format, and the small ones of the corpus: they are where it breaks."""
    folder.mkdir()
    shutil.copy(archives.good(), folder / "good.pt2")
    torch.save(pickles.network(), folder / "module.pt")
    torch.save(kit.network("cnn").state_dict(), folder / "weights.pt")
    torch.save({"inputs": torch.randn(9, 2), "targets": torch.arange(9) % 3}, folder / "data.pt")
    documents._layers(["Linear", {"in_features": 2, "out_features": 2}])(folder)
    data._images(("cat/1.png", data.SMALL), ("dog/1.png", data.SMALL))(folder)
    (folder / "data.csv").write_bytes(b"a,b,target\n" + b"1,2,0\n2,1,1\n" * 4)
    for number, make in enumerate(CORPUS.values()):
        place = folder.parent / f"case{number}"
        place.mkdir()
        path = make(place)
        if path.stat().st_size <= SEED_BYTES:
            shutil.copy(path, folder / f"{number}{path.suffix}")
        shutil.rmtree(place)


LONG = pytest.param(240, id="long", marks=[pytest.mark.long, pytest.mark.timeout(600)])


@pytest.mark.parametrize("seconds", [pytest.param(3, id="short"), LONG])
def test_readers_survive_what_nobody_thought_of(seconds: int, tmp_path: Path) -> None:
    seeds(tmp_path / "seeds")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.fuzz", str(tmp_path / "seeds"), str(seconds), "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]  # a negative one is the signal that a reader died of
    found = json.loads(done.stdout)
    assert found["heard"] == []
    assert found["tried"] > 0
    assert found["edges"] >= found["edges_at_first"] > 0
    assert found["grown_bytes"] < MEMORY_CAP_BYTES
    assert not list(tmp_path.rglob("canary"))
