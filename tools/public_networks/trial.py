"""Tries networks: packs each, and trains those that could be packed in hybrids of five."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tools.machine import ToolFailed
from tools.public_networks import packing, training
from tools.public_networks.networks import Network
from tools.public_networks.processes import forked

HYBRID = 5
PACK_CPU_S, TRAIN_CPU_S, PLAIN_CPU_S = 150, 300, 120
Row = dict[str, Any]


def tried(networks: Sequence[Network], clones: Path) -> Iterator[list[Row]]:
    """Yield rows of networks that are done with, a hybrid at a time."""
    with tempfile.TemporaryDirectory(prefix="public-networks-") as place:
        waiting: list[tuple[Network, Row, Path]] = []
        for number, network in enumerate(networks):
            folder = Path(place) / f"n{number}"
            folder.mkdir()
            row = _packed(network, clones, folder)
            if not row["packs"]:
                yield [row]
                continue
            waiting.append((network, row, folder))
            if len(waiting) == HYBRID:
                yield _trained(waiting, clones, number // HYBRID)
                waiting = []
        if waiting:
            yield _trained(waiting, clones, len(networks) // HYBRID)


def _packed(network: Network, clones: Path, folder: Path) -> Row:
    """Pack it: by the command line alone if that can say what is asked; where that is refused, with a wrapper."""
    row: Row = {"network": network.name, "source": network.source.name, "packs": None, "refusals": []}
    ways: list[tuple[str, Path | None]] = [] if network.code and network.kind == "function" else [("as it is", None)]
    if network.code:
        written = folder / "built.py"
        written.write_text(network.code + "\n", encoding="utf-8")
        ways.append((network.kind, written))
    for way, code in ways:
        try:
            done = forked(partial(packing.pack, network, clones, code, folder / "network.pt2"), PACK_CPU_S)
        except ToolFailed as error:
            done = {"packed": False, "findings": [{"title": "Code", "message": str(error), "remedy": ""}], "facts": {}}
        if done["packed"]:
            return {**row, "packs": way, "weights": done["facts"].get("parameters")}
        row["refusals"].append({"way": way, **_first(done["findings"])})
    try:
        forked(partial(training.runs, network, clones, code), PLAIN_CPU_S)
    except ToolFailed as error:
        row["does_not_run"] = str(error)
    return row


def _first(findings: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {name: str(findings[0].get(name, "")) for name in ("title", "message", "remedy")} if findings else {}


def _trained(waiting: Sequence[tuple[Network, Row, Path]], clones: Path, turn: int) -> list[Row]:
    """Train some networks as one hybrid, and each of them by its plain loop; the files of all are deleted then."""
    ready: list[tuple[Network, Row, Path]] = []
    for network, row, folder in waiting:
        try:
            row |= forked(partial(packing.data_for, network, folder / "network.pt2", folder), PLAIN_CPU_S)
            ready.append((network, row, folder))
        except ToolFailed as error:
            row["not_trained"] = str(error)
    if ready:
        _together(ready, clones, turn)
    for _, _, folder in waiting:
        for path in folder.iterdir():
            path.unlink()
    return [row for _, row, _ in waiting]


def _together(ready: Sequence[tuple[Network, Row, Path]], clones: Path, turn: int) -> None:
    networks, rows, folders = zip(*ready, strict=True)
    criteria = [row["criterion"] for row in rows]
    try:
        hybrid = forked(partial(training.as_hybrid, folders, networks, criteria, turn), TRAIN_CPU_S)
    except ToolFailed as error:
        for row in rows:
            row["not_trained"] = str(error)
        return
    for place, (network, row, folder) in enumerate(ready):
        row["hybrid"] = {"policy": hybrid["policy"], "networks": len(ready)}
        if (cause := hybrid["failed"].get(f"n{place}")) is not None:
            row["not_trained"] = cause
            continue
        row["state_sha256"] = hybrid["hashes"][f"n{place}"]
        code = None if row["packs"] == "as it is" else folder / "built.py"
        plain = partial(training.plainly, network, clones, code, folder, row["criterion"], place)
        try:
            row["plain_sha256"] = forked(plain, PLAIN_CPU_S)
        except ToolFailed as error:
            row["not_compared"] = str(error)
