"""Open virtual nodes become numbers before the training starts: the fewest that fit, and measured shares."""

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.preflight import test_forecast as kit
from tests.unit.preflight.estimate_kit import MIB
from unifiednn_core.machine.budget import Budget
from unifiednn_core.preflight import forecast as room
from unifiednn_core.preflight.fixed_nodes import with_nodes
from unifiednn_core.preflight.forecast import forecast, memory_key, with_fixed_nodes
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.spec.run import RunSpec

FIT = {"techniques": ["virtual_nodes"]}
MEASURED = {"techniques": [{"name": "virtual_nodes", "nodes": 4, "shares": "measured", "devices": 2}]}
TIMES = {8: 1.0, 16: 2.0, 32: 4.0}


@pytest.fixture(autouse=True)
def _machine() -> Iterator[None]:
    with mock.patch.object(room, "budget_of", lambda device: Budget(kit.TOTAL, kit.TOTAL)):
        yield


def report_of(asked: RunSpec, **facts: Any) -> CheckReport:
    """The kit's report, as a check of virtual nodes makes it."""
    found = kit.report(asked)
    changed = {}
    for name, one in found.submodels.items():
        assert one.memory is not None
        memory = one.memory.model_copy(update={"nodes": True})
        changed[name] = one.model_copy(update={"memory": memory, **facts})
    return found.model_copy(update={"submodels": changed})


def peak(asked: RunSpec, report: CheckReport) -> int:
    found = forecast(asked, report, None)
    assert found is not None
    return found.prediction.peak_bytes


def titles(asked: RunSpec, report: CheckReport) -> list[str]:
    found = forecast(asked, report, None)
    assert found is not None
    return [finding.title for finding in found.findings]


def resolved(asked: RunSpec, **facts: Any) -> tuple[RunSpec, CheckReport]:
    report = with_fixed_nodes(asked, report_of(asked, **facts), None)
    return with_nodes(asked, report), report


def numbers(asked: RunSpec) -> list[int]:
    found = [part.hyperparameters.nodes for part in asked.submodels]
    return [one.nodes for one in found if one is not None and isinstance(one.nodes, int)]


def test_what_fits_as_a_whole_is_not_cut() -> None:
    asked, report = resolved(kit.spec(hyperparameters={"large": FIT}))
    assert numbers(asked) == [1]
    assert titles(asked, report) == []


@given(st.integers(1, 12))
@settings(deadline=None, max_examples=12)
def test_the_fewest_that_fit_are_chosen_and_written_into_the_spec(less: int) -> None:
    """One sub-model of 32 samples of 1 MiB each; each halving needs less, until weights are all that is left."""
    whole = kit.spec(names=["large"], hyperparameters={"large": FIT})
    most = peak(*resolved(whole)) - 5 * less * MIB
    asked, report = resolved(whole.model_copy(update={"memory_limit_bytes": most}))
    [count] = numbers(asked)
    assert (peak(asked, report) <= most) == (titles(asked, report) == [])
    if count > 1:
        half = kit.spec(
            names=["large"],
            memory_limit_bytes=most,
            hyperparameters={"large": {"techniques": [{"name": "virtual_nodes", "nodes": count // 2}]}},
        )
        memory = report.submodels["large"].memory
        assert memory is not None
        fewer = report.submodels["large"].model_copy(update={"memory": memory.cut((1,) * (count // 2))})
        assert peak(half, report.model_copy(update={"submodels": {"large": fewer}})) > most
    assert memory_key(asked, asked.submodels[0], report) != memory_key(whole, whole.submodels[0], report)


def test_two_that_are_open_fit_together() -> None:
    both = kit.spec(hyperparameters={"large": FIT, "small": {**FIT, "batch_size": 30}})
    most = peak(*resolved(both)) - 30 * MIB
    asked, report = resolved(both.model_copy(update={"memory_limit_bytes": most}))
    assert peak(asked, report) <= most
    assert max(numbers(asked)) > 1
    assert len(numbers(asked)) == 2


def test_where_nothing_fits_the_finding_says_so() -> None:
    asked = kit.spec(names=["large"], hyperparameters={"large": FIT}, memory_limit_bytes=MIB)
    asked, report = resolved(asked)
    assert numbers(asked) == [32], "parts of one sample"
    assert titles(asked, report) == ["Too little memory"]


def test_no_part_is_smaller_than_the_network_takes() -> None:
    asked = kit.spec(names=["large"], hyperparameters={"large": FIT}, memory_limit_bytes=MIB)
    assert numbers(resolved(asked, least_part=9)[0]) == [1], "the last batch of an epoch has 4 samples"
    dropped = {**FIT, "drop_last": True}
    asked = kit.spec(names=["large"], hyperparameters={"large": dropped}, memory_limit_bytes=MIB)
    assert numbers(resolved(asked, least_part=9)[0]) == [2]


def test_shares_follow_the_times_of_the_devices() -> None:
    slow = {size: 3 * time for size, time in TIMES.items()}
    asked, report = resolved(kit.spec(hyperparameters={"large": MEASURED}), part_times_s=(TIMES, slow))
    nodes = asked.submodels[1].hyperparameters.nodes
    assert nodes is not None and nodes.shares == [12, 4, 12, 4]
    memory = report.submodels["large"].memory
    assert memory is not None
    assert memory.transient_bytes == memory.parts[16], "the largest part has 12 of 32 samples"
    equal, _ = resolved(kit.spec(hyperparameters={"large": MEASURED}), part_times_s=(TIMES, TIMES))
    nodes = equal.submodels[1].hyperparameters.nodes
    assert nodes is not None and (nodes.nodes, nodes.shares) == (4, None)


@pytest.mark.parametrize(
    ("technique", "says"),
    [(FIT, "The memory of large is not predicted"), (MEASURED, "The steps of large were not timed")],
)
def test_what_cannot_be_known_has_to_be_said(technique: dict[str, Any], says: str) -> None:
    asked = kit.spec(hyperparameters={"large": technique})
    report = with_fixed_nodes(asked, kit.report(asked, known=False), None)
    [finding] = report.findings
    assert finding.message.startswith(says)
    assert (finding.severity, finding.field) == ("error", "submodels.large.hyperparameters.techniques")
    assert with_nodes(asked, report) == asked
