"""Commands on runs that exist: started by another command or by a dashboard, ended or not, killed or whole."""

import json
import os
import pty
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration import forking
from tests.integration.cli_kit import COMMAND, unifiednn
from tests.integration.conftest import ROOT
from tests.integration.forked_main import watches
from tests.integration.product import EPOCHS, STEPS_PER_EPOCH, Product, Template, timeless
from tests.ports import free_port
from tests.waiting import wait_until
from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State

TWO_STEPS = {"name": "round_robin", "unit": "steps", "amount": 2}
Begin = Callable[..., subprocess.Popen[str]]
RUN_S = 3.0
"""A little more than `train` takes once the run is handed in."""
TIMES = [pytest.param(place, marks=[] if place < 1 else pytest.mark.long) for place in range(10)]


@pytest.fixture
def begin() -> Begin:
    """`begin(home, ...)` starts a command in a process of its own, which has its workers forked."""

    def begin(home: Home, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        handle = forking.handle()
        command = [sys.executable, "-m", "tests.integration.forked_main", str(handle), "unifiednn", *arguments]
        everything = dict(os.environ, UNIFIEDNN_HOME=str(home.root), **environment)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, cwd=ROOT, env=everything, stdout=pipe, stderr=pipe, text=True, pass_fds=(handle,)
        )

    return begin


