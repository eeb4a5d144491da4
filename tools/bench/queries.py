"""CPU time of the queries behind the dashboard, on a store with many runs and one run with many slices. No training."""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sqlalchemy import insert

from unifiednn_core.base.paths import Home
from unifiednn_core.service.facade import Service
from unifiednn_core.store import Store
from unifiednn_core.store.schema import RunRow, SliceRow, SubModelRow

RUNS, SLICES = 300, 100_000
MOST_MS = 20.0
NAMES = ("lenet", "resnet", "transformer")
_ALL, _ONE = "`runs()` of 300 runs", "`observe()` of a run with 100,000 slices"
BEFORE_MS: Mapping[str, tuple[float, ...]] = {_ALL: (154.0, 139.0, 134.0), _ONE: (422.0, 389.0, 392.0)}
"""Three rounds at commit 10763ac on 2026-11-22 on the same machine; the run had 120,000 slices."""
HEADS = ("query", "before", "now", "at most", "holds")


@dataclass(frozen=True, slots=True)
class QueryTime:
    """CPU time of one query."""

    query: str
    before_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]
    """Of each repeat."""

    @property
    def holds(self) -> bool:
        """Whether the median keeps the limit."""
        return median(self.cpu_ms) <= MOST_MS


def measure(*, repeats: int, runs: int = RUNS, slices: int = SLICES) -> tuple[QueryTime, ...]:
    """Time each query `repeats` times on a store in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
        home = Home(Path(folder) / "home").create()
        _seed(home, runs, slices)
        service = Service.open(home)
        try:
            queries: dict[str, Callable[[], object]] = {
                _ALL: service.runs.runs,
                _ONE: lambda: service.runs.observe(_run_id(1)),
            }
            return tuple(
                QueryTime(name, BEFORE_MS[name], tuple(_cpu_ms(query) for _ in range(repeats)))
                for name, query in queries.items()
            )
        finally:
            service.close()


def described(found: Sequence[QueryTime]) -> dict[str, Any]:
    """Table and figures of a result document."""
    rows = [
        (
            entry.query,
            f"{median(entry.before_ms):.0f} ms",
            f"{median(entry.cpu_ms):.1f} ms ({min(entry.cpu_ms):.1f} to {max(entry.cpu_ms):.1f})",
            f"{MOST_MS:.0f} ms",
            "yes" if entry.holds else "**no**",
        )
        for entry in found
    ]
    return {
        "about": "CPU time of the queries that the dashboard repeats every second.",
        "passed": all(entry.holds for entry in found),
        "thresholds": [],
        "notes": ["Before: commit `10763ac` on the same machine, median of three rounds; the run had 120,000 slices."],
        "tables": [{"title": "Process CPU time, median of the repeats:", "heads": HEADS, "rows": rows}],
        "measured": [asdict(entry) for entry in found],
    }


def _seed(home: Home, runs: int, slices: int) -> None:
    """Fill a store: completed runs of three sub-models, one of which took turns of one step."""
    store = Store.open(home)
    for number in range(runs):
        store.runs.add((_run(number), [_submodel(number, place, name) for place, name in enumerate(NAMES)]))
        store.hybrids.update(_run_id(number), device="cpu", attempt=1, graph="digraph{" + "n -> m;\n" * 150 + "}")
    rows = [
        {
            "run_id": _run_id(1),
            "submodel": NAMES[step % len(NAMES)],
            "attempt": 1,
            "start_s": float(step),
            "end_s": step + 0.5,
            "from_step": step // len(NAMES),
            "steps": 1,
            "reason": "lenet has been in line longest; 1 step each.",
        }
        for step in range(slices)
    ]
    with store._database.write() as session:
        session.execute(insert(SliceRow), rows)
    store.close()


def _run(number: int) -> RunRow:
    submodels = [
        {
            "name": name,
            "model": f"{name}.pt2",
            "train_data": "digits.pt",
            "hyperparameters": {
                "epochs": 1,
                "batch_size": 64,
                "optimizer": "sgd",
                "learning_rate": 0.01,
                "criterion": "cross_entropy",
            },
        }
        for name in NAMES
    ]
    return RunRow(
        id=_run_id(number),
        name="demo",
        state="completed",
        device="cpu",
        mode="hybrid",
        fingerprint="same" if number < 3 else f"other {number}",
        spec={"policy": {"name": "round_robin", "unit": "steps"}, "submodels": submodels},
        threads=1,
        created_at_s=float(number),
        launched_at_s=float(number),
        started_at_s=float(number),
        ended_at_s=number + 1.0,
        environment={"files": {}, "asked_sha256": "x", "measured_on": {"cpu": "x"}},
        prediction={},
    )


def _submodel(number: int, place: int, name: str) -> SubModelRow:
    return SubModelRow(
        run_id=_run_id(number),
        name=name,
        arrival=place,
        number=place,
        state="completed",
        priority=0,
        attempt=1,
        model_format="pt2",
        parameters=1,
        epochs=1,
        epochs_done=1,
        steps_total=SLICES // len(NAMES),
        steps_done=SLICES // len(NAMES),
        service_s=1.0,
        ended_at_s=number + 1.0,
    )


def _run_id(number: int) -> str:
    return f"r{number:04d}"


def _cpu_ms(query: Callable[[], object]) -> float:
    begun_s = time.process_time()
    query()
    return 1e3 * (time.process_time() - begun_s)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
