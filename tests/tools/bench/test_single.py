import json
from dataclasses import replace

import pytest

from tests.tools.bench.kit import ASKED
from tools.bench import fleet, queries, report, simulate, single, two_devices, two_people
from tools.bench import overhead as overhead_bench
from tools.bench import prediction as prediction_bench
from tools.bench.overhead import Overhead
from tools.bench.prediction import Predicted
from tools.machine import ToolFailed

MIB = 1024**2


def overhead(engine_s: float, *, identical: bool = True) -> Overhead:
    return Overhead(
        network="net",
        submodels=1,
        quantum="1 step",
        steps=10,
        bare_step_s=(1e-4, 1e-4, 1e-4),
        engine_step_s=(engine_s, engine_s),
        identical_weights=identical,
    )


def predicted(measured_mib: int, *, remembered: bool = False) -> Predicted:
    return Predicted(
        network="net",
        batch_size=8,
        remembered=remembered,
        predicted_bytes=110 * MIB,
        measured_bytes=measured_mib * MIB,
        source="process PSS",
        resident_bytes=measured_mib * MIB,
        context_bytes=50 * MIB,
    )


def shown(name: str, described: dict[str, object]) -> str:
    asked = {"bench": name, "scale": "cpu", **ASKED, "threads": 1, "repeats": 2, "repeats_asked": 2, "complete": True}
    return report.section(f"{name}-cpu.json", json.loads(json.dumps(asked | described)), ())


def test_the_engines_overhead_is_shown_by_network() -> None:
    found = overhead_bench.described((overhead(1.2e-4), overhead(1.8e-4), overhead(1.2e-4, identical=False)))
    assert found["passed"] is False
    text = shown("engine-overhead", found)
    assert "| net | 1 | 1 step | 100 µs | 120 µs | +20.0 µs | 1.200 | yes | yes |" in text
    assert "| net | 1 | 1 step | 100 µs | 180 µs | +80.0 µs | 1.800 | yes | **no** |" in text
    assert overhead_bench.described((overhead(1.2e-4),))["passed"] is True


def test_predictions_are_shown_with_their_worst_error() -> None:
    found = prediction_bench.described([predicted(100), predicted(104), predicted(80, remembered=True)])
    assert found["passed"] is False
    text = shown("prediction", found)
    twice = "102 MiB (100 MiB to 104 MiB)"
    assert f"| net | 8 | no | 110 MiB | {twice} | {twice} | 50 MiB | +10.0 % | yes |" in text
    assert "| net | 8 | yes | 110 MiB | 80 MiB | 80 MiB | 50 MiB | +37.5 % | **no** |" in text
    assert len(found["measured"]) == 3


def test_a_bench_that_breaks_is_told_with_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(single._MODULES, "engine-overhead", "nothing_like_that")
    with pytest.raises(ToolFailed, match=r"engine-overhead could not be measured: .*No module named"):
        single.document("engine-overhead", 1, ASKED)


def test_queries_are_measured_on_a_seeded_store_and_shown_beside_the_older_figures() -> None:
    found = queries.described(queries.measure(repeats=1, runs=3, slices=50))
    assert [entry["query"] for entry in found["measured"]] == [query for query, _ in queries.BEFORE_MS.items()]
    assert all(figure >= 0 for entry in found["measured"] for figure in entry["cpu_ms"])
    text = shown("queries", found)
    assert "| `runs()` of 300 runs |" in text
    assert "139 ms" in text


def test_a_cluster_is_shown_by_arm_and_a_slow_simulation_is_told() -> None:
    measured = fleet.measure(repeats=1, gpus=8, jobs=40)
    found = fleet.described(measured)
    assert found["passed"] is True and len(found["tables"]) == len(fleet.REQUESTS)
    text = shown("fleet", found)
    assert "| exclusive, fcfs |" in text and "| hybrids, sjf + moves + failures |" in text
    measured[next(iter(measured))][0]["arms"][0]["cpu_s"] = 61.0
    assert fleet.described(measured)["passed"] is False


def test_policies_are_simulated_beside_fcfs_and_a_broken_promise_is_told() -> None:
    measured = simulate.measure(repeats=1, jobs=30)
    found = simulate.described(measured)
    assert found["passed"]
    text = shown("simulate", found)
    assert "Statistics of philly" in text
    assert "| srtf |" in text and "| las |" in text
    slower = [
        replace(one, outcomes=tuple(replace(o, mean_turnaround_s=1e9) for o in one.outcomes))
        if one.policy == "srtf" else one for one in measured
    ]  # fmt: skip
    assert not simulate.described(slower)["passed"]


def way(name: str, *peaks_mib: int, case: str = "two networks", sha256: str = "a") -> two_people.Way:
    peaks_bytes = tuple(size * MIB for size in peaks_mib)
    return two_people.Way(
        case=case, way=name, peaks_bytes=peaks_bytes, source="process PSS", data_bytes=MIB, state_sha256=(sha256, "b")
    )


def test_two_people_in_one_hybrid_are_shown_beside_two_workers() -> None:
    apart = [way(two_people.IN_TURN, 250, 250), way(two_people.AT_ONCE, 225, 215)]
    found = two_people.described([way(two_people.POOLED, 260), *apart])
    assert found["passed"]
    text = shown("two-people", found)
    assert "| two networks | 260 MiB (260 to 260) | 500 MiB (500 to 500) | 440 MiB (440 to 440) | 0.52 | 0.59 |" in text
    assert "| two networks: memory against two workers, one after the other | 0.60 | 0.52 | yes |" in text
    assert not two_people.described([way(two_people.POOLED, 310), *apart])["passed"]
    assert not two_people.described([way(two_people.POOLED, 260, sha256="c"), *apart])["passed"], "other bits"


def test_two_devices_are_shown_beside_one_and_how_soon_a_drained_one_is_left() -> None:
    def pair(devices: int, makespan_s: float) -> two_devices.Pair:
        return two_devices.Pair(
            devices=devices, makespan_s=makespan_s, service_s=20.0, hybrids=devices, state_sha256=("a", "b")
        )

    def move(left_s: float) -> two_devices.Move:
        return two_devices.Move(to="nothing", step_s=0.5, left_s=left_s, goes_on_s=left_s + 1, repeated_steps=0)

    found = two_devices.described([pair(1, 20.0), pair(2, 11.0)], [move(1.0), move(2.4)])
    assert found["passed"]
    text = shown("two-devices", found)
    assert "| two devices: makespan against one device | 0.60 | 0.55 | yes |" in text
    assert "| nothing | 0.50 s (0.50 to 0.50) | 1.70 s (1.00 to 2.40) | 2.70 s (2.00 to 3.40) | 0 |" in text
    assert "without its step: 1.90 s" in text
    assert not two_devices.described([pair(1, 20.0), pair(2, 13.0)], [move(1.0)])["passed"]
    assert not two_devices.described([pair(1, 20.0), pair(2, 11.0)], [move(2.6)])["passed"]
