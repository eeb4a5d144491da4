import os
import signal
from pathlib import Path

import pytest

from tests.integration.conftest import write_spec
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, load_run


def lenet_alone(samples: Path, folder: Path, epochs: int) -> RunSpec:
    """The smallest of the demo, for tests to which a run of one network is as good as any."""
    spec = load_run(write_spec(samples, folder, epochs=dict.fromkeys(("lenet", "resnet", "transformer"), epochs)))
    return spec.model_copy(update={"submodels": spec.submodels[:1]})


def finish(service: Service, run_id: str) -> None:
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)


@pytest.mark.slow
def test_a_killed_worker_is_noticed_and_named(service: Service, samples: Path, tmp_path: Path) -> None:
    epochs = {"lenet": 300, "resnet": 300, "transformer": 300}
    run_id = service.runs.submit(load_run(write_spec(samples, tmp_path, epochs=epochs, recovery="ask")))
    wait_until(lambda: service.runs.observe(run_id).state is State.RUNNING)
    worker_pid = service.store.hybrids.get(run_id)[0].worker_pid
    assert worker_pid is not None
    os.kill(worker_pid, signal.SIGKILL)
    finish(service, run_id)
    view = service.runs.observe(run_id)
    assert view.state is State.INTERRUPTED
    assert {part.state for part in view.submodels} == {State.INTERRUPTED}
    assert view.cause is not None and str(worker_pid) in view.cause
    assert view.remedy


@pytest.mark.slow
def test_a_run_is_paused_resumed_and_stopped_while_it_waits(service: Service, samples: Path, tmp_path: Path) -> None:
    long, short = (lenet_alone(samples, tmp_path, epochs=epochs) for epochs in (300, 1))
    first, second, third = service.runs.submit(long), service.runs.submit(short), service.runs.submit(short)
    service.runs.pause(second)
    wait_until(lambda: service.runs.observe(second).state is State.PAUSED)
    service.runs.stop(third)
    wait_until(lambda: service.runs.observe(third).state is State.STOPPED)
    service.runs.resume(second)
    service.runs.stop(first)
    finish(service, second)
    assert service.runs.observe(second).state is State.COMPLETED
    assert not [event for event in service.runs.observe(second).events if event.kind == "defect"]


@pytest.mark.slow
def test_a_full_disk_loses_no_weights_and_leaves_nothing_half_written(
    service: Service, short_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for models is made unwritable for a while: separation waits, then completes."""
    run_id = service.runs.submit(load_run(short_demo))
    blocker = service.home.run(run_id) / "models"
    blocker.parent.mkdir(parents=True, exist_ok=True)
    blocker.write_text("in the way")
    wait_until(lambda: any(event.kind == "warning" for event in service.runs.observe(run_id).events))
    assert not any(part.artifact for part in service.runs.observe(run_id).submodels)
    blocker.unlink()
    finish(service, run_id)
    view = service.runs.observe(run_id)
    assert view.state is State.COMPLETED
    assert all(part.artifact for part in view.submodels)
    assert not [path for path in blocker.iterdir() if path.name.startswith(".")]


def test_an_uploaded_file_joins_the_library_or_leaves_no_trace(service: Service, samples: Path) -> None:
    content = (samples / "lenet.pt2").read_bytes()
    view = service.library.import_file("my lenet.pt2", [content[:1000], content[1000:]])
    assert (view.kind, view.filename, view.format) == ("model", "my lenet.pt2", "pt2")
    assert service.home.file(view.sha256).read_bytes() == content
    with pytest.raises(BadInput):
        service.library.import_file("../../evil.pt2", [b"PK\x03\x04", b"rubbish"])
    with pytest.raises(BadInput, match="holds model, but data is needed here"):
        service.library.import_file("lenet.pt2", [content], ["data"])
    assert [file.sha256 for file in service.library.files()] == [view.sha256]
    assert list(service.home.quarantine.iterdir()) == []


def test_the_demo_is_one_call_away(service: Service) -> None:
    spec = service.library.prepare_samples()
    assert [submodel.name for submodel in spec.submodels] == ["lenet", "resnet", "transformer"]
    assert all(Path(submodel.model).is_file() for submodel in spec.submodels)
    run_id = service.runs.submit(spec)
    assert {file.filename: file.kind for file in service.library.files()} == {
        "lenet.pt2": "model",
        "resnet.safetensors": "weights",
        "transformer.pt2": "model",
        "digits_train.pt": "data",
        "digits_test.pt": "data",
    }
    service.runs.stop(run_id)
