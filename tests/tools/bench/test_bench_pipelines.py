from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.bench.kit import ASKED, write_data
from tools.bench import pipelines, report
from tools.bench.pipelines import Delayed, Scheduled

DELAYED = Delayed(network="net", stages=1, peak_bytes=2**20, cpu_s=(0.1, 0.3, 0.2), accuracy=0.75, same_bits=True)
SCHEDULED = Scheduled(schedule="1f1b", stages=2, same_bits=True, call_s=4.0)


def test_pipedream_on_one_device_costs_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines, "BATCH", 8)
    monkeypatch.setattr(pipelines, "STAGES", (1, 3))
    one, three = pipelines.delayed("lenet", write_data(tmp_path))
    assert (one.same_bits, three.same_bits) == (True, False)
    assert one.peak_bytes < three.peak_bytes
    assert len(one.cpu_s) == pipelines.EPOCHS and 0 <= three.accuracy <= 1


def test_other_bits_where_the_same_are_promised_fail_the_bench() -> None:
    three = replace(DELAYED, stages=3, peak_bytes=2 * 2**20, same_bits=False)
    found = pipelines.described([DELAYED, three], [SCHEDULED])
    assert found["passed"] is True
    first, second = found["tables"]
    assert first["rows"][1][:5] == ("net", "PipeDream, 3 stages", "2.0 MiB (2.00 times)", "200.0 ms", "75.0%")
    assert second["rows"] == [("1f1b", "2", "the same")]
    assert not pipelines.described([replace(DELAYED, same_bits=False)], [])["passed"]
    assert not pipelines.described([DELAYED], [replace(SCHEDULED, same_bits=False)])["passed"]
    whole = {
        **found,
        **ASKED,
        "bench": "techniques-pipelines",
        "scale": "cpu",
        "threads": 1,
        "repeats_asked": 1,
        "repeats": 1,
        "complete": True,
    }
    assert "| net | PipeDream, 3 stages | 2.0 MiB (2.00 times) |" in report.section("x.json", whole, ())
