"""Results as tables: of one bench in a terminal, and of all on the page `docs/RESULTS.md`. Pure but for `render`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench import paper
from unifiednn_core.base.units import memory_text

Row = Sequence[str]
Figures = Sequence[float] | None
Document = Mapping[str, Any]
PAGE = "RESULTS.md"
MISSING, WITHHELD = "not available", "withheld"
SAME = 0.005
"""Distance of a ratio from 1 up to which it is no difference: two decimals show none."""
_FIGURES = {
    "memory": "memory",
    "makespan": "makespan",
    "mean_turnaround": "mean turnaround",
    "cpu_seconds": "CPU seconds",
}
_ARM_HEADS = ("arm", "peak memory", "makespan", "mean turnaround", "CPU seconds", "GPU seconds", "repeats")
_PART_HEADS = ("arm, sub-model", "wait", "service", "turnaround", "accuracy on test data")
_VERDICT_HEADS = ("hybrid / baseline", *_FIGURES.values(), "same weights")
_RATIO_HEADS = ("bench", "hybrid", "against", "repeats", *_FIGURES.values(), "same weights")
_PROMISE_HEADS = ("bench", "what", "promised", "measured")
_HOLDS, _BROKEN = "holds", "**no**"
_SAME = {True: "yes", False: _BROKEN, None: MISSING}


def table(heads: Row, rows: Sequence[Row], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose others are figures."""
    ruler = [*["---"] * texts, *("---:" for _ in heads[texts:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ruler, *rows))


def _spread(figures: Figures, form: str = "{:.1f} s") -> str:
    """Median, and least and greatest where there are several."""
    if not figures:
        return MISSING
    middle, low, high = (form.format(value) for value in (median(figures), min(figures), max(figures)))
    return middle if low == high else f"{middle} ({low} to {high})"


def memory(figures: Figures) -> str:
    """Median, and least and greatest where there are several."""
    if not figures:
        return MISSING
    texts = [memory_text(round(value)) for value in (median(figures), min(figures), max(figures))]
    return texts[0] if len(set(figures)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def ratio(figures: Sequence[float]) -> str:
    """Median, least and greatest, and what that means: gains and losses in equal words."""
    if all(abs(figure - 1) < SAME for figure in figures):
        word = "no difference"
    else:
        word = "less" if max(figures) < 1 else "more" if min(figures) > 1 else "no difference beyond the spread"
    return f"{_spread(figures, '{:.2f}')}, {word}"


def section(found: Document) -> str:
    """All tables of one result."""
    parts = [f"{found['bench']}, scale {found['scale']}", found["about"], origin(found)]
    for case in found.get("cases", ()):
        parts += _case(case)
    for extra in found.get("tables", ()):
        parts += [extra["title"], table(extra["heads"], extra["rows"])]
    if found["thresholds"]:
        parts.append(table(("promised", "at most", "median", _HOLDS), [_held(entry) for entry in found["thresholds"]]))
    heads, rows = paper.printed(found["bench"])
    if rows:
        parts += ["What the paper prints:", table(heads, rows, texts=3)]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in found["notes"])])


def origin(found: Document) -> str:
    """Where a result is from: command, commit, date, machine and versions."""
    machine = found["machine"]
    gpu = f", {machine['gpu']} (driver {machine.get('driver', 'unknown')})" if machine.get("gpu") else ""
    return (
        f"`{found['command']}` of commit `{found['commit'] or 'unknown'}` on {found['date']}: {found['repeats']} of"
        f" {found['repeats_asked']} repeats, threads of a process: {found['threads']}, {machine['cpu']},"
        f" {machine['cores']} cores, {memory_text(machine['memory_bytes'])}{gpu}, Python {machine['python']},"
        f" torch {machine['torch']}."
    )


def _case(case: Document) -> list[str]:
    arms = {f"hybrid, {way}": arm for way, arm in case["hybrids"].items()} | dict(case["baselines"])
    verdicts = [(f"{way} / {mode}", verdict) for way, by in case["verdicts"].items() for mode, verdict in by.items()]
    rows = [
        (f"{arm}, {name}", *map(_spread, _times(part)), _percent(part["test_accuracy"]))
        for arm, found in arms.items()
        for name, part in found["submodels"].items()
    ]
    parts = [f"**{case['name']}**: {_submodels(case)}", table(_ARM_HEADS, [_arm(*one) for one in arms.items()])]
    if verdicts:
        parts.append(table(_VERDICT_HEADS, [(name, *_ratios(verdict, ratio)) for name, verdict in verdicts]))
    reasons = dict.fromkeys(f"{name}: {reason}." for name, verdict in verdicts for reason in _reasons(verdict))
    return [*parts, *(f"Withheld, {reason}" for reason in reasons), table(_PART_HEADS, rows)]


def _submodels(case: Document) -> str:
    return "; ".join(
        f"{name}: {part['parameters']:,} weights, {part['data'].removesuffix('.safetensors')}, {part['epochs']} epochs"
        f" of batches of {part['batch_size']}, {part['optimizer']}, learning rate {part['learning_rate']:g}"
        for name, part in case["submodels"].items()
    )


def _arm(name: str, arm: Document) -> Row:
    known = ", ".join(text for text in (arm["memory_source"], arm.get("allocator")) if text)
    times = (_spread(arm[figure]) for figure in ("makespan_s", "mean_turnaround_s", "cpu_s", "gpu_s"))
    return (name, f"{memory(arm['memory_bytes'])} ({known})", *times, str(arm["repeats"]))


