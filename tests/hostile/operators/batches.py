"""Runs cases in forked children: what kills a child counts for the case at work, and another goes on behind it."""

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.hostile.operators.child import Outcome

CASES_PER_CHILD = 250
CPU_CAP_S = 2.0
"""Of one case."""
MEMORY_CAP_BYTES = 256 * 1024**2
"""What a child may take beyond the memory that it was born with. Compilers of kernels die where there is none."""
AMPLE_BYTES = 4 * 1024**3
CORRUPTED = ("free()", "malloc", "corrupt", "invalid pointer")
"""What the C library says of a damaged heap. Any other death counts if it happens again with ample memory."""
REPEATED = 3
_Case = TypeVar("_Case")


def outcomes(
    cases: Sequence[_Case], begin: Callable[[], Callable[[_Case], Outcome]]
) -> Iterator[tuple[_Case, Outcome]]:
    """Run every case; `begin` is called in each child and returns what runs a case there."""
    at = 0
    while at < len(cases):
        first = at
        for outcome in _child(cases[first : first + CASES_PER_CHILD], begin, MEMORY_CAP_BYTES):
            if outcome.said == "crash" and not any(word in outcome.why for word in CORRUPTED):
                again = [list(_child(cases[first : at + 1], begin, AMPLE_BYTES))[-1] for _ in range(REPEATED)]
                outcome = next((one for one in again if one.said == "crash"), Outcome("starved", outcome.why))
            yield cases[at], outcome
            at += 1


def _child(
    cases: Sequence[_Case], begin: Callable[[], Callable[[_Case], Outcome]], memory_bytes: int
) -> Iterator[Outcome]:
    """Run cases in one child up to the one that kills it."""
    reading, writing = os.pipe()
    with tempfile.NamedTemporaryFile() as complaints:
        pid = os.fork()
        if not pid:
            _live(cases, begin, writing, complaints.name, memory_bytes)
        os.close(writing)
        done = 0
        with os.fdopen(reading) as lines:
            for line in lines:
                done += 1
                yield Outcome(*json.loads(line))
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if done < len(cases):
            name = signal.Signals(-status).name if status < 0 else f"exit {status}"
            last = Path(complaints.name).read_text(errors="replace").strip().splitlines() or [""]
            yield Outcome("slow" if name == "SIGPROF" else "crash", f"{name} {last[-1][:150]}".strip())


def _live(
    cases: Sequence[_Case],
    begin: Callable[[], Callable[[_Case], Outcome]],
    writing: int,
    complaints: str,
    memory_bytes: int,
) -> None:
    status = 1
    try:
        os.dup2(os.open(complaints, os.O_WRONLY), 2)
        warnings.simplefilter("ignore")
        _limit(memory_bytes)
        run = begin()
        for case in cases:
            signal.setitimer(signal.ITIMER_PROF, CPU_CAP_S)
            outcome = run(case)
            os.write(writing, json.dumps([outcome.said, outcome.why]).encode() + b"\n")
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _limit(memory_bytes: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + memory_bytes, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
