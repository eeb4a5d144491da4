"""Sweeps of a run as tables: what each member varies, and how well it trains. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from unifiednn_core.base.units import percent_text
from unifiednn_core.spec.choice import shown
from unifiednn_core.views.runs import RunView, SubModelView

Row = dict[str, object]


def sweep_rows(view: RunView) -> dict[str, list[Row]]:
    """Rows of each sweep, best member first: by test accuracy, else by test loss, else by training loss."""
    parts = {part.name: part for part in view.submodels}
    found: dict[str, list[Mapping[str, Any]]] = {}
    spec: Mapping[str, Any] = view.spec
    for asked in spec.get("submodels", ()):
        if asked.get("sweep_of") and asked["name"] in parts:
            found.setdefault(str(asked["sweep_of"]), []).append(asked)
    return {sweep: _rows(members, parts) for sweep, members in found.items()}


def _rows(members: list[Mapping[str, Any]], parts: Mapping[str, SubModelView]) -> list[Row]:
    values = {member["name"]: _flat(member.get("hyperparameters", {})) for member in members}
    entries = dict.fromkeys(entry for one in values.values() for entry in one)
    varied = [entry for entry in entries if len({shown(one.get(entry)) for one in values.values()}) > 1]
    ranked = sorted(values, key=lambda name: _rank(parts[name]))
    return [
        {"Sub-model": name}
        | {entry.replace("_", " "): shown(values[name].get(entry)) for entry in varied}
        | {"Epochs": f"{parts[name].epochs_done} of {parts[name].epochs}"}
        | {"Training loss": _number(parts[name].train_loss), "Test loss": _number(parts[name].test_loss)}
        | {"Test accuracy": None if parts[name].test_accuracy is None else percent_text(parts[name].test_accuracy)}
        for name in ranked
    ]


def _rank(part: SubModelView) -> tuple[float, float, float]:
    accuracy, test, train = part.test_accuracy, part.test_loss, part.train_loss
    test_loss, train_loss = (math.inf if loss is None or math.isnan(loss) else loss for loss in (test, train))
    return math.inf if accuracy is None else -accuracy, test_loss, train_loss


def _flat(values: Mapping[str, Any], path: str = "") -> dict[str, object]:
    """Hyper-parameters by their path in a sweep: `optimizer_args.momentum`."""
    found: dict[str, object] = {}
    for entry, value in values.items():
        found |= _flat(value, f"{path}{entry}.") if isinstance(value, Mapping) else {f"{path}{entry}": value}
    return found


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"
