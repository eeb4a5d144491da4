"""`engine-overhead` as a part of a result document, printed as JSON."""

import json
import sys
from dataclasses import asdict
from statistics import median
from typing import Any

from unifiednn_core.bench.overhead import Overhead, measure

ABOUT = "What the engine costs for each step, beside a bare loop with the same network and resident data."
HEADS = (
    "network",
    "sub-models",
    "quantum",
    "bare step",
    "with engine",
    "added to a step",
    "ratio",
    "same weights",
    "holds",
)


def described(found: tuple[Overhead, ...]) -> dict[str, Any]:
    """Tables and figures."""
    rows = [
        (
            entry.network,
            str(entry.submodels),
            entry.quantum,
            f"{1e6 * median(entry.bare_step_s):,.0f} µs",
            f"{1e6 * median(entry.engine_step_s):,.0f} µs",
            f"{1e6 * median(entry.overheads_s):+,.1f} µs",
            f"{median(entry.ratios):.3f}",
            "yes" if entry.identical_weights else "**no**",
            "yes" if entry.holds else "**no**",
        )
        for entry in found
    ]
    return {
        "about": ABOUT,
        "passed": all(entry.holds and entry.identical_weights for entry in found),
        "thresholds": [],
        "notes": ["Promised: at most 2 % of a step of 5 ms and more, under 60 µs of a shorter one."],
        "tables": [{"title": "Medians over the repeats:", "heads": HEADS, "rows": rows}],
        "measured": [asdict(entry) for entry in found],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(described(measure(repeats=int(sys.argv[1])))) + "\n")
