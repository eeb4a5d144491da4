"""Baselines as whole runs: runner, scripts and store are real, and processes are killed at will."""

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from tests.integration.baseline_kit import Baseline
from tests.integration.product import STEPS_PER_EPOCH, Template, timeless
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.machine.host import PROCESS_PSS
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.store.commands import Verb

LONG = 10_000  # epochs: more than any test waits for


@pytest.fixture
def baseline(template: Template, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Baseline]:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    shutil.copytree(template.home.root, home.root, dirs_exist_ok=True)
    baseline = Baseline(home, template.run_id)
    yield baseline
    baseline.close()


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
@pytest.mark.new_interpreters
def test_a_concurrent_baseline_ends_with_the_hybrid_s_bits_and_its_own_figures(
    baseline: Baseline, uninterrupted: dict[str, Any], alone: Callable[..., str]
) -> None:
    names = ("lenet", "resnet")  # test_baseline_script.py trains the transformer
    for answer in baseline.home.answers.iterdir():
        answer.unlink()  # the runner asks torch itself, in an intake process of its own
    run = baseline.prepare("concurrent", names, {}).start().finish()
    assert run.state is State.COMPLETED
    document = timeless(baseline.service.runs.document(baseline.run_id))
    for name in names:
        ours, hybrid = document["submodels"][name], uninterrupted["submodels"][name]
        assert ours["state_sha256"] == hybrid["state_sha256"] == alone(name)
        for figure in ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "epochs", "steps"):
            assert ours[figure] == hybrid[figure]
    slices, launched_at_s = baseline.slices(), baseline.hybrid.launched_at_s or 0.0
    assert max(start_s for start_s, _, _ in slices.values()) < min(end_s for _, end_s, _ in slices.values())
    for name, part in baseline.parts.items():
        start_s, end_s, steps = slices[name]
        assert steps == part.steps_done == part.steps_total
        assert part.ended_at_s == pytest.approx(launched_at_s + end_s)
        assert part.service_s == pytest.approx(end_s - start_s)
        assert part.cpu_s is not None and part.cpu_s > 0
        assert part.peak_memory_bytes is not None and part.peak_memory_bytes > 50_000_000
        assert (
            state_sha256(load_file(baseline.home.run(baseline.run_id) / (part.model_path or ""))) == part.state_sha256
        )
        assert part.artifact is None
    assert baseline.hybrid.cpu_s == pytest.approx(sum(part.cpu_s or 0 for part in baseline.parts.values()))
    assert baseline.hybrid.memory_source == PROCESS_PSS
    sampled = baseline.rows("SELECT max(size_bytes), count(*) FROM memory_samples WHERE hybrid_id = ?")
    assert (
        sampled[0][0]
        == baseline.hybrid.peak_memory_bytes
        > max(p.peak_memory_bytes or 0 for p in baseline.parts.values())
    )
    assert baseline.hybrid.environment["threads"] == 1
    for told in baseline.view.processes.values():
        assert told["threads"] == 1
        assert 0 < told["loader_cpu_s"] < 60 and 0 < told["loader_s"] < 60
    assert baseline.hybrid.started_at_s == baseline.row.launched_at_s
    answers = {name: report.answer for name, report in baseline.view.oracle.items()}
    assert answers == {"lenet": "same", "resnet": "not applicable"}
    assert not baseline.said("defect")


@pytest.mark.slow
def test_curves_of_a_baseline_are_those_of_single_steps_and_epochs(baseline: Baseline) -> None:
    run = baseline.prepare("sequential", ("resnet", "lenet"), {"resnet": 1, "lenet": 1}).start().finish()
    assert run.state is State.COMPLETED
    for part in run.submodels:
        count = STEPS_PER_EPOCH[part.name]
        assert list(part.loss.x) == [step / count for step in range(1, count + 1)]
        assert all(math.isfinite(loss) for loss in part.loss.y)
        assert len(part.accuracy.y) == count
        assert list(part.test_accuracy_curve.y) == [part.test_accuracy]
        assert list(part.test_loss_curve.y) == [part.test_loss]
    (first, second) = baseline.slices().items()
    assert (first[0], second[0]) == ("resnet", "lenet")
    assert first[1][1] <= second[1][0]
    assert [part.reason for part in sorted(run.schedule, key=lambda part: part.start_s) if part.steps] == [
        "resnet came first.",
        "resnet has ended; lenet is next.",
    ]


