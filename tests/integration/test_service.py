import csv
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.clean import accuracies_in_a_clean_process
from tests.integration.conftest import write_spec
from tests.integration.vanilla import train_alone
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput, IllegalTransition, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, load_run


def lenet_alone(samples: Path, folder: Path, epochs: int) -> RunSpec:
    """The smallest of the demo, for tests to which a run of one network is as good as any."""
    spec = load_run(write_spec(samples, folder, epochs=dict.fromkeys(("lenet", "resnet", "transformer"), epochs)))
    return spec.model_copy(update={"submodels": spec.submodels[:1]})


def finish(service: Service, run_id: str) -> None:
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)


@pytest.fixture(scope="module")
def vanilla_hashes(samples: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = write_spec(samples, tmp_path_factory.mktemp("vanilla"), epochs={"lenet": 3, "resnet": 2, "transformer": 2})
    spec = json.loads(path.read_text())
    return {name: train_alone(spec, name, samples).state_sha256 for name in ("lenet", "resnet", "transformer")}


@pytest.mark.long  # the next test trains with the policy of the demo
@pytest.mark.parametrize("policy", ["fcfs", "round_robin", "priority", "sjf"])
def test_every_sample_comes_back_with_the_bits_of_a_plain_loop(
    service: Service, short_demo: Path, vanilla_hashes: dict[str, str], policy: str
) -> None:
    """Through the whole product: intake, worker process, engine, separator, store."""
    spec = load_run(short_demo)
    run_id = service.runs.submit(spec.model_copy(update={"policy": spec.policy.model_copy(update={"name": policy})}))
    finish(service, run_id)
    view = service.runs.observe(run_id)
    assert view.state is State.COMPLETED
    assert {part.name: part.state_sha256 for part in view.submodels} == vanilla_hashes
    document = service.runs.document(run_id)
    assert document["policy"] == policy
    assert document["status"] == "completed"


@pytest.mark.slow
def test_a_separated_model_has_the_bits_of_a_plain_loop_and_loads_with_torch_alone(
    service: Service, short_demo: Path, vanilla_hashes: dict[str, str], samples: Path, tmp_path: Path
) -> None:
    run_id = service.runs.submit(load_run(short_demo))
    finish(service, run_id)
    parts = service.runs.observe(run_id).submodels
    for part in parts:
        assert part.state_sha256 == vanilla_hashes[part.name]
        folder = tmp_path / part.name
        with zipfile.ZipFile(service.runs.artifact(run_id, part.name)) as archive:
            archive.extractall(folder)
        assert {"weights.safetensors", "metrics.csv", "spec.json", "load.py"} <= {
            path.name for path in folder.iterdir()
        }
        rows = list(csv.DictReader(io.StringIO((folder / "metrics.csv").read_text())))
        assert len(rows) == part.epochs
        assert float(rows[-1]["test_accuracy"]) == part.test_accuracy
        spec = json.loads((folder / "spec.json").read_text())
        assert spec["submodels"][0]["name"] == part.name
    told = accuracies_in_a_clean_process([tmp_path / part.name for part in parts], samples / "digits_test.pt")
    assert told == [part.test_accuracy for part in parts]


@pytest.mark.slow
def test_pause_resume_and_stop_reach_the_worker(service: Service, samples: Path, tmp_path: Path) -> None:
    path = write_spec(samples, tmp_path, epochs={"lenet": 400, "resnet": 400, "transformer": 400})
    run_id = service.runs.submit(load_run(path))

    def state(name: str | None = None) -> State:
        view = service.runs.observe(run_id)
        return view.state if name is None else next(p.state for p in view.submodels if p.name == name)

    wait_until(lambda: all(part.steps_done for part in service.runs.observe(run_id).submodels))
    assert service.runs.pause(run_id, "lenet") is State.PAUSING
    wait_until(lambda: state("lenet") is State.PAUSED)
    with pytest.raises(IllegalTransition):
        service.runs.pause(run_id, "lenet")
    before = {part.name: part.steps_done for part in service.runs.observe(run_id).submodels}
    wait_until(
        lambda: all(
            part.steps_done > before[part.name]
            for part in service.runs.observe(run_id).submodels
            if part.name != "lenet"
        )
    )
    assert next(p.steps_done for p in service.runs.observe(run_id).submodels if p.name == "lenet") == before["lenet"]
    service.runs.resume(run_id, "lenet")
    wait_until(lambda: state("lenet") is State.RUNNING)

    service.runs.pause(run_id)
    wait_until(lambda: state() is State.PAUSED)
    service.runs.resume(run_id)
    wait_until(lambda: state() is State.RUNNING)

    service.runs.stop(run_id, "resnet")
    wait_until(lambda: state("resnet") is State.STOPPED)
    assert service.runs.artifact(run_id, "resnet").is_file()
    service.runs.stop(run_id)
    wait_until(lambda: state() is State.STOPPED)
    view = service.runs.observe(run_id)
    assert {part.state for part in view.submodels} == {State.STOPPED}
    assert all(part.artifact for part in view.submodels)
    assert [t.submodel for t in service.runs.trained()].count("resnet") == 1
    with pytest.raises(IllegalTransition):
        service.runs.resume(run_id)


@pytest.mark.long  # test_recovery.py kills servers, too
def test_training_outlives_the_service_that_started_it(home: Home, samples: Path, tmp_path: Path) -> None:
    """A server process submits and is killed; the next one shows the run where it now is."""
    path = write_spec(samples, tmp_path, epochs={"lenet": 300, "resnet": 300, "transformer": 300})
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time\n"
            "from pathlib import Path\n"
            "from unifiednn_core.base.paths import Home\n"
            "from unifiednn_core.service.facade import Service\n"
            "from unifiednn_core.spec.run import load_run\n"
            "service = Service.open(Home(Path(sys.argv[1])))\n"
            "run_id = service.runs.submit(load_run(Path(sys.argv[2])))\n"
            "service.start_supervisor()\n"
            "print(run_id, flush=True)\n"
            "time.sleep(600)\n",
            str(home.root),
            str(path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    run_id = server.stdout.readline().strip()
    service = Service.open(home)
    try:
        wait_until(lambda: service.runs.observe(run_id).state is State.RUNNING)
        server.kill()
        server.wait()
        before = service.runs.observe(run_id).progress
        service.start_supervisor()
        wait_until(lambda: service.runs.observe(run_id).progress > before)
        assert service.runs.observe(run_id).state is State.RUNNING
        service.runs.stop(run_id)
        finish(service, run_id)
        assert service.runs.observe(run_id).state is State.STOPPED
    finally:
        server.stdout.close()
        service.close()


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
def test_runs_for_one_device_wait_for_each_other(service: Service, samples: Path, tmp_path: Path) -> None:
    spec = lenet_alone(samples, tmp_path, epochs=1)
    first, second = service.runs.submit(spec), service.runs.submit(spec)
    assert {view.run_id: view.queue_position for view in service.runs.runs()}[second] in (1, 2)
    finish(service, second)
    one, two = service.runs.observe(first), service.runs.observe(second)
    assert (one.state, two.state) == (State.COMPLETED, State.COMPLETED)
    assert one.ended_at_s is not None and two.started_at_s is not None
    assert one.ended_at_s <= two.started_at_s


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


def test_bad_input_is_refused_whole(service: Service, short_demo: Path, tmp_path: Path) -> None:
    spec = load_run(short_demo)
    broken = tmp_path / "broken.pt2"
    broken.write_bytes(b"not a model")
    submodels = (spec.submodels[0].model_copy(update={"model": str(broken)}), *spec.submodels[1:])
    with pytest.raises(BadInput) as raised:
        service.runs.submit(spec.model_copy(update={"submodels": submodels}))
    assert [f.field for f in raised.value.findings] == ["submodels.lenet.model"]
    assert service.runs.runs() == ()
    with pytest.raises(BadInput) as raised:
        service.runs.submit(spec.model_copy(update={"policy": spec.policy.model_copy(update={"name": "magic"})}))
    assert raised.value.findings[0].field == "policy.name"
    assert "round_robin" in str(raised.value)


def test_what_is_not_there_is_said(service: Service) -> None:
    with pytest.raises(NotFound):
        service.runs.observe("nothing")
    with pytest.raises(NotFound):
        service.runs.artifact("nothing", "lenet")


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


def test_the_server_side_never_loads_torch() -> None:
    modules = "unifiednn_core.service.facade, unifiednn_core.cli.main"
    code = f"import sys, {modules}\nassert 'torch' not in sys.modules, 'torch'\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
