"""A whole bench through the service, as small as it can be."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.bench_kit import ASKED, CASE, SCENARIO, write_data
from tools.bench import report, result, runner


@pytest.mark.slow
@pytest.mark.new_interpreters  # an arm is another program
def test_a_workload_runs_through_the_service_and_has_equal_weights(tmp_path: Path) -> None:
    scenario = replace(SCENARIO, cases=(CASE, replace(CASE, name="pipedream", arm="pipedream")))
    (found,) = runner.measure(scenario, write_data(tmp_path / "data"), tmp_path / "work", repeats=1)
    document = result.document(scenario, found, ASKED, 1)
    plain, piped = document["cases"]
    hybrid, concurrent = plain["hybrids"]["fcfs"], plain["baselines"]["concurrent"]
    assert hybrid["problem"] is None and 0 < hybrid["file_bytes"][0] < hybrid["anonymous_bytes"][0] < 2**30
    assert plain["verdicts"]["fcfs"]["concurrent"]["identical_weights"] is True and piped["verdicts"] == {}
    for name, part in piped["baselines"]["concurrent"]["submodels"].items():
        assert concurrent["submodels"][name]["state_sha256"] != part["state_sha256"] != [None]
    assert document["complete"] is True and report.section(document).startswith("tiny, scale cpu")
