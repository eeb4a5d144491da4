"""A sub-model's state, figures, buffers and files have the same bits, whatever else trains in the process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unifiednn_core.formats.registry import FORMATS

ROOT = Path(__file__).parents[2]


def left_in(turn: int) -> dict[str, dict[str, str]]:
    """Digests of all that became of each victim."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.company", str(turn)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_victim_in_each_format_gets_the_same_bits_beside_any_tenants() -> None:
    first, second = left_in(0), left_in(1)
    places = {victim: found.keys() | second[victim].keys() for victim, found in first.items()}
    different = {
        victim: sorted(at for at in there if first[victim].get(at) != second[victim].get(at))
        for victim, there in places.items()
    }
    foreign = different.pop("reader")
    assert foreign == ["['buffers']['found']", "['checkpoint']['buffers']['found']"], "foreign memory would be noticed"
    assert {victim.partition("-")[0] for victim in different} == {known.name for known in FORMATS}
    assert not any(different.values()), different
