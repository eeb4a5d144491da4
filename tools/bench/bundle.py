"""Prepares what a machine with a GPU and no network lacks: `python -m tools.bench.bundle --data FOLDER`.

Into `.gpu/` go wheels for its Python (whatever the core imports, but for torch, numpy and CUDA, which are large and are
there) and the data of the workloads, with fewer CIFAR-10 images so that all of it stays small enough to be carried.
"""

import argparse
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tools.machine import commit

BUNDLE = Path(".gpu")
MOST_BYTES = 60 * 1024**2
CIFAR10_IMAGES = 9_469  # as many as Imagenette has
PACKAGES = (
    "annotated-doc", "annotated-types", "greenlet", "nvidia-ml-py", "psutil", "pydantic", "pydantic-core",
    "rich", "safetensors", "shellingham", "SQLAlchemy", "typer", "typing-extensions", "typing-inspection",
    "click", "markdown-it-py", "mdurl", "Pygments",
)  # fmt: skip
"""What the core and the benches import, and what that imports."""
COPIED = ("mnist.npz", "sst2_train.tsv", "sst2_dev.tsv", "wikitext2_valid.txt", "wikitext2_test.txt")
CIFAR10 = "cifar10_12k.npz"


def fetch_wheels(to: Path, python: str) -> None:
    """Download wheels of the versions that are installed here, for another Python on 64-bit x86 Linux."""
    glibc = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 12, 5)]
    platforms = [*glibc, "--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"]
    wanted = [f"{name}=={version(name)}" for name in PACKAGES]
    options = ["--quiet", "--no-deps", "--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options, *platforms]
    subprocess.run([*command, f"--dest={to}", *wanted], check=True)


def take_data(folder: Path, to: Path) -> None:
    """Copy the data of the workloads, with fewer images; raises `OSError` if a file is not there."""
    for name in COPIED:
        shutil.copyfile(folder / name, to / name)
    with np.load(folder / CIFAR10, allow_pickle=False) as file:
        fewer = {
            name: file[name][:CIFAR10_IMAGES] if name.startswith("train_") else file[name]
            for name in file.files
            if name.startswith(("train_", "test_"))
        }
    np.savez_compressed(to / CIFAR10, **fewer)


def main(folder: Path, bundle: Path, python: str) -> int:
    """Make the bundle anew; returns its size in bytes."""
    shutil.rmtree(bundle, ignore_errors=True)
    for part in ("wheels", "data"):
        (bundle / part).mkdir(parents=True)
    fetch_wheels(bundle / "wheels", python)
    take_data(folder, bundle / "data")
    (bundle / "COMMIT").write_text(f"{commit() or 'unknown'}\n", encoding="utf-8")
    return sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.bench.bundle", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data of the workloads")
    parser.add_argument("--to", type=Path, default=BUNDLE, help="folder of the bundle; it is made anew")
    parser.add_argument("--python", default="3.12", help="version of the Python that the machine has")
    asked = parser.parse_args()
    size_bytes = main(asked.data, asked.to, asked.python)
    sys.stdout.write(f"{asked.to}: {size_bytes / 1024**2:.1f} MiB\n")
    if size_bytes > MOST_BYTES:
        sys.exit(f"That is more than {MOST_BYTES // 1024**2} MiB; take fewer images (CIFAR10_IMAGES).")
