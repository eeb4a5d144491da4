"""A whole bench through the service, as small as it can be."""

from pathlib import Path

from tests.tools.bench.kit import ASKED, SCENARIO, write_data
from tools.bench import report, result, runner


def test_a_workload_runs_through_the_service_and_has_equal_weights(tmp_path: Path) -> None:
    on_progress: list[runner.BenchProgress] = []
    folder = write_data(tmp_path / "data")
    (found,) = runner.measure(SCENARIO, folder, tmp_path / "work", repeats=1, on_progress=on_progress.append)
    document = result.document(SCENARIO, found, ASKED, 1)
    (case,) = document["cases"]
    hybrid, concurrent = case["hybrids"]["fcfs"], case["baselines"]["concurrent"]
    assert hybrid["problem"] is concurrent["problem"] is None
    for name in ("lenet-1", "lenet-2"):
        assert hybrid["submodels"][name]["state_sha256"] == concurrent["submodels"][name]["state_sha256"] != [None]
    assert case["verdicts"]["fcfs"]["concurrent"]["identical_weights"] is True
    assert document["complete"] is True
    assert on_progress[-1].arms == 2
    assert report.section("tiny-cpu.json", document, ()).startswith("### `tiny`")
