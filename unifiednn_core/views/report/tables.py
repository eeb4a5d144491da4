"""The figures of all arms as HTML tables."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from unifiednn_core.base.units import NOT_AVAILABLE, percent_text
from unifiednn_core.views.comparison import ARM_FIGURES, Arm, ArmSubModel, Comparison, Spread, arms_of
from unifiednn_core.views.markup import Looks, arm_badge, bold, faint, mono, signed, table, text
from unifiednn_core.views.report.cards import QUANTITIES, figure_text

HEADS = {measure.figure: measure.title for measure in QUANTITIES} | {
    "anonymous_bytes": "Anonymous pages",
    "file_bytes": "Pages of files",
    "energy_j": "Energy",
    "loader_s": "Data loader",
    "loader_cpu_s": "Data loader, CPU",
    "wait_s": "Wait",
    "service_s": "Service",
    "turnaround_s": "Turnaround",
}
PART_FIGURES = ("wait_s", "service_s", "turnaround_s", "cpu_s")
_ONLY_IF_MEASURED = ("anonymous_bytes", "file_bytes", "gpu_s", "energy_j", "loader_s", "loader_cpu_s")


def arms(comparison: Comparison) -> str:
    """One row for each arm."""
    found = arms_of(comparison)
    measured = {name for arm in found for name in ARM_FIGURES if getattr(arm, name) is not None}
    names = [name for name in ARM_FIGURES if name in measured or name not in _ONLY_IF_MEASURED]
    rows = [
        {"Arm": arm.mode, "Repeats": len(arm.run_ids)}
        | _figures(arm, names)
        | {"Remark": arm.problem or ", ".join(filter(None, (arm.memory_source, _started(arm))))}
        for arm in found
    ]
    return _table("The arms: median of their repeats, lowest to highest below it", rows)


def _started(arm: Arm) -> str:
    return f"started {', '.join(arm.starts)}" if arm.starts else ""


def submodels(comparison: Comparison) -> str:
    """One row for each sub-model and arm."""
    rows = [
        {"Sub-model": (own.number, own.name) if arm is comparison.hybrid else (), "Arm": arm.mode}
        | _figures(part, PART_FIGURES)
        | {"Test accuracy": part.cause or part.test_accuracy}
        for own in comparison.hybrid.submodels
        for arm in arms_of(comparison)
        for part in arm.submodels
        if part.name == own.name
    ]
    return _table("Each sub-model in each arm. A baseline counts from its launch, a hybrid from its submission.", rows)


def weights(comparison: Comparison) -> str:
    """SHA-256 of each sub-model's weights in every arm and repeat."""
    rows = []
    for own in comparison.hybrid.submodels:
        expected = next((sha for sha in own.state_sha256 if sha), None)
        for arm in arms_of(comparison):
            hashes = next((part.state_sha256 for part in arm.submodels if part.name == own.name), ())
            for repeat, sha in enumerate(hashes, 1):
                same = (sha == expected) if sha and expected else None
                row = {"Sub-model": (own.number, own.name), "Arm": arm.mode, "Repeat": repeat}
                rows.append(row | {"To the hybrid's": same, "SHA-256 of the weights": sha or ""})
    return _table("The same bits have the same hash", rows)


def environment(comparison: Comparison) -> str:
    """Machine and versions of the measurement."""
    pairs = flat(comparison.environment) or [("not recorded", "")]
    return _table("Machine and versions", [{"Property": name, "Value": text} for name, text in pairs])


def flat(values: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as pairs of texts: {"machine": {"cpu": "x"}} gives ("machine, cpu", "x")."""
    pairs: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{str(key).replace('_', ' ')}"
        if isinstance(value, Mapping):
            pairs += flat(value, f"{name}, ")
        elif isinstance(value, list | tuple):
            pairs.append((name, ", ".join(map(str, value))))
        else:
            pairs.append((name, NOT_AVAILABLE if value is None else str(value)))
    return pairs


def _table(caption: str, rows: Iterable[Mapping[str, object]]) -> str:
    """A table."""
    return table(caption, rows, _LOOKS, _RIGHT)


def _figures(source: Arm | ArmSubModel, names: Sequence[str]) -> dict[str, object]:
    return {HEADS[name]: getattr(source, name) for name in names}


def _spread(spread: Spread, name: str) -> str:
    """Median over the repeats, and below it the lowest and the highest if they differ."""
    shown, low, high = (figure_text(value, name) for value in (spread.median, spread.low, spread.high))
    span = f"{low} to {high}"
    return text(shown) if low == high else f'{text(shown)}<span class="u-under">{text(span)}</span>'


_LOOKS: Looks = {
    **{head: partial(_spread, name=name) for name, head in HEADS.items()},
    "Sub-model": signed,
    "Arm": arm_badge,
    "Test accuracy": lambda value: faint(value) if isinstance(value, str) else percent_text(value),
    "To the hybrid's": lambda same: "equal" if same else "differs",
    "SHA-256 of the weights": lambda sha: mono(sha) if sha else faint("no weights"),
    "Property": bold,
}
_RIGHT = {*HEADS.values(), "Test accuracy"}
