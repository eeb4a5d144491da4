"""Data sets are mapped: reading one takes little memory, however large it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.unit.data import data_files as made

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MIB = 1024**2
SAMPLES, SIDE = 1600, 128
SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import torch
from unifiednn_core.data.conversion import convert
from unifiednn_core.data.values import ImportOptions, SplitPlan
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.data.preview import preview
from unifiednn_core.data.conversion import split

torch.set_num_threads(1)
folder = Path(sys.argv[1])
small = read_dataset(folder / "small.pt")
preview(folder / "small.pt", small)  # what is imported on the way is there from here on


def status(name):
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


grown = {}
for name in sys.argv[2:]:
    for step in ("convert",) if name == "packed.zip" else ("read", "split"):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = status("VmRSS")
        if step == "read":
            dataset = read_dataset(folder / name)
            preview(folder / name, dataset)
            assert len(dataset.first) == len(dataset.targets) == 1600
            del dataset
        elif step == "convert":
            convert(folder / name, folder / "converted", ImportOptions(size=300))
            assert (folder / "converted").stat().st_size > 100 * 2**20
        else:
            split(folder / name, SplitPlan(test_share=0.4), folder)
        grown[f"{step} {name}"] = status("VmHWM") - before
print(json.dumps(grown))
"""


def test_reading_and_splitting_a_large_file_takes_little_memory(tmp_path: Path) -> None:
    data = {"inputs": torch.randn(SAMPLES, SIDE, SIDE), "targets": torch.arange(SAMPLES) % 2}
    torch.save(data, tmp_path / "large.pt")
    save_file(data, tmp_path / "large.safetensors")
    np.savez(tmp_path / "large.npz", **{name: tensor.numpy() for name, tensor in data.items()})
    torch.save({"inputs": torch.rand(4, 1, 8, 8), "targets": torch.arange(4)}, tmp_path / "small.pt")
    names = ["large.pt", "large.safetensors", "large.npz"]
    assert all((tmp_path / name).stat().st_size >= 100 * MIB for name in names)
    masks = (torch.arange(SAMPLES * SIDE * SIDE).view(SAMPLES, SIDE, SIDE) % 3).to(torch.uint8)
    save_file({"inputs": torch.zeros(SAMPLES, 1), "targets": masks}, tmp_path / "masks")  # 200 MiB as int64
    names.append("masks")
    picture = made.picture(made.pixels(1, 3, 16)[0])
    names.append(made.zipped(tmp_path / "packed.zip", {f"c/{n}.png": picture for n in range(500)}).name)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *names],
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    grown = json.loads(done.stdout)
    assert len(grown) == 2 * len(names) - 1
    most = {
        name: 100 if name.endswith("masks") else 50 for name in grown
    }  # of masks, with the pages of the file itself
    assert {name: size / MIB for name, size in grown.items() if size >= most[name] * MIB} == {}
