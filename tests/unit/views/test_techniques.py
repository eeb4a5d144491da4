"""Techniques in words."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import NodesReport, SubModelReport, WithoutTechniques
from unifiednn_core.views.techniques import Nodes, Used, checked_text, line, lossy_of, nodes_of, saving_text, used

MIB = 1024**2
LOSSY = {"name": "compression", "bfloat16": True}


def test_techniques_are_named_with_what_differs_from_the_defaults() -> None:
    assert used({}) == used({"techniques": []}) == ()
    assert line(used({"techniques": [{"name": "compression", "bfloat16": False}]})) == "Activation compression, exact"
    assert line(used({"techniques": [LOSSY]})) == "Activation compression (bfloat16: true), lossy"


def test_a_technique_of_another_version_is_told_as_it_is_written_and_trusted_with_nothing() -> None:
    assert used({"techniques": [{"name": "future", "degree": 3}]}) == (Used("future", "future", "", exact=False),)


def test_lossy_ones_are_found_by_sub_model() -> None:
    parts: list[dict[str, Any]] = [
        {"name": "a", "hyperparameters": {"techniques": [LOSSY]}},
        {"name": "b", "hyperparameters": {"techniques": [{"name": "compression"}]}},
        {"name": "c"},
    ]
    assert lossy_of({"submodels": parts}) == {"a": ("compression",)}


@pytest.mark.parametrize(
    "with_mib, seconds, told",
    [
        (59, None, "saves 41 % of the step's memory: 59 MiB instead of 100 MiB"),
        (120, None, "needs 20 % more memory for a step: 120 MiB instead of 100 MiB"),
        (50, 3.0, "saves 50 % of the step's memory: 50 MiB instead of 100 MiB; a step takes 1.5 times as long"),
    ],
)
def test_what_the_check_measured_is_one_line(with_mib: int, seconds: float | None, told: str) -> None:
    plain = MemoryNeed(
        weights_bytes=1, gradients_bytes=1, optimizer_bytes=0, transient_bytes=100 * MIB, data={}, batch_size=1
    )
    need = plain.model_copy(update={"transient_bytes": with_mib * MIB})
    without = WithoutTechniques(memory=plain, without_one={}, seconds_per_step=2.0 if seconds else None)
    report: Any = SimpleNamespace(memory=need, without_techniques=without, seconds_per_step=seconds)
    assert saving_text(report) == told


def test_nothing_is_said_where_nothing_was_measured() -> None:
    report = SubModelReport(
        name="a",
        format="pt2",
        parameters=1,
        weights_bytes=4,
        input_shape=(1,),
        samples=1,
        test_samples=None,
        classes=None,
        steps_per_epoch=1,
    )
    assert saving_text(report) == ""


@pytest.mark.parametrize(
    "asked, found",
    [
        ([], None),
        ([{"name": "virtual_nodes", "nodes": 8}], Nodes(8, None, 1)),
        ([{"name": "virtual_nodes", "nodes": 2, "shares": [3, 1], "devices": 2}], Nodes(2, (3, 1), 2)),
        ([{"name": "virtual_nodes"}], None),
        ([{"name": "virtual_nodes", "nodes": 4, "shares": "measured"}], None),
    ],
)
def test_virtual_nodes_are_known_once_they_are_numbers(asked: list[Any], found: Nodes | None) -> None:
    assert nodes_of({"techniques": asked}) == found


@pytest.mark.parametrize(
    "nodes, told",
    [
        (None, ""),
        (NodesReport(nodes=1), "the check chose 1 virtual node"),
        (NodesReport(nodes=8), "the check chose 8 virtual nodes"),
        (NodesReport(nodes=3, shares=[5, 2, 1]), "the check chose 3 virtual nodes, shares 5:2:1"),
    ],
)
def test_the_check_tells_the_virtual_nodes_that_it_chose(nodes: NodesReport | None, told: str) -> None:
    assert checked_text(cast(Any, SimpleNamespace(nodes=nodes, memory=None, without_techniques=None))) == told
