import io
import json
import random
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from rich.console import Console

from tests.integration.cli_kit import unifiednn, unifiednn_process
from tests.integration.conftest import write_spec
from tests.many_runs import Size, fill, run_id
from unifiednn_core.base.clock import Clock
from unifiednn_core.base.paths import Home
from unifiednn_core.cli import terminal
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CheckProgress
from unifiednn_core.scheduling.registry import POLICIES
from unifiednn_core.spec.run_query import NEWEST_ROWS
from unifiednn_core.store import Store


@pytest.mark.parametrize(("on_terminal", "quiet"), [(True, False), (True, True), (False, False)])
def test_a_terminal_shows_what_a_check_does(on_terminal: bool, quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=on_terminal, width=100)
    monkeypatch.setattr(terminal, "err", console)
    with terminal.checking(quiet=quiet) as tell:
        tell(CheckProgress(text="Trying a step of [b]one", place=2, total=3))
        time.sleep(0.2)  # it draws from time to time
    assert isinstance(console.file, io.StringIO)
    assert ("Trying a step of [b]one (2 of 3)…" in console.file.getvalue()) == (on_terminal and not quiet)
    assert on_terminal or not console.file.getvalue()


def test_train_prints_the_documented_document_and_nothing_else(home: Home, samples: Path, tmp_path: Path) -> None:
    spec = write_spec(samples, tmp_path, epochs={"lenet": 3, "resnet": 1, "transformer": 3})
    asked = json.loads(spec.read_text())
    asked["submodels"][0]["scale"] = 0.0
    spec.write_text(json.dumps(asked))
    done = unifiednn_process(home, "train", str(spec), "--json", "--policy", "priority")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "warning submodels.lenet.hyperparameters.lr_scheduler.args: With T_max" in done.stderr  # and it went on
    assert (document["status"], document["policy"], document["profile"]) == ("completed", "priority", "exact")
    assert set(document["submodels"]) == {"lenet", "resnet", "transformer"}
    for part in document["submodels"].values():
        assert part["status"] == "completed"
        assert Path(part["model_path"]).is_file()
        assert len(part["state_sha256"]) == 64
        assert part["turnaround_s"] == pytest.approx(part["wait_s"] + part["service_s"], abs=1e-3)
        assert 0 < part["service_s"] < part["turnaround_s"]
    doubts = {name: part["not_learning"] for name, part in document["submodels"].items()}
    assert doubts.pop("lenet")["sign"] == "outputs" and set(doubts.values()) == {None}
    assert document["memory"]["peak_bytes"] > 50 * 1024**2
    assert document["memory"]["source"].startswith("process")
    assert sum(s["steps"] for s in document["schedule"]) == sum(p["steps"] for p in document["submodels"].values())
    assert document["makespan_s"] >= max(s["end_s"] for s in document["schedule"]) - 0.5

    listed = json.loads(unifiednn(home, "runs", "--json").stdout)
    assert [(run["run_id"], run["status"]) for run in listed] == [(document["run_id"], "completed")]
    copied = unifiednn(home, "download", document["run_id"], "lenet", "--to", str(tmp_path))
    assert Path(copied.stdout.strip().replace("\n", "")).is_file()
    refused = unifiednn(home, "pause", document["run_id"])
    assert refused.returncode == 2
    assert "completed" in refused.stderr


def test_check_says_what_can_be_trained(home: Home, short_demo: Path) -> None:
    done = unifiednn(home, "check", str(short_demo))
    assert (done.returncode, done.stdout.strip()) == (0, "3 sub-models can be trained.")
    assert ".scale" not in done.stderr


def test_check_warns_of_inputs_scaled_twice_or_not_at_all(home: Home, short_demo: Path) -> None:
    document = json.loads(short_demo.read_text())
    twice, unscaled, _ = document["submodels"]
    data = torch.load(twice["train_data"])
    torch.save({**data, "inputs": data["inputs"] * 15.0}, short_demo.with_name("large.pt"))
    twice["scale"] = 1 / 255
    unscaled |= {"train_data": "large.pt", "test_data": None, "scale": None}
    short_demo.write_text(json.dumps(document))
    done = unifiednn(home, "check", str(short_demo))
    assert (done.returncode, done.stdout.strip()) == (0, "3 sub-models can be trained.")
    warned = [line for line in done.stderr.splitlines() if ".scale" in line]
    assert len(warned) == 2, done.stderr
    assert "submodels.lenet.scale: The inputs go from 0 to 16, scaled from 0 to 0.0627451." in done.stderr
    assert "Set scale to 1/16." in done.stderr
    assert (
        "submodels.resnet.scale: The inputs go from 0 to 240." in done.stderr and "Set scale to 1/255." in done.stderr
    )


