"""The figures of all arms as HTML tables."""

from collections.abc import Mapping

from unifiednn_core.base.units import percent_text
from unifiednn_core.views.comparison import ARM_FIGURES, ArmSubModel, Comparison, Spread, arms_of
from unifiednn_core.views.report.cards import figure_text
from unifiednn_core.views.report.markup import arm_badge, bold, faint, signed_name, table, text

HEADS = {
    "memory_bytes": "Memory", "makespan_s": "Makespan", "mean_turnaround_s": "Mean turnaround",
    "cpu_s": "CPU seconds", "gpu_s": "GPU seconds", "loader_s": "Data loader", "loader_cpu_s": "Data loader, CPU",
    "wait_s": "Wait", "service_s": "Service", "turnaround_s": "Turnaround", "peak_memory_bytes": "Peak memory",
}  # fmt: skip
PART_FIGURES = ("wait_s", "service_s", "turnaround_s", "cpu_s", "peak_memory_bytes")
_ONLY_IF_MEASURED = ("gpu_s", "loader_s", "loader_cpu_s")


def arms(comparison: Comparison) -> str:
    """One row for each arm."""
    measured = {name for arm in arms_of(comparison) for name in ARM_FIGURES if getattr(arm, name) is not None}
    figures = [name for name in ARM_FIGURES if name in measured or name not in _ONLY_IF_MEASURED]
    rows = []
    for arm in arms_of(comparison):
        cells = (_cell(getattr(arm, name), name) for name in figures)
        remark = text(arm.problem or arm.memory_source or "")
        rows.append((arm_badge(arm.mode), str(len(arm.run_ids)), *cells, remark))
    heads = ("Arm", "Repeats", *(HEADS[name] for name in figures), "Remark")
    caption = "The arms: median of their repeats, lowest to highest below it"
    return table(caption, heads, rows, numeric=frozenset(range(1, len(heads) - 1)))


def submodels(comparison: Comparison) -> str:
    """One row for each sub-model and arm."""
    rows = []
    for own in comparison.hybrid.submodels:
        for arm in arms_of(comparison):
            found = next((part for part in arm.submodels if part.name == own.name), None)
            if found is not None:
                name = signed_name(own.number, own.name) if arm is comparison.hybrid else ""
                cells = (_cell(getattr(found, figure), figure) for figure in PART_FIGURES)
                rows.append((name, arm_badge(arm.mode), *cells, _accuracy(found)))
    heads = ("Sub-model", "Arm", *(HEADS[name] for name in PART_FIGURES), "Test accuracy")
    caption = "Each sub-model in each arm. A baseline counts from its launch, a hybrid from its submission."
    return table(caption, heads, rows, numeric=frozenset(range(2, 8)))


def weights(comparison: Comparison) -> str:
    """SHA-256 of each sub-model's weights in every arm and repeat."""
    rows = []
    for own in comparison.hybrid.submodels:
        expected = next((sha for sha in own.state_sha256 if sha), None)
        for arm in arms_of(comparison):
            for repeat, sha in enumerate(next((s.state_sha256 for s in arm.submodels if s.name == own.name), ()), 1):
                same = "-" if not sha or not expected else "equal" if sha == expected else "differs"
                hexes = f'<span class="u-mono">{text(sha)}</span>' if sha else faint("no weights")
                rows.append((signed_name(own.number, own.name), arm_badge(arm.mode), str(repeat), same, hexes))
    heads = ("Sub-model", "Arm", "Repeat", "To the hybrid's", "SHA-256 of the weights")
    return table("The same bits have the same hash", heads, rows, numeric=frozenset({2}))


def environment(comparison: Comparison) -> str:
    """Machine and versions."""
    rows = [(bold(name), text(value)) for name, value in flat(comparison.environment)]
    return table("Where it was measured", ("What", "Value"), rows or [(faint("not recorded"), "")])


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
            pairs.append((name, "not available" if value is None else str(value)))
    return pairs


def _accuracy(submodel: ArmSubModel) -> str:
    accuracy = "-" if submodel.test_accuracy is None else percent_text(submodel.test_accuracy)
    return text(accuracy) if not submodel.cause else faint(submodel.cause)


def _cell(spread: Spread | None, name: str) -> str:
    """Median over the repeats, lowest to highest below it where they differ; a dash where a repeat lacks the figure."""
    if spread is None:
        return faint("-")
    shown, low, high = (figure_text(value, name) for value in (spread.median, spread.low, spread.high))
    return text(shown) if low == high else f'{text(shown)}<span class="u-under">{text(f"{low} to {high}")}</span>'
