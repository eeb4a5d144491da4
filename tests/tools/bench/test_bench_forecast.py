"""What the bench of forecasts says about its figures."""

from dataclasses import replace

from tools.bench.forecast import AT_MOST, Finish, described

ENDS = [
    Finish(policy="fcfs", submodel="a", predicted_s=9.0, actual_s=10.0, live_s=20.0),
    Finish(policy="fcfs", submodel="b", predicted_s=22.0, actual_s=20.0),
    Finish(policy="fcfs", submodel="all", predicted_s=22.0, actual_s=20.0),
]


def test_forecasts_from_before_the_launch_are_judged_by_their_largest_error() -> None:
    found = described(ENDS)
    assert found["passed"] and [entry["median"] for entry in found["thresholds"]] == [0.1]
    before, live = (table["rows"] for table in found["tables"])
    assert before == [("fcfs", "9.0 / 10.0 s (-10 %)", "22.0 / 20.0 s (+10 %)", "22.0 / 20.0 s (+10 %)")]
    assert live == [("fcfs", "20.0 / 10.0 s (+100 %)", "none")], "shown and not judged"
    late = replace(ENDS[1], predicted_s=(1 + AT_MOST + 0.01) * 20)
    assert not described([ENDS[0], late, ENDS[2]])["passed"]


def test_the_median_error_of_the_repeats_counts() -> None:
    once = [replace(one, predicted_s=2 * one.actual_s) for one in ENDS]
    assert described([*ENDS, *once, *ENDS])["passed"] and not described([*ENDS, *once, *once])["passed"]
