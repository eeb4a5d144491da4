"""`prediction` as a part of a result document, printed as JSON."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from unifiednn_core.bench.markdown import memory
from unifiednn_core.bench.prediction import Predicted, measure

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
            "Most of a small run is the context, the same in every row: what is promised of the whole is easily kept"
            " there. Context and the rest of each run are in the file.",
            "Measured is the peak of the run as everybody sees it: PSS, in which a page shared with other processes"
            " counts in part. Resident is the highest size that the kernel kept, in which it counts in full.",
        ],
        "tables": [{"title": "Peak memory of the process:", "heads": HEADS, "rows": rows}],
        "measured": [asdict(entry) for entry in found],
    }


if __name__ == "__main__":
    measured = [entry for _ in range(int(sys.argv[1])) for entry in measure()]
    sys.stdout.write(json.dumps(described(measured)) + "\n")
