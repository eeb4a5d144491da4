"""The figures of all arms as HTML tables."""

from collections.abc import Mapping

from unifiednn_core.report.cards import figure_text, range_text
from unifiednn_core.report.markup import arm_badge, bold, faint, signed_name, table, text
from unifiednn_core.units import percent_text
from unifiednn_core.views.comparison import BASELINES, Arm, ArmSubModel, Comparison, Spread

ARM_FIGURES = {
    "memory_bytes": "Memory",
    "makespan_s": "Makespan",
    "mean_turnaround_s": "Mean turnaround",
    "cpu_s": "CPU seconds",
    "gpu_s": "GPU seconds",
}
SUBMODEL_HEADS = ("Sub-model", "Arm", "Wait", "Service", "Turnaround", "CPU seconds", "Peak memory", "Test accuracy")


def arms_of(comparison: Comparison) -> list[Arm]:
    """The hybrid, then its baselines in fixed order."""
    return [comparison.hybrid, *(comparison.baselines[mode] for mode in BASELINES if mode in comparison.baselines)]


def arms(comparison: Comparison) -> str:
    """One row for each arm."""
    listed = arms_of(comparison)
    figures = [name for name in ARM_FIGURES if name != "gpu_s" or any(arm.gpu_s is not None for arm in listed)]
    rows = [
        (
            arm_badge(arm.mode),
            str(len(arm.run_ids)),
            *(_cell(getattr(arm, name), name) for name in figures),
            text(arm.problem or arm.memory_source or ""),
        )
        for arm in listed
    ]
    heads = ("Arm", "Repeats", *(ARM_FIGURES[name] for name in figures), "Remark")
    caption = "The arms: median of their repeats, lowest to highest below it"
    return table(caption, heads, rows, numeric=frozenset(range(1, len(heads) - 1)))


def submodels(comparison: Comparison) -> str:
    """One row for each sub-model and arm: wait, service, turnaround and CPU seconds are four figures."""
    listed = arms_of(comparison)
    rows = []
    for own in comparison.hybrid.submodels:
        for arm in listed:
            found = next((other for other in arm.submodels if other.name == own.name), None)
            if found is not None:
                name = signed_name(own.number, own.name) if arm is listed[0] else ""
                rows.append((name, arm_badge(arm.mode), *_submodel_cells(found)))
    caption = "Each sub-model in each arm. Turnaround counts from the launch of the arm."
    return table(caption, SUBMODEL_HEADS, rows, numeric=frozenset(range(2, 8)))


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
    return table("Where it was measured", ("What", "Value"), rows or [(faint(text("not recorded")), "")])


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


_SUBMODEL_FIGURES = ("wait_s", "service_s", "turnaround_s", "cpu_s", "peak_memory_bytes")


def _submodel_cells(submodel: ArmSubModel) -> tuple[str, ...]:
    cells = tuple(_cell(getattr(submodel, name), name) for name in _SUBMODEL_FIGURES)
    accuracy = "-" if submodel.test_accuracy is None else percent_text(submodel.test_accuracy)
    return (*cells, text(accuracy) if not submodel.cause else faint(submodel.cause))


def _cell(spread: Spread | None, name: str) -> str:
    if spread is None:
        return faint("-")
    under = range_text(spread, name)
    return text(figure_text(spread, name)) + (f'<span class="u-under">{text(under)}</span>' if under else "")
