"""The result as a document, with the tables for `docs/RESULTS.md`."""

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tools.public_networks.declared import LEFT_OUT, NETWORKS, SOURCES
from tools.public_networks.networks import Source
from tools.public_networks.trial import Row

ABOUT = (
    "Public networks of other authors, each packed by what `unifiednn pack` runs, trained for two epochs of random data"
    " in hybrids of up to five, and held against a plain loop over its author's own Python code: `state_sha256` of"
    " both. The loop shares nothing with the product but the hash; it begins with the weights in the `.pt2`."
)
_PROMISED = 0.9
_WAYS = ("as it is", "function", "wrapper")
_HEADS = (
    "source",
    "networks",
    "pack as they are",
    "with a function that builds them",
    "with a wrapper",
    "trained in a hybrid",
    "bit-equal to the author's Python",
)


def rows_of(path: Path) -> list[Row]:
    """Rows of an earlier result; none if there is no such file."""
    if not path.is_file():
        return []
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["networks"]
    return rows


def line(row: Row) -> str:
    """One network in a terminal."""
    parts = [f"{row['network']}: {row['packs'] or 'refused'}"]
    parts += [f"{one['way']}: {one.get('message', '')}"[:300] for one in row["refusals"]]
    parts += [str(row[name])[:300] for name in ("not_trained", "not_compared") if name in row]
    if "plain_sha256" in row:
        parts.append("equal" if row["plain_sha256"] == row["state_sha256"] else "NOT EQUAL")
    if "does_not_run" in row:
        parts.append(f"does not run: {row['does_not_run']}")
    return " | ".join(parts)


def document(tried: Sequence[Row], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The result file. What does not even run in its author's Python does not count."""
    rows = [row for row in tried if "does_not_run" not in row]
    broken = [(row["network"], _plain(row["does_not_run"])) for row in tried if "does_not_run" in row]
    counted = _counts(rows)
    unwrapped = (counted["as it is"] + counted["function"]) / counted["networks"]
    packed_rows = [
        (f"{source.name}{f' {source.commit[:7]}' if source.commit else _installed(source)}", *_cells(part))
        for source in SOURCES
        if (part := _counts([row for row in rows if row["source"] == source.name]))["networks"]
    ]
    refused = [(row["network"], row["packs"] or "no", _why(row)) for row in rows if row["refusals"]]
    unequal = [(row["network"], _trouble(row)) for row in rows if _trouble(row)]
    trained, equal = counted["trained"], counted["equal"]
    tables = [{"title": "", "heads": _HEADS, "rows": [*packed_rows, ("**all**", *_cells(counted))]}]
    if refused:
        heads = ("not packed as it is", "packs with", "what the product says first")
        tables.append({"title": "Each refusal:", "heads": heads, "rows": refused})
    if unequal:
        tables.append({"title": "Packed, but not trained or not equal:", "heads": ("network", "why"), "rows": unequal})
    if broken:
        title = "Not counted, because the author's own Python does not run with this torch and these inputs:"
        tables.append({"title": title, "heads": ("network", "what Python says"), "rows": broken})
    return {
        "bench": "public-networks",
        "scale": "cpu",
        "about": ABOUT,
        **asked,
        "packages": {source.name: _installed(source).strip() for source in SOURCES if not source.commit},
        "threads": 1,
        "repeats_asked": 1,
        "repeats": 1,
        "complete": True,
        "passed": unwrapped >= _PROMISED and trained > 0 and equal == trained,
        "thresholds": [],
        "notes": [
            f"Promised: 90 % pack as they are, 100 % of those trained are equal. Without a wrapper: {unwrapped:.0%};"
            f" by the command line alone: {counted['as it is'] / counted['networks']:.0%}; equal: {equal} of"
            f" {trained} trained.",
            "A function counts as no wrapper: it only calls the author's constructor, where that takes an object such"
            " as a config, which no command line can give.",
            "Data sets that scripts download on import are a few random images here. Where torchvision's compiled part"
            " does not fit torch, its operators exist in name alone.",
            "Each row of the file names its commit: `--only` tries some networks anew and keeps the other rows.",
            *_untried({row["network"] for row in tried}),
            *(f"Left out. {note}" for note in LEFT_OUT),
        ],
        "tables": tables,
        "networks": list(tried),
    }


def _untried(names: AbstractSet[str]) -> list[str]:
    """A note on networks that are declared, but have no row."""
    rest = [network.source.name for network in NETWORKS if network.name not in names]
    counts = ", ".join(f"{rest.count(name)} of {name}" for name in dict.fromkeys(rest))
    return [f"Declared, but not tried yet: {counts}."] if rest else []


def _counts(rows: Sequence[Row]) -> dict[str, int]:
    return {
        "networks": len(rows),
        **{way: sum(row["packs"] == way for row in rows) for way in _WAYS},
        "trained": sum("state_sha256" in row for row in rows),
        "equal": sum("plain_sha256" in row and row["plain_sha256"] == row["state_sha256"] for row in rows),
    }


def _cells(counted: Mapping[str, int]) -> list[str]:
    return [str(counted[name]) for name in ("networks", *_WAYS, "trained", "equal")]


def _installed(source: Source) -> str:
    try:
        return f" {version(source.name)}"
    except PackageNotFoundError:
        return ""


def _why(row: Row) -> str:
    first = row["refusals"][-1 if row["packs"] is None else 0]
    return _plain(f"{first.get('title', '')}: {first.get('message', '')}")


def _trouble(row: Row) -> str:
    if "plain_sha256" in row:
        return "" if row["plain_sha256"] == row["state_sha256"] else "other bits than the author's Python"
    return _plain(row.get("not_trained") or row.get("not_compared") or "")


def _plain(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.replace("|", "/").split())[:240]
