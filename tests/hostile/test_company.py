"""A sub-model's state, figures, buffers and files have the same bits, whatever else trains in the process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.formats.registry import FORMATS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found() -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.company"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_victim_in_each_format_gets_the_same_bits_beside_any_tenants(found: Any) -> None:
    different = found["different"]
    assert {victim.partition("-")[0] for victim in different} == {known.name for known in FORMATS}
    assert not any(different.values()), different


def test_a_stream_of_random_numbers_for_all_would_be_noticed(found: Any) -> None:
    [different] = found["without worlds"].values()
    assert any("['model']" in at for at in different) and any("['files']" in at for at in different)


def test_a_byte_of_foreign_memory_would_be_noticed(found: Any) -> None:
    [different] = found["fresh memory"].values()
    assert sorted(different) == ["['buffers']['found']", "['checkpoint']['buffers']['found']"]
