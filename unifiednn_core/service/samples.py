"""The sample models and the demo that trains them."""

import subprocess
import sys
from pathlib import Path

from unifiednn_core.base.errors import SamplesFailed
from unifiednn_core.base.paths import Home, application
from unifiednn_core.service import submission
from unifiednn_core.spec.run import RunSpec, load_run

SAMPLES = application() / "sample_models"
PATIENCE_S = 300


def demo(home: Home) -> RunSpec:
    """Return the demo, ready to submit. Raises `SamplesFailed`.

    Uses the sample files of a clone when `make samples` has written them; else it writes them into the home folder.
    """
    spec = load_run(SAMPLES / "demo.json")
    names = {name for part in spec.submodels for name in (part.model, part.train_data, part.test_data) if name}
    folder = next((place for place in (SAMPLES, home.samples) if _complete(place, names)), home.samples)
    if not _complete(folder, names):
        command = [sys.executable, str(SAMPLES / "build.py"), str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
        except (OSError, subprocess.SubprocessError) as error:
            message = f"The sample models could not be written to {folder} ({error})."
            raise SamplesFailed(f"{message} Free disk space or check permissions.") from error
    return submission.with_files(spec, {name: str(folder / name) for name in names})


def _complete(folder: Path, names: set[str]) -> bool:
    return all((folder / name).is_file() for name in names)