def test_check_says_what_a_sweep_expands_into(home: Home, short_demo: Path) -> None:
    document = json.loads(short_demo.read_text())
    document["submodels"] = [document["submodels"][0] | {"sweep": {"seed": [1, 2]}}]
    name = document["submodels"][0]["name"]
    short_demo.write_text(json.dumps(document))
    done = unifiednn(home, "check", str(short_demo))
    assert (done.returncode, done.stdout.strip()) == (0, "2 sub-models can be trained.")
    assert f"{name} is a sweep of 2 sub-models: {name}-seed1, {name}-seed2" in done.stderr


@pytest.mark.parametrize("command", ["check", "train"])
def test_bad_input_is_told_in_words(home: Home, short_demo: Path, command: str) -> None:
    document = json.loads(short_demo.read_text())
    document["submodels"][0]["hyperparameters"]["optimizer"] = "sdg"
    short_demo.write_text(json.dumps(document))
    done = unifiednn(home, command, str(short_demo))
    assert (done.returncode, done.stdout) == (2, "")
    assert "submodels.lenet.hyperparameters.optimizer" in done.stderr and "Did you mean 'sgd'?" in done.stderr
    assert "Traceback" not in done.stderr and json.loads(unifiednn(home, "runs", "--json").stdout) == []


@pytest.mark.parametrize("command", ["check", "train"])
def test_what_needs_no_file_is_told_before_any_file_is_opened(
    home: Home, short_demo: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "check", lambda *asked: pytest.fail("the process that opens files was asked"))
    document = json.loads(short_demo.read_text())
    document |= {"device": "cuda:97", "policy": {"name": "nobody"}}
    document["submodels"][1]["train_data"] = "nowhere.pt"
    document["submodels"][2]["test_data"] = "a-folder"
    (short_demo.parent / "a-folder").mkdir()
    short_demo.write_text(json.dumps(document))
    done = unifiednn(home, command, str(short_demo), "--json")
    found = [finding["field"] for finding in json.loads(done.stdout)["findings"]]
    assert (done.returncode, found) == (
        2,
        ["policy.name", "device", "submodels.resnet.train_data", "submodels.transformer.test_data"],
    )


def test_inspect_describes_a_file_without_running_it(home: Home, samples: Path, tmp_path: Path) -> None:
    document = json.loads(unifiednn(home, "inspect", str(samples / "transformer.pt2"), "--json").stdout)
    assert (document["kind"], document["format"]) == ("model", "pt2")
    assert document["facts"]["parameters"] > 1000
    rubbish = tmp_path / "rubbish.bin"
    rubbish.write_bytes(random.Random(0).randbytes(1000))
    done = unifiednn(home, "inspect", str(rubbish))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "rubbish.bin" in done.stderr


def test_policies_are_listed(home: Home) -> None:
    cards = json.loads(unifiednn(home, "policies", "--json").stdout)
    assert [card["name"] for card in cards] == [policy.name for policy in POLICIES]
    shown = unifiednn(home, "policies").stdout
    assert all(card["name"] in shown for card in cards)


def test_a_spec_is_simulated_under_every_policy(home: Home, short_demo: Path) -> None:
    shown = unifiednn(home, "simulate", str(short_demo)).stdout
    assert all(policy.name in shown for policy in POLICIES) and "* is best" in shown
    assert "#" in shown and "Seconds are as the check timed" in shown
    document = json.loads(unifiednn(home, "simulate", str(short_demo), "--policy", "sjf", "--json").stdout)
    assert document["basis"] == "timed" and list(document["policies"]) == ["sjf"]
    found = document["policies"]["sjf"]
    assert found["makespan_s"] == max(found["finish_s"].values()) and found["peak_bytes"] > 0


def test_a_home_that_cannot_be_is_told_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = unifiednn(Home(tmp_path / "file" / "home"), "runs")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Not a directory" in done.stderr


def test_an_unknown_run_is_named(home: Home) -> None:
    done = unifiednn(home, "stop", "nothing")
    assert done.returncode == 2
    assert "no run 'nothing'" in done.stderr


def test_runs_lists_the_newest_unless_all_are_asked_for(home: Home) -> None:
    count = NEWEST_ROWS + 3
    with closing(Store.open(home.create(), Clock())) as store:
        fill(store, Size(ended=count), Clock().utc_s())
    newest = [run_id(number) for number in reversed(range(count))]
    for flags, wanted in (((), newest[:NEWEST_ROWS]), (("--all",), newest)):
        assert [run["run_id"] for run in json.loads(unifiednn(home, "runs", "--json", *flags).stdout)] == wanted
        told = unifiednn(home, "runs", *flags).stdout
        assert wanted[-1] in told and ("List all with: unifiednn runs --all" in told) == (wanted != newest)
