"""A whole bench through the service, as small as it can be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.bench import report

ROOT = Path(__file__).parents[2]
BENCH = """
import json, pathlib, sys
from dataclasses import replace
from tests.tools.bench_kit import ASKED, CASE, SCENARIO, write_data
from tools.bench import result, runner
folder = pathlib.Path(sys.argv[1])
scenario = replace(SCENARIO, cases=(CASE, replace(CASE, name="pipedream", arm="pipedream")))
(found,) = runner.measure(scenario, write_data(folder / "data"), folder / "work", repeats=1)
print(json.dumps(result.document(scenario, found, ASKED, 1)))
"""


@pytest.mark.slow
def test_a_workload_runs_through_the_service_and_has_equal_weights(tmp_path: Path) -> None:
    # A process of its own, as the bench is: its supervisor, template and certifier are nobody else's.
    command = [sys.executable, "-c", BENCH, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    document = json.loads(done.stdout.splitlines()[-1])
    plain, piped = document["cases"]
    hybrid, concurrent = plain["hybrids"]["fcfs"], plain["baselines"]["concurrent"]
    assert hybrid["problem"] is None and 0 < hybrid["file_bytes"][0] < hybrid["anonymous_bytes"][0] < 2**30
    assert plain["verdicts"]["fcfs"]["concurrent"]["identical_weights"] is True and piped["verdicts"] == {}
    for name, part in piped["baselines"]["concurrent"]["submodels"].items():
        assert concurrent["submodels"][name]["state_sha256"] != part["state_sha256"] != [None]
    assert document["complete"] is True and report.section(document).startswith("tiny, scale cpu")
