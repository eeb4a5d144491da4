"""Predicted peak memory of a run beside the measured one.

Every pair of network and batch size trains twice in its own home: the second prediction knows the first measurement.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.report import memory
from tools.machine import ToolFailed
from unifiednn_core.base.paths import WARM_START_SETTING, Home
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import RunSpec

NETWORKS = ("lenet", "resnet", "transformer")
BATCH_SIZES = (8, 32, 128)
EPOCHS = 3
POLL_S = 0.1
PATIENCE_S = 300.0
MOST_ABOVE, MOST_BELOW = 0.15, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """One run: what was predicted of its memory, and what was measured."""

    network: str
    batch_size: int
    remembered: bool
    """Whether an equal run had been measured before."""
    predicted_bytes: int
    measured_bytes: int
    """Peak of the run as it stands in the store."""
    source: str
    """Of the peak of the run."""
    resident_bytes: int
    """Highest resident size of the worker, as the kernel keeps it. Pages of files that other processes use as well
    count in full here and in part in the PSS, which is why that is smaller where others with torch run."""
    context_bytes: int
    """Of the prediction: what the process takes whatever it trains."""

    @property
    def error(self) -> float:
        """By how much the prediction is above what the worker takes where nobody shares its pages, as a share of it."""
        return self.predicted_bytes / self.resident_bytes - 1

    @property
    def beyond_predicted_bytes(self) -> int:
        """The part of the prediction that depends on what is trained."""
        return self.predicted_bytes - self.context_bytes

    @property
    def beyond_measured_bytes(self) -> int:
        """What was measured, without the same context."""
        return self.resident_bytes - self.context_bytes

    @property
    def holds(self) -> bool:
        """Whether the error is what is promised: at most 15 % above, at most 5 % below."""
        return -MOST_BELOW <= self.error <= MOST_ABOVE


def measure(
    networks: Sequence[str] = NETWORKS,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    told: Callable[[str], object] = lambda text: None,
) -> tuple[Predicted, ...]:
    """Train each network at each batch size, twice, and hold the predictions against the measurements.

    Raises `ToolFailed` if a run does not end, or has no prediction.
    """
    found: list[Predicted] = []
    for network in networks:
        for batch_size in batch_sizes:
            with tempfile.TemporaryDirectory(prefix="unifiednn-bench-") as folder:
                service = Service.open(Home(Path(folder)))
                try:
                    service.start_supervisor()
                    for remembered in (False, True):
                        told(f"{network}, batches of {batch_size}, {'again' if remembered else 'for the first time'}")
                        found.append(_trained(service, network, batch_size, remembered))
                finally:
                    service.close()
    return tuple(found)


def _trained(service: Service, network: str, batch_size: int, remembered: bool) -> Predicted:
    run_id = service.runs.submit(_alone(service.library.prepare_samples(), network, batch_size))
    until_s, resident_bytes = time.monotonic() + PATIENCE_S, 0
    while (run := service.runs.observe(run_id)).state not in ENDED:
        if not service.supervisor_alive or time.monotonic() > until_s:
            service.runs.discard(run_id)
            raise ToolFailed(f"{network} with batches of {batch_size} did not end within {PATIENCE_S:g} s.")
        resident_bytes = max(resident_bytes, _peak_resident_bytes(service.store.hybrids.get(run_id)[0].worker_pid))
        time.sleep(POLL_S)
    if run.state is not State.COMPLETED or run.peak_memory_bytes is None or run.prediction is None:
        raise ToolFailed(f"{network} with batches of {batch_size} is {run.state}, or has no figures: {run.cause}")
    return Predicted(
        network=network,
        batch_size=batch_size,
        remembered=remembered,
        predicted_bytes=run.prediction.peak_bytes,
        measured_bytes=run.peak_memory_bytes,
        source=run.memory_source or "",
        resident_bytes=resident_bytes,
        context_bytes=run.prediction.context_bytes,
    )


def _peak_resident_bytes(pid: int | None) -> int:
    """Of a worker, since it was last set back; 0 without one, and for one that has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    peak = status.partition("VmHWM:")[2].split()
    return int(peak[0]) * 1024 if peak else 0


def _alone(demo: RunSpec, network: str, batch_size: int) -> RunSpec:
    """The demo with one sub-model, for a few epochs at its learning rate."""
    [part] = [part for part in demo.submodels if part.name == network]
    changes = {"epochs": EPOCHS, "batch_size": batch_size, "lr_scheduler": None}
    changed = part.model_copy(update={"hyperparameters": part.hyperparameters.model_copy(update=changes)})
    return demo.model_copy(update={"name": f"{network}-{batch_size}", "submodels": (changed,)})


ABOUT = "The predicted peak of a run beside the measured one: each sample network alone, at some batch sizes."
HEADS = (
    "network",
    "batch",
    "measured before",
    "predicted",
    "measured",
    "resident",
    "context in it",
    "worst error",
    "holds",
)


def described(found: Sequence[Predicted]) -> dict[str, Any]:
    """Tables and figures; repeats of the same question share a row."""
    questions = dict.fromkeys((entry.network, entry.batch_size, entry.remembered) for entry in found)
    answers = {
        asked: [entry for entry in found if (entry.network, entry.batch_size, entry.remembered) == asked]
        for asked in questions
    }
    rows = [
        (
            network,
            str(batch_size),
            "yes" if remembered else "no",
            memory([entry.predicted_bytes for entry in entries]),
            memory([entry.measured_bytes for entry in entries]),
            memory([entry.resident_bytes for entry in entries]),
            memory([entry.context_bytes for entry in entries]),
            f"{100 * max((entry.error for entry in entries), key=abs):+.1f} %",
            "yes" if all(entry.holds for entry in entries) else "**no**",
        )
        for (network, batch_size, remembered), entries in answers.items()
    ]
    return {
        "about": ABOUT,
        "passed": all(entry.holds for entry in found),
        "thresholds": [],
        "notes": [
            "Promised: at most 15 % above the resident size, at most 5 % below; the error is counted against that.",
            "Workers start cold. A warm one has fewer pages of its own and counts those that its template holds.",
            "Most of a small run is the context, the same in every row: what is promised of the whole is easily kept"
            " there. Context and the rest of each run are in the file.",
            "Measured is the peak of the run as everybody sees it: PSS, in which a page shared with other processes"
            " counts in part. Resident is the highest size that the kernel kept, in which it counts in full.",
        ],
        "tables": [{"title": "Peak memory of the process:", "heads": HEADS, "rows": rows}],
        "measured": [asdict(entry) for entry in found],
    }


if __name__ == "__main__":
    os.environ[WARM_START_SETTING] = "off"
    measured = [entry for _ in range(int(sys.argv[1])) for entry in measure()]
    sys.stdout.write(json.dumps(described(measured)) + "\n")
