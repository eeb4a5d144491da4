"""The table of what each policy would do."""

from dataclasses import replace

import pytest

from pages._ui import forecast_panel
from unifiednn_core.views.forecast import PolicyForecast

MADE = PolicyForecast(
    policy="fcfs",
    policy_text="First come",
    turns=(),
    finish_s={"lenet": 2.0},
    mean_turnaround_s=2.0,
    makespan_s=2.0,
    fairness=1.0,
)


@pytest.mark.parametrize("equal, marked", [(1, 1), (2, 2), (3, 0)])
def test_a_figure_that_many_policies_share_marks_none(equal: int, marked: int) -> None:
    made = tuple(
        replace(MADE, policy=name, mean_turnaround_s=2.0 if place < equal else 3.0)
        for place, name in enumerate(("fcfs", "fair", "sjf", "las"))
    )
    assert forecast_panel._policies(made, made[0]).count("best") == marked, "makespan and fairness are equal in all"
