"""The table of public networks: what is declared is well formed, and what it says follows from the rows."""

import ast
from itertools import repeat
from typing import Any

import pytest

from tools.machine import ToolFailed
from tools.public_networks import table
from tools.public_networks.declared import NETWORKS, SOURCES
from tools.public_networks.networks import MOST_LINES
from tools.public_networks.processes import forked
from unifiednn_core.preflight.pack.request import parse_example, parse_source


def test_every_declared_network_could_be_a_command_line() -> None:
    names = [network.name for network in NETWORKS]
    assert len(names) == len({*names}) >= 60
    assert sum(bool(source.commit) for source in SOURCES) >= 6
    for network in NETWORKS:
        parse_source(network.place), parse_example(network.inputs)
        assert len(network.code.splitlines()) <= MOST_LINES, network.name
        ast.parse(network.code)


def _row(number: int, **facts: Any) -> dict[str, Any]:
    row = {"network": NETWORKS[number].name, "source": NETWORKS[number].source.name, "packs": "as it is"}
    return {**row, "refusals": [], "state_sha256": "1", "plain_sha256": "1", **facts}


def test_shares_follow_from_the_rows() -> None:
    refused = _row(9, packs=None, refusals=[{"way": "as it is", "title": "Code", "message": "a | b"}])
    del refused["state_sha256"], refused["plain_sha256"]
    rows = [*(_row(number) for number in range(9)), refused]
    found = table.document(rows, {"commit": "c"})
    assert found["passed"] and found["tables"][1]["rows"] == [(refused["network"], "no", "Code: a / b")]
    assert not table.document([*rows[:8], refused], {})["passed"]
    other = table.document([*rows, _row(10, plain_sha256="2")], {})
    assert not other["passed"] and "other bits" in other["tables"][2]["rows"][0][1]


def test_a_fork_answers_or_says_why_not() -> None:
    def endless() -> None:
        for _ in repeat(None):
            pass

    assert forked(lambda: {"a": 1}, 5) == {"a": 1}
    with pytest.raises(ToolFailed, match="ZeroDivisionError"):
        forked(lambda: 1 / 0, 5)
    with pytest.raises(ToolFailed, match="more than 1 s of CPU"):
        forked(endless, 1)
