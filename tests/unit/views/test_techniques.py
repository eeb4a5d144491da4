"""Techniques in words."""

from typing import Any

import pytest

from unifiednn_core.views.techniques import Nodes, Used, lossy_of, nodes_of, used

LOSSY = {"name": "compression", "bfloat16": True}


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
