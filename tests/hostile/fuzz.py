"""A fuzzer of the readers that is led by coverage: what reaches a new pair of lines is kept and changed further.

`python -m tests.hostile.fuzz FOLDER SECONDS SEED` begins with the files in FOLDER and prints what it tried and heard.
"""

import io
import json
import logging
import random
import resource
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tests.hostile.probe import Listener

READERS = ("unifiednn_core/preflight", "unifiednn_core/data", "unifiednn_core/formats")
INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"{",
    b"}",
    b'"',
    b"-1",
    b"9999999999",
    b"PK\x03\x04",
    b"..",
    b"/",
    b"c",
    b".",
)
GROWN_KIB = 64 * 1024
LARGEST_BYTES = 4 * 1024**2


class Edges:
    """Pairs of lines of the readers that were executed one after the other."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()
        self._of: dict[str, bool] = {}

    def run(self, action: Callable[[], object]) -> int:
        """Number of pairs that `action` reached and nothing before it did."""
        before = len(self.seen)
        sys.settrace(self._call)
        try:
            action()
        finally:
            sys.settrace(None)
        return len(self.seen) - before

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._of:
            self._of[name] = any(room in name for room in READERS)
        if not self._of[name]:
            return None
        last = 0

        def line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            self.seen.add((name, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line


def changed(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The bytes with one to eight changes."""
    changing = bytearray(content)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(changing) + 1)
        match chance.randrange(6):
            case 0 if changing:
                changing[at % len(changing)] ^= 1 << chance.randrange(8)
            case 1:
                changing[at:at] = chance.choice(INTERESTING)
            case 2:
                del changing[at : at + chance.randint(1, 64)]
            case 3:
                piece = chance.choice(others)
                begin = chance.randrange(len(piece) + 1)
                changing[at:at] = piece[begin : begin + chance.randint(1, 256)]
            case 4:
                changing[at : at + 4] = chance.randrange(2**32).to_bytes(4, "little")
            case _:
                changing[at:at] = changing[at : at + chance.randint(1, 64)]
    return bytes(changing[:LARGEST_BYTES])


def changed_inside(content: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The bytes of a zip with changes in one of its entries, whose sums are right again; any other bytes changed."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as source:
            infos = source.infolist()[:64]
            if not infos or sum(info.file_size for info in infos) > LARGEST_BYTES:
                raise ValueError("too large to be packed again")
            entries = [(info, source.read(info)) for info in infos]
        number, stream = chance.randrange(len(entries)), io.BytesIO()
        with zipfile.ZipFile(stream, "w") as target:
            for at, (info, data) in enumerate(entries):
                target.writestr(info, changed(data, others, chance) if at == number else data)
        return stream.getvalue()
    except Exception:  # a damaged zip fails in any way
        return changed(content, others, chance)


def main(folder: Path, seconds: float, seed: int) -> None:
    """Fuzz for so many seconds."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch

    from unifiednn_core.base.errors import BadInput
    from unifiednn_core.data.split import split
    from unifiednn_core.data.values import SplitPlan
    from unifiednn_core.formats.architectures import registry as architectures
    from unifiednn_core.preflight import process
    from unifiednn_core.preflight.inspection import inspect_file

    torch.set_num_threads(1)
    process.limit_resources()
    architectures.build("huggingface", {})  # loads its library
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_BYTES, resource.RLIM_INFINITY))
    chance, edges, listener = random.Random(seed), Edges(), Listener()
    kept = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    pool = [(name, content) for name, content in kept.items() if len(content) <= LARGEST_BYTES]
    work = Path(tempfile.mkdtemp())
    target, unclear, slowest_s = work / "file", Counter[str](), 0.0

    def read(name: str) -> None:
        """Report on the file; part it where it is a data set."""
        with listener() as events:
            report = inspect_file(target, name)
        heard.extend(f"{name} {event} seed {seed} try {tried}" for event in events)
        report.model_dump_json()
        unclear.update(f"{name}: {said.message}" for said in report.findings if said.title == "Cannot be read")
        if report.kind == "data":
            try:
                split(target, SplitPlan(), work)
            except (BadInput, OSError):  # too few samples, or too large a file for this process
                return

    tried, heard = 0, list[str]()
    for name, content in pool:
        target.write_bytes(content)
        edges.run(partial(read, name))
    first = len(edges.seen)
    first_peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end_s, peak_kib, grown = time.monotonic() + seconds, first_peak_kib, list[str]()
    while time.monotonic() < end_s:
        name, content = chance.choice(pool)
        change = changed_inside if content[:2] == b"PK" and chance.random() < 0.7 else changed
        content = change(content, [other for _, other in pool], chance)
        target.write_bytes(content)
        begin_s = time.process_time()
        new = edges.run(partial(read, name))
        slowest_s = max(slowest_s, time.process_time() - begin_s)
        peak_kib, before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, peak_kib
        if peak_kib - before_kib > GROWN_KIB:
            grown.append(f"{name} seed {seed} try {tried} by {(peak_kib - before_kib) // 1024} MiB")
        tried += 1
        if new:
            pool.append((name, content))
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first_peak_kib) * 1024
    found = {"tried": tried, "edges_at_first": first, "edges": len(edges.seen), "kept": len(pool) - len(kept)}
    more = {"unclear": dict(unclear), "slowest_s": slowest_s, "grown": grown, "grown_bytes": grown_bytes}
    sys.stdout.write(json.dumps({**found, "heard": heard, **more}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
