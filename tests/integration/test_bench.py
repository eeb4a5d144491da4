"""A whole bench through the service, as small as it can be."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.tools.bench.kit import ASKED, CASE, SCENARIO, write_data
from tools.bench import launcher, mps, report, result, runner
from tools.bench.scenarios import Hybrid
from unifiednn_core.service import facade

pytestmark = pytest.mark.slow


def test_a_workload_runs_through_the_service_and_has_equal_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    template = SimpleNamespace(stop=lambda: stopped.append("stop"), start=lambda: None, ready=lambda: True)
    monkeypatch.setattr(launcher, "LocalLauncher", facade.LocalLauncher)  # which forks workers of tests
    monkeypatch.setattr(launcher, "template", template)
    monkeypatch.setattr(mps, "is_installed", lambda: False)
    ways = (*CASE.hybrids, Hybrid(policy={"name": "priority"}, start="warm"))
    first = replace(CASE, hybrids=ways, baselines=("concurrent", "concurrent-pipedream"))
    cases = (first, replace(CASE, name="with MPS", mps=True))
    scenario = replace(SCENARIO, cases=cases)
    on_progress: list[runner.BenchProgress] = []
    folder = write_data(tmp_path / "data")
    (found,) = runner.measure(scenario, folder, tmp_path / "work", repeats=1, on_progress=on_progress.append)
    document = result.document(scenario, found, ASKED, 1)
    (case,) = document["cases"]
    hybrid, concurrent = case["hybrids"]["fcfs"], case["baselines"]["concurrent"]
    assert hybrid["problem"] is concurrent["problem"] is None
    for name in ("lenet-1", "lenet-2"):
        assert hybrid["submodels"][name]["state_sha256"] == concurrent["submodels"][name]["state_sha256"] != [None]
    assert case["verdicts"]["fcfs"]["concurrent"]["identical_weights"] is True
    piped, judged = case["baselines"]["concurrent-pipedream"], case["verdicts"]["fcfs"]["concurrent-pipedream"]
    assert (piped["problem"], judged["identical_weights"], judged["withheld_because"]) == (None, None, None)
    assert sum("ends with a test accuracy" in note for note in judged["notes"]) == 2
    for name, part in piped["submodels"].items():
        assert part["state_sha256"] != concurrent["submodels"][name]["state_sha256"]
    assert document["complete"] is True
    assert list(case["hybrids"]) == ["fcfs", "priority, warm"]
    assert on_progress[-1].arms == 4
    assert len(stopped) == 3, "no template beside the arms that do not count it"
    assert any("MPS" in note for note in document["notes"])
    for arm in (hybrid, concurrent):
        assert 0 < arm["file_bytes"][0] < arm["anonymous_bytes"][0] < 2**30
    assert report.section("tiny-cpu.json", document, ()).startswith("### `tiny`")
