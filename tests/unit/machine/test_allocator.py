import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from unifiednn_core.machine import allocator
from unifiednn_core.machine.allocator import GLIBC, MIMALLOC, TCMALLOC

KEPT = """
import json, os, sys
from unifiednn_core.machine import allocator
from unifiednn_core.machine.host import resident_bytes

allocator.forget_preloading()
blocks = [bytearray(100_000) for _ in range(1_000)]
del blocks[:-1]  # the last one keeps glibc from giving back the others by itself
before = resident_bytes(os.getpid())
allocator.release()
print(json.dumps([allocator.of_this_process(), os.environ.get("LD_PRELOAD"), before, resident_bytes(os.getpid())]))
"""

HEAPS = """
import ctypes, sys, threading
from unifiednn_core.machine import allocator

if sys.argv[1] == "early":
    allocator.return_early()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.free.restype = ctypes.c_void_p, [ctypes.c_void_p], None
all_there = threading.Barrier(4, timeout=60)

def update():
    libc.malloc(1_000)
    all_there.wait()

threads = [threading.Thread(target=update) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
large = [libc.malloc(1_000_000) for _ in range(2)]
libc.free(large[0])  # after that, glibc would put the next ones into a heap
more = [libc.malloc(1_000_000) for _ in range(2)]
libc.malloc_stats()
"""


def test_a_worker_preloads_the_best_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "library", lambda: Path("/lib/libtcmalloc_minimal.so.4"))
    assert allocator.preloading({}) == {"LD_PRELOAD": "/lib/libtcmalloc_minimal.so.4"}
    assert allocator.of_workers({}) == TCMALLOC
    monkeypatch.setattr(allocator, "library", lambda: Path("/lib/libmimalloc.so.3"))
    assert allocator.of_workers({}) == MIMALLOC


def test_nothing_changes_without_one_or_where_something_is_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "library", lambda: Path("/lib/libtcmalloc_minimal.so.4"))
    environment = {"LD_PRELOAD": "/opt/libmine.so"}
    assert allocator.preloading(environment) == {}
    assert allocator.of_workers(environment) == GLIBC
    monkeypatch.setattr(allocator, "library", lambda: None)
    assert allocator.preloading({}) == {}
    assert allocator.of_workers({}) == GLIBC


def test_a_library_that_no_process_can_load_is_passed_over(tmp_path: Path) -> None:
    broken = tmp_path / "libtcmalloc_minimal.so.4"
    broken.write_bytes(b"not a library")
    assert not allocator._loads(broken)
    assert not allocator._loads(tmp_path / "missing.so")


def test_what_an_operator_preloads_reaches_the_children(monkeypatch: pytest.MonkeyPatch) -> None:
    for preloaded, left in (("/opt/libmine.so", "/opt/libmine.so"), ("/lib/libmimalloc.so.3", None)):
        monkeypatch.setenv("LD_PRELOAD", preloaded)
        allocator.forget_preloading()
        assert os.environ.get("LD_PRELOAD") == left


@pytest.mark.parametrize("preloaded", [True, False])
def test_a_process_names_its_allocator_has_it_give_memory_back_and_keeps_it_from_its_children(preloaded: bool) -> None:
    given = allocator.preloading({}) if preloaded else {}
    if preloaded and not given:
        pytest.skip("neither tcmalloc nor mimalloc is installed")
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | given
    done = subprocess.run([sys.executable, "-c", KEPT], env=environment, capture_output=True, text=True, check=True)
    name, left, before, after = json.loads(done.stdout)
    assert name == (allocator.of_workers({}) if preloaded else GLIBC)
    assert left is None
    assert after < before - 10_000_000


@pytest.mark.skipif(allocator.of_this_process() != GLIBC, reason="another allocator than glibc's")
def test_a_server_has_one_heap_for_all_threads_and_none_for_large_blocks() -> None:
    found = {}
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    for how in ("early", "as it is"):
        command = [sys.executable, "-c", HEAPS, how]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr
        found[how] = told.count("Arena "), int(re.findall(r"max mmap regions = +(\d+)", told)[0])
    assert found["early"][0] == 1 < found["as it is"][0]
    assert found["early"][1] > found["as it is"][1]
