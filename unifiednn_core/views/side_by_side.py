"""Two to six runs, or sub-models of runs, side by side: figures, settings that differ, machines. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unifiednn_core.base.units import duration_text, energy_text, memory_text, percent_text
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views import techniques
from unifiednn_core.views.runs import RunView, SubModelView
from unifiednn_core.views.times import mean_turnaround_s
from unifiednn_core.views.wording import count_text

FEWEST, MOST = 2, 6
OTHER_WORK = 0.1
"""Difference in the share of processors that other work used, above which a caution names it."""
_OF_THE_RUN = ("name", "submodels")
_NAMES = ("name", "sweep_of")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A run, or one sub-model of it."""

    ref: str
    """`RUN` or `RUN/SUBMODEL`."""
    label: str
    """Unique among the sides."""
    view: RunView
    """With curves; of one sub-model only that one."""
    alone: bool
    """Whether it is one sub-model."""
    machine: Mapping[str, object]
    """Machine and versions."""

    @property
    def turnaround_s(self) -> float | None:
        """Mean of its sub-models; None until all have ended."""
        return mean_turnaround_s(part.turnaround_s for part in self.view.submodels)


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of each side; None where it is not known."""

    title: str
    values: tuple[float | None, ...]
    write: Callable[[float], str]
    points: bool = False
    """Whether values are shares, whose differences are percentage points."""

    def texts(self) -> tuple[str, ...]:
        """Each value with its difference from the first."""
        first = self.values[0]
        return tuple(
            "-" if value is None else self.write(value) + (self._beside(first, value) if place else "")
            for place, value in enumerate(self.values)
        )

    def _beside(self, first: float | None, value: float) -> str:
        if value == first:
            return " (equal)"
        if first is None or not (first or self.points):
            return ""
        change = 100 * (value - first) if self.points else 100 * (value / first - 1)
        size = abs(change)
        many = f"{size:.1f}" if self.points or size < 1 else f"{size:.0f}"
        sign = "+" if change > 0 else "\N{MINUS SIGN}"
        shown = "< 0.1" if many == "0.0" else f"{sign}{many}"
        return f" ({f'{shown} points' if self.points else f'{shown} %'})"


def counted(sides: Sequence[Side]) -> str:
    """What they are: runs, sub-models of one run or of several, or both."""
    count, runs = len(sides), len({side.view.run_id for side in sides})
    if all(side.alone for side in sides):
        if runs == 1:
            return f"{count} sub-models of one run"
        return f"{count} sub-models of {runs} runs"
    if any(side.alone for side in sides):
        return f"{count} runs and sub-models"
    return count_text(count, "run")


def labels(named: Sequence[tuple[str, str, str | None]]) -> tuple[str, ...]:
    """Labels of (run id, name of the run, sub-model), unique by the end of the id where names are equal."""
    plain = [name if part is None else f"{name} / {part}" for _, name, part in named]
    return tuple(
        text if plain.count(text) == 1 else f"{text} ({run_id[-6:]})"
        for text, (run_id, _, _) in zip(plain, named, strict=True)
    )


def merged(sides: Sequence[Side]) -> RunView:
    """All sides as one run, for the charts: sub-models under the label of their side, times from each launch."""
    parts: list[SubModelView] = []
    turns = []
    for side in sides:
        offset_s = side.view.launch_offset_s
        known = {part.name for part in side.view.submodels}
        for part in side.view.submodels:
            parts.append(replace(part, name=_part_name(side, part.name), number=len(parts), arrival=len(parts)))
        turns += [
            turn._replace(
                submodel=_part_name(side, turn.submodel), start_s=turn.start_s + offset_s, end_s=turn.end_s + offset_s
            )
            for turn in side.view.schedule
            if turn.submodel in known
        ]
    state = State.COMPLETED if all(side.view.state in ENDED for side in sides) else State.RUNNING
    return replace(
        sides[0].view,
        run_id=",".join(side.ref for side in sides),
        state=state,
        submodels=tuple(parts),
        schedule=tuple(sorted(turns, key=lambda turn: turn.start_s)),
        launched_at_s=0.0,
        started_at_s=0.0,
        marks=(),
    )


def figures(sides: Sequence[Side]) -> list[Figure]:
    """Figures that at least one side has."""
    views = [side.view for side in sides]
    accuracies = [[y for p in view.submodels for y in (*p.test_accuracy_curve.y, p.test_accuracy)] for view in views]
    losses = [[p.train_loss for p in view.submodels if p.train_loss is not None] for view in views]
    found = [
        Figure("Sub-models", tuple(float(len(view.submodels)) for view in views), "{:.0f}".format),
        Figure("Makespan", _of_runs(sides, lambda view: view.makespan_s), duration_text),
        Figure("Mean turnaround", tuple(side.turnaround_s for side in sides), duration_text),
        Figure("Service", tuple(sum(part.service_s for part in view.submodels) for view in views), duration_text),
        Figure("Peak memory", tuple(_peak_bytes(side) for side in sides), lambda size: memory_text(round(size))),
        Figure("CPU seconds", tuple(_cpu_s(side) for side in sides), duration_text),
        Figure("GPU seconds", _of_runs(sides, lambda view: view.gpu_s), duration_text),
        Figure("Energy", _of_runs(sides, lambda view: view.energy_j), energy_text),
        Figure(
            "Best test accuracy",
            tuple(max((y for y in found if y is not None), default=None) for found in accuracies),
            percent_text,
            points=True,
        ),
        Figure(
            "Lowest training loss, last epoch", tuple(min(known, default=None) for known in losses), "{:.4g}".format
        ),
        Figure("Other work on the processors", tuple(view.others_share for view in views), percent_text, True),
    ]
    return [figure for figure in found if any(value is not None for value in figure.values)]


def facts(sides: Sequence[Side]) -> dict[str, tuple[str, ...]]:
    """What is no number, by title."""
    return {
        "State": tuple(side.view.state.value for side in sides),
        "Trained as": tuple(side.view.mode for side in sides),
        "Policy": tuple(side.view.policy_text if side.view.mode == "hybrid" else "-" for side in sides),
        "Device": tuple(side.view.device for side in sides),
        "Memory is": tuple(side.view.memory_source or "-" for side in sides),
    }


def settings(sides: Sequence[Side]) -> list[tuple[str, tuple[str, ...]]]:
    """Entries of the specs that differ; "-" where a side has none."""
    return _differing([_flat(_spec(side)) for side in sides])


def machines(sides: Sequence[Side]) -> list[tuple[str, tuple[str, ...]]]:
    """Facts of machines and versions that differ."""
    return _differing([_flat(side.machine) for side in sides])


def weights(sides: Sequence[Side]) -> list[tuple[str, tuple[str, ...]]]:
    """SHA-256 of the weights of sub-models that several sides have; one row for all where each side is one."""
    if all(side.alone for side in sides):
        return [("Weights", tuple(side.view.submodels[0].state_sha256 or "" for side in sides))]
    names = dict.fromkeys(part.name for side in sides for part in side.view.submodels)
    rows = []
    for name in names:
        hashes = [next((p.state_sha256 or "" for p in side.view.submodels if p.name == name), "") for side in sides]
        if sum(bool(sha) for sha in hashes) > 1:
            rows.append((name, tuple(hashes)))
    return rows


def cautions(sides: Sequence[Side]) -> list[str]:
    """What makes figures differ besides the settings."""
    found = []
    shares = {side.label: side.view.others_share for side in sides if side.view.others_share is not None}
    if shares and max(shares.values()) - min(shares.values()) > OTHER_WORK:
        used = ", ".join(f"{label} {percent_text(share)}" for label, share in shares.items())
        found.append(f"Other work used different shares of the processors: {used}. Do not compare times.")
    if machines(sides):
        found.append("The runs differ in machine or versions; the tab Machines shows in what.")
    if any(side.view.state not in ENDED for side in sides):
        found.append("Not all have ended; their figures still change.")
    if len({side.view.memory_source for side in sides}) > 1:
        found.append("Memory was measured in different ways.")
    return found


def document(sides: Sequence[Side]) -> dict[str, object]:
    """Everything but the curves, as JSON."""
    refs = [side.ref for side in sides]
    return {
        "runs": [{"ref": side.ref, "label": side.label, "run_id": side.view.run_id} for side in sides],
        "figures": {figure.title: dict(zip(refs, figure.values, strict=True)) for figure in figures(sides)},
        "facts": {title: dict(zip(refs, texts, strict=True)) for title, texts in facts(sides).items()},
        "settings": {name: dict(zip(refs, texts, strict=True)) for name, texts in settings(sides)},
        "machines": {name: dict(zip(refs, texts, strict=True)) for name, texts in machines(sides)},
        "weights": {name: dict(zip(refs, texts, strict=True)) for name, texts in weights(sides)},
        "cautions": cautions(sides),
    }


def _part_name(side: Side, name: str) -> str:
    return side.label if side.alone else f"{side.label} / {name}"


def _of_runs(sides: Sequence[Side], value: Callable[[RunView], float | None]) -> tuple[float | None, ...]:
    """A figure of whole runs; one sub-model has none."""
    return tuple(None if side.alone else value(side.view) for side in sides)


def _peak_bytes(side: Side) -> float | None:
    return None if side.alone else side.view.peak_memory_bytes  # one sub-model of a hybrid has no process of its own


def _cpu_s(side: Side) -> float | None:
    return side.view.submodels[0].cpu_s if side.alone else side.view.cpu_s


def _spec(side: Side) -> Mapping[str, object]:
    spec: Any = side.view.spec
    own = {part.name for part in side.view.submodels}
    parts = {part["name"]: _without(part, _NAMES) for part in spec.get("submodels", ()) if part["name"] in own}
    return next(iter(parts.values()), {}) if side.alone else {**_without(spec, _OF_THE_RUN), **parts}


def _without(values: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name not in names}


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Nested values by their path: {"policy": {"name": "fcfs"}} gives {"policy.name": "fcfs"}."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        elif name == "techniques":
            found[f"{prefix}{name}"] = techniques.line(techniques.used(values)) or "-"
        elif value is not None:
            found[f"{prefix}{name}"] = str(value)
    return found


def _differing(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    names = dict.fromkeys(name for column in columns for name in column)
    rows = [(name, tuple(column.get(name, "-") for column in columns)) for name in names]
    return [(name, texts) for name, texts in rows if len(set(texts)) > 1]