def test_a_script_that_is_killed_fails_alone_and_so_does_the_run(baseline: Baseline, alone: Callable[..., str]) -> None:
    baseline.prepare("concurrent", ("lenet", "resnet"), {"resnet": LONG}).start()
    baseline.until_trained("resnet")
    os.kill(baseline.scripts()["resnet"], signal.SIGKILL)
    run = baseline.finish()
    assert baseline.states() == {"lenet": State.COMPLETED, "resnet": State.FAILED}
    assert baseline.parts["lenet"].state_sha256 == alone("lenet")
    resnet = baseline.parts["resnet"]
    assert resnet.cause is not None and "killed by signal 9 (SIGKILL), most likely out of memory" in resnet.cause
    assert resnet.remedy is not None and resnet.remedy.startswith("The sequential baseline")
    assert (resnet.cpu_s or 0) > 0
    assert (run.state, run.cause) == (State.FAILED, "resnet failed; the results of the others are kept.")


@pytest.mark.slow
def test_a_runner_that_is_killed_takes_its_scripts_along_and_the_next_begins_anew(
    baseline: Baseline, alone: Callable[..., str]
) -> None:
    baseline.prepare("sequential", ("lenet", "resnet"), {"lenet": 1, "resnet": 24}).start()
    baseline.until_trained("resnet")
    first, [script] = baseline.hybrid, baseline.scripts().values()
    assert baseline.states()["lenet"] is State.COMPLETED
    os.kill(first.worker_pid or 0, signal.SIGKILL)
    wait_until(lambda: gone(script))
    run = baseline.finish()
    assert (run.state, baseline.hybrid.attempt) == (State.COMPLETED, 2)
    assert (baseline.hybrid.launched_at_s or 0.0) > (first.launched_at_s or math.inf)
    for name, epochs in (("lenet", 1), ("resnet", 24)):
        assert baseline.parts[name].state_sha256 == alone(name, epochs)
        assert baseline.parts[name].attempt == 1
        assert baseline.slices()[name][2] == epochs * STEPS_PER_EPOCH[name]
    steps = baseline.rows("SELECT submodel, step FROM step_metrics WHERE run_id = ?")
    assert len(set(steps)) == len(steps) == 23 + 24 * 12
    end_s = max(end_s for _, end_s, _ in baseline.slices().values())
    assert all(
        0 <= at_s <= end_s + 1 for (at_s,) in baseline.rows("SELECT at_s FROM memory_samples WHERE hybrid_id = ?")
    )
    assert "The baseline starts again: a measurement has to run in one piece." in baseline.said("recovery")


def test_a_stopped_baseline_ends_its_scripts_and_leaves_no_weights(baseline: Baseline) -> None:
    baseline.prepare("concurrent", ("lenet", "resnet"), {"lenet": LONG, "resnet": LONG}).start()
    baseline.until_trained("lenet")
    scripts = baseline.scripts()
    assert scripts.keys() == {"lenet", "resnet"}
    baseline.service.runs.stop(baseline.run_id)
    assert baseline.finish().state is State.STOPPED
    assert set(baseline.states().values()) == {State.STOPPED}
    assert all(gone(pid) for pid in scripts.values())
    assert list((baseline.home.run(baseline.run_id) / "models").iterdir()) == []
    assert baseline.slices()["lenet"][2] == baseline.parts["lenet"].steps_done > 0
    assert baseline.store.commands.open(baseline.run_id) == []


