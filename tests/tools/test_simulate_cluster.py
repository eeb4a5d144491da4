from pathlib import Path

import pytest

from tools.simulate_cluster import Job, drawn, main, simulate
from unifiednn_core.scheduling.registry import policy_named


def test_one_gpu_by_hand() -> None:
    jobs = [Job(0.0, 1000.0), Job(0.0, 10.0), Job(0.0, 10.0, memory_bytes=2**50)]
    alone = simulate(jobs, 1, "private", policy_named("fcfs", {}))
    assert (alone.mean_turnaround_s, alone.unfinished) == (pytest.approx((1000 + 1010) / 2), 1)
    shared = simulate(jobs, 1, "pooled", policy_named("sjf", {"by": "time"}))
    assert shared.mean_turnaround_s == pytest.approx((10 + 1010) / 2, abs=5)
    assert shared.p95_slowdown < 2 < alone.p95_slowdown


def test_drawn_jobs_offer_the_load() -> None:
    jobs = drawn("helios", jobs=2000, gpus=4, load=1.5, seed=1)
    assert sum(job.duration_s for job in jobs) / 4 / jobs[-1].submitted_s == pytest.approx(1.5, rel=0.01)
    assert jobs == drawn("helios", jobs=2000, gpus=4, load=1.5, seed=1)


def test_a_trace_is_simulated_or_refused_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submitted_s,duration_s\n0,60\n5,30\n", encoding="utf-8")
    main(["--gpus", "2", "--trace", str(path), "--policy", "las"])
    shown = capsys.readouterr().out
    assert "2 jobs on 2 GPUs" in shown and "exclusive" in shown and "hybrids    las" in shown and "45.0 s" in shown
    path.write_text("submitted_s,duration_s\n0,sixty\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="line 2"):
        main(["--trace", str(path)])