def said(home: Home, *arguments: str) -> str:
    done = unifiednn(home, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("place", TIMES)
@pytest.mark.parametrize(
    "whom",
    [
        pytest.param("command", marks=pytest.mark.long),
        pytest.param("worker", marks=pytest.mark.long),
        "command and worker",
    ],
)
def test_a_training_that_was_killed_at_any_moment_is_continued_in_the_foreground(
    home: Home, template: Template, uninterrupted: dict[str, Any], begin: Begin, whom: str, place: int
) -> None:
    process = begin(home, "train", str(template.spec_path), "--json")
    service = Service.open(home)
    wait_until(lambda: service.runs.runs() or process.poll() is not None, "a run")
    product = Product(home, service.runs.runs()[0].run_id)
    time.sleep(random.Random(f"{whom} {place}").uniform(0, RUN_S))
    worker = product.worker()
    if "worker" in whom and worker is not None:
        os.kill(worker, signal.SIGKILL)
    if "command" in whom:
        process.kill()
    first, _ = process.communicate()
    done = unifiednn(home, "resume", product.run_id, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["run_id"] == product.run_id
    assert timeless(document) == uninterrupted
    if first:
        assert json.loads(first) == document
    for name in EPOCHS:
        product.lost_steps(name)
    service.close()
    product.close()


def test_an_interrupted_run_is_continued(product: Product, uninterrupted: dict[str, Any]) -> None:
    product.options(recovery="ask")
    product.start_and_hold("transformer", 6)
    product.signal_worker()
    product.until(lambda: product.state() is State.INTERRUPTED, "the interruption")
    product.service.close()  # nobody else is there
    done = unifiednn(product.home, "resume", product.run_id)
    assert done.returncode == 0, done.stderr
    assert "transformer continues at step" in done.stderr
    assert timeless(product.service.runs.document(product.run_id)) == uninterrupted


@pytest.mark.slow
def test_a_run_is_paused_resumed_and_interrupted_while_a_command_follows_it(product: Product, begin: Begin) -> None:
    product.service.runs.set_epochs(product.run_id, "lenet", 2000)
    following = begin(product.home, "resume", product.run_id, "--json")
    product.until(lambda: product.row("lenet").steps_done > 0, "some training")
    assert said(product.home, "pause", product.run_id) == "pausing"
    product.until(lambda: product.state() is State.PAUSED, "the pause")
    assert following.poll() is None
    assert json.loads(said(product.home, "resume", product.run_id, "--detach", "--json")) == {
        "run_id": product.run_id,
        "status": "queued",
    }
    product.until(lambda: product.state() is State.RUNNING, "the next worker")
    following.send_signal(signal.SIGINT)
    out, _ = following.communicate(timeout=90)
    assert following.returncode == 130
    document = json.loads(out)
    assert document["status"] == "stopped"
    assert Path(document["submodels"]["lenet"]["model_path"]).is_file()
    again = unifiednn(product.home, "resume", product.run_id, "--json")
    told = json.loads(again.stdout)
    for one in (document, told):  # a certificate may come after the first of them
        for part in one["submodels"].values():
            part.pop("certificate")
    assert (again.returncode, told) == (0, document)


@pytest.mark.slow
def test_commands_reach_a_run_that_a_dashboard_started(
    product: Product, alone: Callable[..., str], tmp_path: Path
) -> None:
    home, run_id = product.home, product.run_id
    product.options(policy=TWO_STEPS, checkpoint={"every_s": 3600})
    product.start_and_hold("transformer", 7)
    assert said(home, "save", run_id, "resnet") == "running"
    assert said(home, "pause", run_id, "transformer") == "pausing"
    assert said(home, "edit", run_id, "lenet", "--epochs", "4", "--priority", "-3") == (
        "Requested: epochs 4.\nRequested: priority -3."
    )
    assert said(home, "edit", run_id, "--policy", "priority", "--order", "transformer, resnet,lenet") == (
        "Requested: policy priority.\nRequested: order transformer, resnet, lenet."
    )
    product.go_on()
    product.until(lambda: product.state("transformer") is State.PAUSED, "the pause")
    copied = Path(said(home, "checkpoint", run_id, "resnet", "--to", str(tmp_path)))
    assert copied.parent == tmp_path
    assert copied.read_bytes() in [path.read_bytes() for path in product.checkpoints("resnet")]
    assert said(home, "resume", run_id, "transformer") == "queued"
    followed = unifiednn(home, "resume", run_id, "--json")
    assert followed.returncode == 0
    document = json.loads(followed.stdout)
    assert (document["status"], document["policy"]) == ("completed", "priority")
    assert list(document["submodels"]) == ["transformer", "resnet", "lenet"]
    assert document["submodels"]["lenet"]["steps"] == 4 * STEPS_PER_EPOCH["lenet"]
    hashes = {name: part["state_sha256"] for name, part in document["submodels"].items()}
    assert hashes == {"lenet": alone("lenet", 4), "resnet": alone("resnet"), "transformer": alone("transformer")}
    applied = [message.partition(",")[0] for message in product.messages("applied")]
    assert sorted(applied) == sorted(set(applied))
    assert len(applied) == 7


@pytest.mark.slow
def test_a_failed_run_is_told_as_failed_and_tried_again(product: Product, uninterrupted: dict[str, Any]) -> None:
    product.mishap("resnet", "raise", 15)
    product.start()
    product.finish()
    told = unifiednn(product.home, "resume", product.run_id, "--json")
    assert (told.returncode, json.loads(told.stdout)["status"]) == (1, "failed")
    told = unifiednn(product.home, "resume", product.run_id)
    assert told.returncode == 1
    assert "shapes do not fit" in told.stdout
    product.environment.clear()
    product.service.close()
    again = unifiednn(product.home, "retry", product.run_id, "resnet")
    assert (again.returncode, again.stdout.strip()) == (0, "queued")
    assert "takes effect while" in again.stderr
    product.restart()
    product.finish()
    told = unifiednn(product.home, "resume", product.run_id, "--json")
    assert told.returncode == 0
    assert timeless(json.loads(told.stdout)) == uninterrupted


def test_a_network_is_added(product: Product, template: Template, tmp_path: Path) -> None:
    spec = json.loads(template.spec_path.read_text())
    joining = spec["submodels"][0]
    joining["name"] = "late"
    del joining["hyperparameters"]["seed"]
    path = tmp_path / "late.json"
    path.write_text(
        json.dumps({"seed": 31, "submodels": [joining, joining | {"name": "later", "model": "nowhere.pt2"}]})
    )
    refused = unifiednn(product.home, "add", product.run_id, str(path))
    assert refused.returncode == 2
    assert "submodels.later.model" in refused.stderr
    assert len(product.view.submodels) == 3
    path.write_text(json.dumps({"seed": 31, "submodels": [joining]}))
    assert said(product.home, "add", product.run_id, str(path)) == "Requested: add late."
    submodels: Any = product.view.spec["submodels"]
    assert [part["name"] for part in submodels] == ["lenet", "resnet", "transformer", "late"]
    assert submodels[-1]["hyperparameters"]["seed"] == 31


@pytest.mark.slow
def test_discarding_asks_for_the_name(product: Product) -> None:
    def answered(name: str) -> tuple[int, str]:
        leader, follower = pty.openpty()
        environment = dict(os.environ, UNIFIEDNN_HOME=str(product.home.root), COLUMNS="200")
        command = [*COMMAND, "stop", product.run_id, "--discard"]
        with subprocess.Popen(command, env=environment, stdin=follower, stdout=-1, stderr=-1, text=True) as process:
            os.write(leader, f"{name}\n".encode())
            _, err = process.communicate(timeout=60)
        os.close(leader)
        os.close(follower)
        return process.returncode, err

    code, err = answered("dmeo")
    assert (code, product.state()) == (2, State.QUEUED)
    assert "Nothing was discarded" in err
    code, err = answered("demo")
    assert (code, product.state()) == (0, State.STOPPING)
    assert "takes effect while" in err
    product.start()
    assert product.finish().state is State.STOPPED


@pytest.mark.slow
def test_a_download_that_is_killed_leaves_nothing_under_its_name(
    product: Product, begin: Begin, tmp_path: Path
) -> None:
    product.start()
    product.finish()
    name = product.row("lenet").artifact or ""
    arguments = ["download", product.run_id, "lenet", "--to", str(tmp_path)]
    killed = begin(product.home, *arguments, UNIFIEDNN_FAULT="download.before_rename=sigkill")
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / name).exists()
    assert said(product.home, *arguments) == str(tmp_path / name)
    assert (tmp_path / name).read_bytes() == product.service.runs.artifact(product.run_id, "lenet").read_bytes()


@pytest.mark.slow
def test_the_dashboard_takes_up_what_died_though_nobody_opens_a_page(
    product: Product, begin: Begin, uninterrupted: dict[str, Any]
) -> None:
    product.start_and_hold("transformer", 6)
    product.service._supervisor.stop()
    product.signal_worker()
    port = str(free_port())
    server = begin(product.home, "app", "--port", port)
    product.finish()
    urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/runs", timeout=60).close()
    server.send_signal(signal.SIGUSR1)
    server.send_signal(signal.SIGTERM)
    out, err = server.communicate(timeout=60)
    assert watches(err) == dict.fromkeys(("supervisor", "device_watch", "webhooks", "certifier"), 1)
    assert server.returncode == 0, out + err
    assert "Traceback" not in out + err
    assert timeless(product.service.runs.document(product.run_id)) == uninterrupted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("resume nothing", "no run 'nothing'"),
        ("resume RUN nobody", "no sub-model 'nobody'"),
        ("resume RUN lenet", "does not allow 'resume'"),
        ("save RUN", "does not allow 'save'"),
        ("stop RUN --discard", "needs a confirmation"),
        ("retry RUN lenet", "does not allow 'retry'"),
        ("retry RUN lenet --learning-rate -1", "cannot be -1"),
        ("retry RUN lenet --batch-split 0", "cannot be 0"),
        ("edit RUN", "No change was given"),
        ("edit RUN --epochs 3", "belong to a sub-model"),
        ("edit RUN lenet --policy fcfs", "belong to the run"),
        ("edit RUN --policy luck", "'luck'"),
        ("edit RUN --order lenet,lenet", "each of lenet, resnet, transformer once"),
        ("edit RUN lenet --epochs 0", "cannot be 0"),
        ("edit RUN lenet --priority 99999999", "cannot be 99999999"),
        ("edit RUN lenet --deadline-s -5", "cannot be -5"),
        ("edit RUN lenet --devices 2", "lenet has no virtual nodes"),
        ("add RUN nowhere.json", "cannot be read"),
        ("checkpoint RUN lenet", "has no checkpoint yet"),
        ("checkpoint RUN lenet --to nowhere", "nowhere is not a folder"),
        ("download RUN lenet", "no trained model of 'lenet'"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(product: Product, arguments: str, message: str) -> None:
    done = unifiednn(product.home, *arguments.replace("RUN", product.run_id).split())
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert len(done.stderr.partition(message)[2].strip()) > 10  # and a remedy
    assert product.state() is State.QUEUED
    assert product.messages("command") == []


def test_a_mistake_is_json_where_json_was_asked_for(home: Home) -> None:
    done = unifiednn(home, "resume", "nothing", "--json")
    assert done.returncode == 2
    [finding] = json.loads(done.stdout)["findings"]
    assert "no run 'nothing'" in finding["message"]
    assert "unifiednn runs" in finding["remedy"]
