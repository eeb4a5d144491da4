"""A fuzzer of the readers that is led by coverage: what reaches a new pair of lines is kept and changed further.

`python -m tests.hostile.fuzz FOLDER SECONDS SEED` begins with the files in FOLDER and prints what it tried and heard.
"""

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from tests.hostile.probe import Listener

READERS = ("unifiednn_core/intake", "unifiednn_core/checkpoints")
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


def main(folder: Path, seconds: float, seed: int) -> None:
    """Fuzz for so many seconds."""
    import torch

    from unifiednn_core.intake import process
    from unifiednn_core.intake.inspection import inspect_file

    torch.set_num_threads(1)
    process.limit_resources()
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_BYTES, resource.RLIM_INFINITY))
    chance, edges, listener = random.Random(seed), Edges(), Listener()
    kept = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    pool = [(name, content) for name, content in kept.items() if len(content) <= LARGEST_BYTES]
    target = Path(tempfile.mkdtemp()) / "file"
    for name, content in pool:
        target.write_bytes(content)
        edges.run(partial(inspect_file, target, name))
    first, tried, heard = len(edges.seen), 0, list[str]()
    first_peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        name, content = chance.choice(pool)
        content = changed(content, [other for _, other in pool], chance)
        target.write_bytes(content)
        with listener() as events:
            new = edges.run(partial(inspect_file, target, name))
        heard += [f"{name} {event} seed {seed} try {tried}" for event in events]
        tried += 1
        if new:
            pool.append((name, content))
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - first_peak_kib) * 1024
    found = {"tried": tried, "edges_at_first": first, "edges": len(edges.seen), "kept": len(pool) - len(kept)}
    sys.stdout.write(json.dumps({**found, "heard": heard, "grown_bytes": grown_bytes}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]))
