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
    jobs = drawn(jobs=2000, gpus=4, seed=1)
    assert sum(job.duration_s for job in jobs) / 4 / jobs[-1].submitted_s == pytest.approx(1.2, rel=0.01)
    assert jobs == drawn(jobs=2000, gpus=4, seed=1)


def test_a_table_has_a_row_for_each_placement_and_policy(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--gpus", "2", "--jobs", "8", "--policy", "las"])
    shown = capsys.readouterr().out
    assert "8 jobs on 2 GPUs" in shown and "private    -" in shown and "pooled     las" in shown
    with pytest.raises(SystemExit, match="2"):
        main(["--policy", "lass"])
