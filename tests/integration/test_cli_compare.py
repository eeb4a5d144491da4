"""The fair fight in a terminal: one command, three arms, one document, one page."""

import itertools
import json
from pathlib import Path

import pytest

from tests.integration.cli_kit import unifiednn
from tests.integration.conftest import START, write_spec
from unifiednn_core.base.paths import Home
from unifiednn_core.cli.comparisons import arm_order
from unifiednn_core.runtime.certifier import Certifier
from unifiednn_core.service.facade import Service

ARMS = ("hybrid", "concurrent", "sequential")


def two_networks(samples: Path, folder: Path) -> Path:
    """A spec with two of the demo, for one epoch each."""
    path = write_spec(samples, folder, epochs={"lenet": 1, "resnet": 1, "transformer": 1})
    document = json.loads(path.read_text())
    del document["submodels"][1]
    path.write_text(json.dumps(document))
    return path


@pytest.mark.slow
def test_compare_trains_all_arms_and_finds_their_baselines_again(
    home: Home, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Certifier, "start", START)
    spec = two_networks(samples, tmp_path)
    page = tmp_path / "report.html"
    done = unifiednn(home, "compare", str(spec), "--json", "--html", str(page))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document["baselines"]) == {"concurrent", "sequential"}
    hybrid = {name: part["state_sha256"] for name, part in document["hybrid"]["submodels"].items()}
    for mode, verdict in document["verdict"].items():
        baseline = document["baselines"][mode]
        assert {name: part["state_sha256"] for name, part in baseline["submodels"].items()} == hybrid
        assert (verdict["identical_weights"], verdict["withheld_because"]) == (True, None)
        for figure, ours, theirs in (
            ("memory_ratio", document["hybrid"]["memory"]["peak_bytes"], baseline["memory"]["peak_bytes"]),
            ("makespan_ratio", document["hybrid"]["makespan_s"], baseline["makespan_s"]),
            ("cpu_seconds_ratio", document["hybrid"]["cpu_s"], baseline["cpu_s"]),
        ):
            assert verdict[figure] == ours / theirs
    assert "<html" in page.read_text(encoding="utf-8")
    arms = [document["hybrid"], *document["baselines"].values()]
    certified_s = max(part["certificate"]["made_at_s"] for part in arms[0]["submodels"].values())
    service = Service.open(home)
    started_s = [service.runs.observe(arm["run_id"]).started_at_s for arm in arms]
    service.close()
    assert certified_s < min(started_s[1:]), "nobody waits for a certificate until the baselines have ended"

    again = unifiednn(home, "compare", str(spec), "--policy", "sjf")
    assert again.returncode == 0, again.stderr
    assert "weights identical: yes" in again.stdout
    runs = json.loads(unifiednn(home, "runs", "--json").stdout)
    assert sorted(run["mode"] for run in runs) == ["concurrent", "hybrid", "hybrid", "sequential"]


@pytest.mark.slow
def test_a_baseline_alone_prints_the_document_of_a_run(home: Home, samples: Path, tmp_path: Path) -> None:
    spec = two_networks(samples, tmp_path)
    done = unifiednn(home, "baseline", str(spec), "--mode", "sequential", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["mode"], document["status"]) == ("sequential", "completed")
    turns = [(turn["submodel"], turn["start_s"], turn["end_s"]) for turn in document["schedule"]]
    assert [name for name, _, _ in turns] == ["lenet", "transformer"]
    assert all(before[2] <= after[1] for before, after in itertools.pairwise(turns))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("baseline", "SPEC", "--mode", "hybrid"), "--mode"),
        (("baseline", "SPEC", "--mode", "parallel"), "--mode"),
        (("compare", "SPEC", "--repeats", "0"), "--repeats"),
        (("compare", "SPEC", "--html", "/nowhere/at/all/report.html"), "--html"),
        (("compare", "nothing.json"), "nothing.json"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_trains(
    home: Home, short_demo: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = unifiednn(home, *(str(short_demo) if part == "SPEC" else part for part in arguments))
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(unifiednn(home, "runs", "--json").stdout) == []


def test_each_arm_goes_first_in_turn() -> None:
    assert [arm_order(repeat)[0] for repeat in range(4)] == ["concurrent", "sequential", "hybrid", "concurrent"]
    assert {frozenset(arm_order(repeat)) for repeat in range(3)} == {frozenset(ARMS)}