def _times(part: Document) -> list[Figures]:
    return [part[figure] for figure in ("wait_s", "service_s", "turnaround_s")]


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:.1f} %"


def _ratios(verdict: Document, text_of: Any) -> list[str]:
    """A cell for each ratio of a verdict, and one for the weights."""
    cells = []
    for figure in _FIGURES:
        is_withheld = verdict["withheld_because"] or _not_compared(verdict, figure)
        cells.append(text_of(verdict[figure]) if verdict[figure] else WITHHELD if is_withheld else MISSING)
    return [*cells, _SAME[verdict["identical_weights"]]]


def _reasons(verdict: Document) -> list[str]:
    """Why figures of a verdict are withheld."""
    if verdict["withheld_because"]:
        return [verdict["withheld_because"]]
    return [reason for figure in _FIGURES for reason in _not_compared(verdict, figure)]


def _not_compared(verdict: Document, figure: str) -> list[str]:
    return [note for note in verdict.get("notes", ()) if note.startswith(f"{_FIGURES[figure]} is not compared: ")]


def _held(entry: Document) -> Row:
    way = f", {entry['hybrid']}" if "hybrid" in entry else ""
    what = f"{entry['case']}{way}: {_FIGURES.get(entry['figure'], entry['figure'])} against {entry['against']}"
    middle = MISSING if entry["median"] is None else f"{entry['median']:.2f}"
    return (what, f"{entry['at_most']:.2f}", middle, _SAME[entry["holds"]])


def read_results(folder: Path) -> list[tuple[str, Document]]:
    """All results of benches in a folder with the names of their files; raises `OSError`, `ValueError`."""
    found = [(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    return [(name, document) for name, document in found if isinstance(document, dict) and "bench" in document]


def render(folder: Path) -> None:
    """Make the tables of the page beside a folder of results anew, if there is one. Raises `OSError`."""
    page = folder.parent / PAGE
    if page.is_file():
        page.write_text(with_results(page.read_text(encoding="utf-8"), read_results(folder)), encoding="utf-8")


def with_results(page: str, results: Sequence[tuple[str, Document]]) -> str:
    """A page with the tables for which it has a place, made anew."""
    for name, body in (("promises", promises(results)), ("ratios", ratios(results))):
        before, begin, rest = page.partition(f"<!-- bench:{name}:begin -->\n")
        _, end, after = rest.partition(f"<!-- bench:{name}:end -->")
        page = f"{before}{begin}{body}\n{end}{after}" if end else page
    return page


def promises(results: Sequence[tuple[str, Document]]) -> str:
    """The promises that do not hold, of all results."""
    rows = [row for name, found in results for row in _broken(name, found)]
    if not rows:
        return "All promises of the benches on this page hold."
    return f"All other promises of the benches on this page hold.\n\n{table(_PROMISE_HEADS, rows, texts=4)}"


def _broken(name: str, found: Document) -> list[Row]:
    bench = f"[{found['bench']}](results/{name}), {found['scale']}"
    promised = " ".join(note.removeprefix("Promised: ") for note in found["notes"] if note.startswith("Promised: "))
    rows: list[Row] = []
    for what, at_most, middle, holds in map(_held, found["thresholds"]):
        rows += [(bench, what, f"at most {at_most}", middle)] if holds == _BROKEN else []
    for extra in found.get("tables", ()):
        for row in extra["rows"]:
            cells = dict(zip(extra["heads"], row, strict=True))
            if cells.pop(_HOLDS, None) == _BROKEN:
                measured = "; ".join(f"{head}: {cell}" for head, cell in [*cells.items()][1:])
                rows.append((bench, row[0], promised or MISSING, measured))
    for case in found.get("cases", ()):
        for way, by_mode in case["verdicts"].items():
            rows += [
                (bench, f"{case['name']}, {way} / {mode}: weights", "the same", "**others**")
                for mode, verdict in by_mode.items()
                if verdict["identical_weights"] is False
            ]
    return rows or ([] if found["passed"] else [(bench, "see the file", promised or MISSING, MISSING)])


def ratios(results: Sequence[tuple[str, Document]]) -> str:
    """One table of all medians of hybrid / baseline, complete results first."""
    rows, notes = [], dict[str, None]()
    for name, found in sorted(results, key=lambda one: not one[1]["complete"]):
        bench = f"[{found['bench']}](results/{name}), {found['scale']}"
        for case in found.get("cases", ()):
            for way, by_mode in case["verdicts"].items():
                for mode, verdict in by_mode.items():
                    repeats = min(case["hybrids"][way]["repeats"], case["baselines"][mode]["repeats"])
                    cells = _ratios(verdict, lambda figures: f"{median(figures):.2f}")
                    rows.append((f"{bench}: {case['name']}", way, mode, str(repeats), *cells))
                    notes |= dict.fromkeys(f"- {bench}: {reason}." for reason in _reasons(verdict))
        if not found["complete"] and found.get("cases"):
            asked = found["repeats_asked"]
            notes[f"- {bench}: cut off after {found['repeats']} of {asked} repeats; one repeat is no median."] = None
    return "\n\n".join([table(_RATIO_HEADS, rows, texts=3), "\n".join(notes)]).rstrip()
