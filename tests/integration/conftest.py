import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sample_models.build
from unifiednn_core.home import Home
from unifiednn_core.service import Service


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample models, their data and the demo."""
    folder = tmp_path_factory.mktemp("samples")
    sample_models.build.main(folder)
    return folder


@pytest.fixture
def short_demo(samples: Path, tmp_path: Path) -> Path:
    """The demo cut down to a few epochs, as a spec file beside its samples."""
    return write_spec(samples, tmp_path, epochs={"lenet": 3, "resnet": 2, "transformer": 2})


def write_spec(samples: Path, folder: Path, *, epochs: dict[str, int], **changes: Any) -> Path:
    document: dict[str, Any] = json.loads((samples / "demo.json").read_text())
    document.update(changes)
    for submodel in document["submodels"]:
        submodel["hyperparameters"]["epochs"] = epochs[submodel["name"]]
        if submodel["name"] == "transformer":  # one cycle ends with its last step
            submodel["hyperparameters"]["lr_scheduler"]["args"]["total_steps"] = 23 * epochs["transformer"]
        for key in ("model", "train_data", "test_data"):
            submodel[key] = str(samples / submodel[key])
    path = folder / "spec.json"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def service(home: Home) -> Iterator[Service]:
    service = Service.open(home)
    service.start_supervisor()
    yield service
    for run in service.runs():
        if run.ended_at_s is None:
            service.stop(run.run_id)
    wait_until(lambda: all(run.ended_at_s is not None for run in service.runs()))
    service.close()


def wait_until(done: Any, patience_s: float = 90.0) -> None:
    """Wait for something that other processes do; a test that waits in vain fails."""
    import time

    deadline = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > deadline:
            pytest.fail(f"nothing happened for {patience_s} s")
        time.sleep(0.1)
