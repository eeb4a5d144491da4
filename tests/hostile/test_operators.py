"""No call that its contract allows reads or writes foreign memory, depends on it, or ends the process.

`python -m tests.hostile.operators` says how it is tried, and repeats any case.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from unifiednn_core.formats.operators import ALLOWED, ASSERTIONS

ROOT = Path(__file__).parents[2]
HARMFUL = ("crash", "differs", "canary", "unsound", "moves")


def fuzzed(*arguments: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "tests.hostile.operators", *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_known_leaks_do_harm_without_contracts_and_are_forbidden_by_them() -> None:
    """Attention with a key shorter than the value, recurrent kernels with short biases or wrong states, and others."""
    without = fuzzed("--known", "--no-contracts")["found"]
    assert [one for one in without if one["said"] not in HARMFUL] == []
    checked = fuzzed("--known")["found"]
    assert [one for one in checked if one["said"] != "forbidden"] == []


@pytest.mark.slow
def test_the_fuzzer_comes_upon_leaks_by_itself_where_nothing_forbids_them() -> None:
    found = fuzzed("--cases", "75", "--operator", "scaled_dot_product,lstm.input", "--no-contracts")["found"]
    harmful = [one["case"] for one in found if one["said"] in HARMFUL]
    for name in ("scaled_dot_product", "lstm"):
        assert any(name in case for case in harmful), found


def check(figures: Any) -> None:
    """Every operator runs, programs run, every ordinary call is allowed, nothing does harm."""
    assert [one for one in figures["found"] if one["said"] in HARMFUL] == []
    assert figures["never_ran"] == []
    assert figures["seeds_kept_out"] == []
    assert figures["operators"] == len(ALLOWED - ASSERTIONS)
    assert figures["ran"] > figures["cases"] / 2
    assert figures["programs"] > 0


@pytest.mark.slow
def test_what_contracts_allow_does_no_harm() -> None:
    check(fuzzed("--cases", "16"))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("threads", "capability"), [("1", ""), ("2", ""), ("1", "avx2"), ("1", "default")])
def test_what_contracts_allow_does_no_harm_however_long_it_is_tried(
    threads: str, capability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one thread and on two, and with the kernels for processors of less ability."""
    if capability:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", capability)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", {"avx2": "AVX2", "default": "SSE41"}[capability])
    check(fuzzed("--cases", "400", "--threads", threads))
