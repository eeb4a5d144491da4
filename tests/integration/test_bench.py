"""A whole bench through the service, as small as it can be."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tools.bench_kit import ASKED, CASE, SCENARIO, write_data
from tools.bench import arms, launcher, report, result, runner
from tools.bench.scenarios import Hybrid

pytestmark = [pytest.mark.slow, pytest.mark.new_interpreters]  # an arm is another program
NAMES = ("lenet-1", "lenet-2")


def test_a_workload_runs_through_the_service_and_has_equal_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    template = SimpleNamespace(stop=lambda: stopped.append("stop"), start=lambda: None, ready=lambda: True)
    monkeypatch.setattr(launcher, "template", template)
    monkeypatch.setattr(arms, "runs_here", lambda arm: arm != "mps")
    first = replace(CASE, hybrids=(*CASE.hybrids, Hybrid(policy={"name": "priority"}, start="warm")))
    others = [replace(CASE, name=arm, arm=arm) for arm in ("resident", "pipedream", "mps")]
    scenario = replace(SCENARIO, cases=(first, *others))
    folder = write_data(tmp_path / "data")
    (found,) = runner.measure(scenario, folder, tmp_path / "work", repeats=1)
    document = result.document(scenario, found, ASKED, 1)
    plain, resident, piped = document["cases"]
    assert list(plain["hybrids"]) == ["fcfs", "priority, warm"]
    hybrid, concurrent = plain["hybrids"]["fcfs"], plain["baselines"]["concurrent"]
    for arm in (hybrid, concurrent, resident["baselines"]["concurrent"]):
        assert arm["problem"] is None and 0 < arm["file_bytes"][0] < arm["anonymous_bytes"][0] < 2**30
        for name in NAMES:
            assert arm["submodels"][name]["state_sha256"] == concurrent["submodels"][name]["state_sha256"] != [None]
    for case in (plain, resident):
        assert case["verdicts"]["fcfs"]["concurrent"]["identical_weights"] is True
    assert piped["verdicts"] == {} and piped["baselines"]["concurrent"]["problem"] is None
    for name, part in piped["baselines"]["concurrent"]["submodels"].items():
        assert part["test_accuracy"] is not None
        assert part["state_sha256"] != concurrent["submodels"][name]["state_sha256"]
    assert document["complete"] is True and any("lacks it: mps" in note for note in document["notes"])
    assert len(stopped) == 6, "no template beside the arms that do not count it"
    assert report.section(document).startswith("tiny, scale cpu")
