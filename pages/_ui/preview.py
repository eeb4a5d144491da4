"""Preview of a data set: figures, class balance, first samples. HTML of values that the import found."""

from collections.abc import Mapping, Sequence

from pages._ui import import_form, plan_form
from unifiednn_core.data.values import DataPreview, DataSample, ValueStats
from unifiednn_core.views import markup, wording
from unifiednn_core.views.plan_text import plan_rows
from unifiednn_core.views.runs import FileView

NO_TARGETS = "The sub-model says what it learns: its inputs, or the next token."
CHANGE = "To change it, choose this data set in '{label}' of the import options, and add the file again."
MAX_LABELLED = 24
"""Classes; more are drawn without a label each."""
MAX_BARS = 120
MAX_SHOWN_NAMES = 40


def panel(file: FileView) -> str:
    """Preview of a data set; one sentence if it has none."""
    seen = file.preview
    if seen is None:
        return markup.small("This file was imported before previews existed. Import it again to see one.")
    left = _part("Samples", _samples(seen, captions=not file.facts.get("target_shape")))
    right = _part("Class balance", _balance(seen)) if seen.class_counts else ""
    said = (_columns(seen), *seen.notes.remarks, seen.notes.part)
    below = "".join(markup.small(words) for words in said if words) + _plan(seen)
    return (
        f"{markup.strip(_figures(file, seen))}{markup.findings(import_form.in_words(seen.warnings))}"
        f'<div class="u-look">{left}{right}</div>{below}'
    )


def _figures(file: FileView, seen: DataPreview) -> list[markup.Fact]:
    missing = "no NaN, none infinite"
    if seen.not_finite:
        missing = f"{seen.not_finite:,} NaN or infinite"
    samples, shape = file.facts.get("samples"), file.facts.get("input_shape")
    sides = _sides(shape) if isinstance(shape, list | tuple) else "-"
    one = markup.Fact("One input", sides, markup.text(str(file.facts.get("input_dtype", ""))))
    if isinstance(several := file.facts.get("inputs"), Mapping):
        named = "; ".join(f"{name}: {kind}" for name, kind in several.items())
        one = markup.Fact("Inputs", f"{len(several)} of each sample", markup.text(named), wide=True)
    return [
        markup.Fact("Samples", f"{samples:,}" if isinstance(samples, int) else "-", missing),
        one,
        markup.Fact("Numbers", _range(seen.inputs), _spread(seen.inputs)),
        _target(file, seen),
    ]


def _sides(shape: Sequence[int]) -> str:
    return markup.shape(shape) if len(shape) > 1 else wording.count_text(shape[0] if shape else 1, "number")


def _target(file: FileView, seen: DataPreview) -> markup.Fact:
    if seen.targets is None and not seen.class_counts and file.facts.get("classes") is None:
        return markup.Fact("Targets", "none", NO_TARGETS)
    kind = markup.text(str(file.facts.get("target_dtype", "")))
    shape = file.facts.get("target_shape")
    each = f" · {markup.shape(shape)} each" if isinstance(shape, list | tuple) and shape else ""
    if seen.targets is not None:
        return markup.Fact("Targets", _range(seen.targets), f"{_spread(seen.targets)} · {kind}{each}")
    count = sum(number > 0 for number in seen.class_counts)
    return markup.Fact("Targets", wording.count_text(count, "class"), f"{kind}{each}")


def _range(stats: ValueStats) -> str:
    return f"{stats.minimum:.4g} to {stats.maximum:.4g}"


def _spread(stats: ValueStats) -> str:
    return f"mean {stats.mean:.4g}, std {stats.std:.4g}"


def _samples(seen: DataPreview, *, captions: bool) -> str:
    """Samples as pictures, with their targets below if these are single values; or as numbers."""
    if any(sample.image for sample in seen.samples):
        figures = "".join(_thumbnail(sample if captions else _uncaptioned(sample)) for sample in seen.samples)
        return f'<div class="u-thumbs">{figures}</div>'
    heads = "Input", "Target"
    rows = ({heads[0]: sample.values, heads[1]: sample.target} for sample in seen.samples)
    return markup.table("", rows, {heads[0]: markup.mono, heads[1]: markup.bold}, right={heads[1]})


def _uncaptioned(sample: DataSample) -> DataSample:
    return sample.model_copy(update={"target": ""})


def _thumbnail(sample: DataSample) -> str:
    label, alt = markup.text(sample.target), markup.text(f"Sample of {sample.target}")
    return (
        f'<figure><img src="{markup.text(sample.image)}" alt="{alt}">'
        f'<figcaption title="{label}">{label}</figcaption></figure>'
    )


def _balance(seen: DataPreview) -> str:
    """One bar for each class; very many classes share bars, and a line says so."""
    counts = seen.class_counts
    per_bar = -(-len(counts) // MAX_BARS)
    groups = [(start, counts[start : start + per_bar]) for start in range(0, len(counts), per_bar)]
    highest = max(sum(group) for _, group in groups) or 1
    bars = "".join(_bar(seen, start, group, highest, labelled=len(counts) <= MAX_LABELLED) for start, group in groups)
    least, most = min(counts), max(counts)
    span = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    words = f"{span} each"
    if per_bar > 1:
        words += f" · a bar is {per_bar} classes"
    dense = "" if len(counts) <= MAX_LABELLED else " u-dense"
    return f'<div class="u-balance{dense}" role="list">{bars}</div>{markup.small(words)}'


def _bar(seen: DataPreview, start: int, group: tuple[int, ...], highest: int, *, labelled: bool) -> str:
    count = sum(group)
    height = f"max({100 * count / highest:.2f}%, 1px)" if count else "0"  # a class with one target is visible
    name = seen.class_name(start) if len(group) == 1 else f"{start} to {start + len(group) - 1}"
    title = markup.text(f"{name}: {wording.count_text(count, 'target')}")
    label = f"<span>{markup.text(name)}</span>" if labelled else ""
    return (
        f'<div role="listitem" title="{title}" aria-label="{title}">'
        f'<div class="u-stem"><i style="height:{height}"></i></div>{label}</div>'
    )


def _columns(seen: DataPreview) -> str:
    notes = seen.notes
    if not notes.columns:
        return ""
    more = len(notes.columns) - MAX_SHOWN_NAMES
    names = ", ".join(notes.columns[:MAX_SHOWN_NAMES]) + (f" and {more:,} more" if more > 0 else "")
    return f"Target: column {notes.target}. Inputs, in order: {names}."


def _plan(seen: DataPreview) -> str:
    """What became of the columns of a table, if not all are plain numbers."""
    plan = seen.notes.plan
    if plan is None or all(column.kind == "number" for column in plan.columns):
        return ""
    rows = ({"Column": name, "Becomes": said} for name, said in plan_rows(plan)[:MAX_SHOWN_NAMES])
    change = CHANGE.format(label=plan_form.LABEL)
    return _part("Columns", markup.table("", rows) + markup.small(change))


def _part(heading: str, body: str) -> str:
    return f'<section><h3 class="u-section">{markup.text(heading)}</h3>{body}</section>'
