"""The sample models and the demo that trains them."""

import subprocess
import sys
from pathlib import Path

from unifiednn_core import submission
from unifiednn_core.errors import SamplesFailed
from unifiednn_core.spec import RunSpec, load_run

SAMPLES = Path(__file__).parent.parent / "sample_models"
PATIENCE_S = 300


def demo() -> RunSpec:
    """The demo, ready to submit; its files are written where they are missing. Raises `SamplesFailed`."""
    spec = load_run(SAMPLES / "demo.json")
    named = {name for part in spec.submodels for name in (part.model, part.train_data, part.test_data) if name}
    if not all((SAMPLES / name).is_file() for name in named):
        _build()
    return submission.with_files(spec, {name: str(SAMPLES / name) for name in named})


def _build() -> None:
    command = [sys.executable, "-m", "sample_models.build"]
    try:
        subprocess.run(command, cwd=SAMPLES.parent, check=True, capture_output=True, timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise SamplesFailed(f"The sample models could not be written ({error}). Run: make samples") from error
