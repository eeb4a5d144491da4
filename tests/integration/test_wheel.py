"""A wheel that is installed outside the clone serves the dashboard, trains the demo and hands its models out."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRAIN = """
import sys
from pathlib import Path
from unifiednn_core.base.paths import application
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED
import time
service = Service.open()
spec = service.library.prepare_samples()
parts = tuple(part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update={"epochs": 1})})
              for part in spec.submodels[:1])
run_id = service.runs.submit(spec.model_copy(update={"submodels": parts}))
service.start_supervisor()
while service.runs.observe(run_id).state not in ENDED:
    time.sleep(0.1)
print(service.runs.download(run_id, parts[0].name, Path.cwd()))
print(all((application() / name).is_file() for name in ("app.py", "pages/now.py", ".streamlit/config.toml")))
service.close()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Python of a clean environment with the wheel; the other packages are those of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--wheel-dir", folder, ROOT], check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", site, wheel], check=True, capture_output=True)
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # below the wheel; no editable install
    yield python


def contents(python: Path) -> dict[str, str]:
    """SHA-256 of every installed file of the package."""
    [package] = (python.parents[1] / "lib").glob("python*/site-packages/unifiednn_core")
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(package)): sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.long
def test_an_installed_wheel_trains_the_demo_and_is_left_as_it_was(python: Path, tmp_path: Path) -> None:
    before = contents(python)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"UNIFIEDNN_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, "-c", TRAIN], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    archive, complete = done.stdout.split()
    assert Path(archive).is_file()
    assert complete == "True"
    assert contents(python) == before