def test_a_stop_outlives_the_runner_that_was_to_obey_it(baseline: Baseline) -> None:
    baseline.prepare("concurrent", ("lenet", "resnet"), {"lenet": LONG, "resnet": LONG}).start()
    baseline.until_trained("lenet")
    pid, scripts = baseline.hybrid.worker_pid or 0, baseline.scripts()
    os.kill(pid, signal.SIGSTOP)
    baseline.service.runs.stop(baseline.run_id)
    os.kill(pid, signal.SIGKILL)
    assert baseline.finish().state is State.STOPPED
    assert set(baseline.states().values()) == {State.STOPPED}
    assert all(gone(script) for script in scripts.values())
    assert baseline.hybrid.attempt == 2


def test_a_baseline_takes_no_other_orders(baseline: Baseline) -> None:
    baseline.prepare("concurrent", ("lenet",), {"lenet": LONG}).start()
    baseline.until_trained("lenet")
    for verb in (Verb.PAUSE, Verb.SAVE):
        with pytest.raises(BadInput, match=f"does not accept '{verb}'"):
            baseline.store.commands.issue(baseline.run_id, None, verb)
    assert State(baseline.row.state) is State.RUNNING


@pytest.mark.slow
def test_one_of_a_baseline_is_stopped_and_the_others_go_on(baseline: Baseline, alone: Callable[..., str]) -> None:
    baseline.prepare("sequential", ("lenet", "resnet", "transformer"), {"lenet": LONG, "resnet": 1}).start()
    baseline.until_trained("lenet")
    baseline.store.commands.issue(baseline.run_id, "transformer", Verb.STOP)  # it has not begun
    wait_until(lambda: baseline.states()["transformer"] is State.STOPPED)
    baseline.store.commands.issue(baseline.run_id, "lenet", Verb.DISCARD)
    assert baseline.finish().state is State.COMPLETED
    assert baseline.states() == {"lenet": State.STOPPED, "resnet": State.COMPLETED, "transformer": State.STOPPED}
    assert baseline.parts["resnet"].state_sha256 == alone("resnet", 1)
    assert baseline.slices().keys() == {"lenet", "resnet"}


def test_a_model_that_cannot_be_read_fails_alone_with_its_reason(baseline: Baseline, alone: Callable[..., str]) -> None:
    baseline.prepare("concurrent", ("lenet", "resnet"), {"resnet": 1})
    [part] = [part for part in baseline.row.spec["submodels"] if part["name"] == "lenet"]
    model = baseline.home.file(part["model"].removeprefix("sha256:"))
    model.write_bytes(model.read_bytes()[:1000])
    run = baseline.start().finish()
    assert run.state is State.FAILED
    assert baseline.states() == {"lenet": State.FAILED, "resnet": State.COMPLETED}
    cause, remedy = baseline.parts["lenet"].cause or "", baseline.parts["lenet"].remedy or ""
    assert "The file is damaged" in cause
    assert f"runs/{baseline.run_id}/baseline/lenet.log in the home folder" in remedy
    assert baseline.parts["resnet"].state_sha256 == alone("resnet", 1)


def test_a_store_that_is_locked_for_a_while_costs_nothing(
    baseline: Baseline, alone: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNIFIEDNN_FAULT", "store.before_commit=locked@9")  # of the runner; the scripts have no store
    run = baseline.prepare("sequential", ("lenet",), {"lenet": 2}).start().finish()
    assert (run.state, baseline.hybrid.attempt) == (State.COMPLETED, 1)
    assert baseline.parts["lenet"].state_sha256 == alone("lenet", 2)
    assert len(baseline.rows("SELECT step FROM step_metrics WHERE run_id = ?")) == 46
    log = (baseline.home.run(baseline.run_id) / "worker.log").read_text()
    assert "database is locked" in log


def test_the_runner_has_no_torch() -> None:
    code = "import sys, unifiednn_core.compare.runner; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False False\n"
    )
