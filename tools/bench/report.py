"""Result files as the tables of `docs/RESULTS.md`: every figure beside the file that it comes from."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tools.bench import paper
from unifiednn_core.base.units import memory_text

Row = Sequence[str]
MISSING, WITHHELD = "not available", "withheld"
SAME = 0.005
"""Distance of a ratio from 1 up to which it is no difference: two decimals show none."""
Figures = Sequence[float] | None


def table(heads: Row, rows: Sequence[Row], texts: int = 1) -> str:
    """A table whose first `texts` columns are text and whose others are figures."""
    ruler = [*["---"] * texts, *("---:" for _ in heads[texts:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ruler, *rows))


def seconds(figures: Figures) -> str:
    """Median, and least and greatest where there are several."""
    return _spread(figures, "{:.1f}", " s")


def memory(figures: Figures) -> str:
    """Median, and least and greatest where there are several."""
    if not figures:
        return MISSING
    texts = [memory_text(round(value)) for value in (median(figures), min(figures), max(figures))]
    return texts[0] if len(set(figures)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def ratio(figures: Figures) -> str:
    """Median, least and greatest, and what that means: gains and losses in equal words."""
    if not figures:
        return MISSING
    if all(abs(figure - 1) < SAME for figure in figures):
        word = "no difference"
    else:
        word = "less" if max(figures) < 1 else "more" if min(figures) > 1 else "no difference beyond the spread"
    return f"{_spread(figures, '{:.2f}', '')}, {word}"


def percent(share: float | None) -> str:
    """A share, without decimals of which nothing is known."""
    return MISSING if share is None else f"{100 * share:.1f} %"


def _spread(figures: Figures, form: str, unit: str) -> str:
    if not figures:
        return MISSING
    middle, low, high = (form.format(value) for value in (median(figures), min(figures), max(figures)))
    return f"{middle}{unit}" if low == high else f"{middle}{unit} ({low} to {high})"


PAGE = "RESULTS.md"
OLDER = " **Older result, not repeated since.**"
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
PROMISES_BEGIN, PROMISES_END = "<!-- bench:promises:begin -->", "<!-- bench:promises:end -->"
RATIOS_BEGIN, RATIOS_END = "<!-- bench:ratios:begin -->", "<!-- bench:ratios:end -->"
Document = Mapping[str, Any]
_ARM_HEADS = ("arm", "peak memory", "makespan", "mean turnaround", "CPU seconds", "GPU seconds", "repeats")
_LOADER_HEADS, _PAGE_HEADS = ("data loader", "data loader, CPU"), ("anonymous pages", "pages of files")
_VERDICT_HEADS = ("hybrid / baseline", "memory", "makespan", "mean turnaround", "CPU seconds", "same weights")
_RATIO_HEADS = (
    "bench",
    "hybrid",
    "against",
    "repeats",
    "memory",
    "makespan",
    "mean turnaround",
    "CPU seconds",
    "same weights",
)
_PROMISE_HEADS = ("bench", "what", "promised", "measured")
_HOLDS, _BROKEN = "holds", "**no**"
_PART_HEADS = ("arm, sub-model", "wait", "service", "turnaround", "peak memory", "accuracy on test data")
_SAME = {True: "yes", False: _BROKEN, None: MISSING}
_CODE = "../tools/bench/"
_FIGURE_NAMES = {
    "memory": "memory",
    "makespan": "makespan",
    "mean_turnaround": "mean turnaround",
    "cpu_seconds": "CPU seconds",
}


def read_results(folder: Path) -> list[tuple[str, Document]]:
    """All results of benches in a folder with the names of their files; raises `OSError`, `ValueError`.

    Those of techniques have a page of their own.
    """
    found = [(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]
    found = [(name, document) for name, document in found if isinstance(document, dict) and "bench" in document]
    return [(name, document) for name, document in found if not document["bench"].startswith("techniques")]


def with_results(page: str, results: Sequence[tuple[str, Document]], figures: Sequence[paper.Figure]) -> str:
    """A page with its tables made anew; raises `ValueError` if it has no place for them."""
    nothing = "Nothing has been measured yet."
    parts = [section(name, document, figures) for name, document in results]
    page = _between(page, PROMISES_BEGIN, PROMISES_END, promises(results))
    page = _between(page, RATIOS_BEGIN, RATIOS_END, ratios(results) or nothing)
    return _between(page, BEGIN, END, "\n\n".join(parts) or nothing)


def _between(page: str, begin: str, end: str, body: str) -> str:
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"The page has no lines {begin} and {end} to put the tables between.")
    return f"{before}{begin}\n{body}\n{end}{after}"


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
    for entry in found["thresholds"]:
        what, at_most, middle, holds = _held(entry)
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
    return rows or ([] if found["passed"] else [(bench, "its section says what", promised or MISSING, MISSING)])


def ratios(results: Sequence[tuple[str, Document]]) -> str:
    """One table of all medians of hybrid / baseline, complete results first; an older result has a star."""
    rows, notes = [], dict[str, None]()
    for name, found in sorted(results, key=lambda one: not one[1]["complete"]):
        bench = f"[{found['bench']}](results/{name}), {found['scale']}"
        for case in found.get("cases", ()):
            for way, by_mode in case["verdicts"].items():
                for mode, verdict in by_mode.items():
                    repeats = min(case["hybrids"][way]["repeats"], case["baselines"][mode]["repeats"])
                    figures = (_or_withheld(_middle(verdict[figure]), verdict, figure) for figure in _FIGURE_NAMES)
                    star = "*" if _is_older(found) else ""
                    same = _SAME[verdict["identical_weights"]]
                    rows.append((f"{bench}: {case['name']}{star}", way, mode, str(repeats), *figures, same))
                    notes |= dict.fromkeys(f"- {bench}: {reason}." for reason in _reasons(verdict))
        if not found["complete"] and found.get("cases"):
            asked = _counted(found["repeats_asked"], "repeat")
            notes[f"- {bench}: cut off after {found['repeats']} of {asked}; one repeat is no median."] = None
    return "\n\n".join([table(_RATIO_HEADS, rows, texts=3), "\n".join(notes)]).rstrip() if rows else ""


def _middle(figures: Figures) -> str:
    return f"{median(figures):.2f}" if figures else MISSING


def _or_withheld(text: str, verdict: Document, figure: str) -> str:
    """`withheld` for a figure that is missing for a reason."""
    withheld = verdict["withheld_because"] or _not_compared(verdict, figure)
    return WITHHELD if text == MISSING and withheld else text


def _reasons(verdict: Document) -> list[str]:
    """Why figures of a verdict are withheld."""
    if verdict["withheld_because"]:
        return [verdict["withheld_because"]]
    return [reason for figure in _FIGURE_NAMES for reason in _not_compared(verdict, figure)]


def _not_compared(verdict: Document, figure: str) -> list[str]:
    return [note for note in verdict.get("notes", ()) if note.startswith(f"{_FIGURE_NAMES[figure]} is not compared: ")]


def _is_older(found: Document) -> bool:
    return str(found["command"]).startswith("unifiednn ")


def render(folder: Path) -> bool:
    """Make the page beside a folder of results anew; False if there is no such page. Raises `OSError`."""
    page = folder.parent / PAGE
    if not page.is_file():
        return False
    text = page.read_text(encoding="utf-8")
    page.write_text(with_results(text, read_results(folder), paper.read()), encoding="utf-8")
    return True


def section(file: str, found: Document, figures: Sequence[paper.Figure]) -> str:
    """One result."""
    parts = [f"### `{found['bench']}`, scale {found['scale']}", found["about"], origin(file, found)]
    for case in found.get("cases", ()):
        parts += _case(case)
    for extra in found.get("tables", ()):
        parts += [extra["title"], table(extra["heads"], extra["rows"])]
    if found["thresholds"]:
        parts.append(table(("promised", "at most", "median", _HOLDS), [_held(entry) for entry in found["thresholds"]]))
    printed = paper.rows(figures, found["bench"])
    if printed:
        parts.append(f"What the paper prints (from [{paper.FIGURES.name}]({_CODE}{paper.FIGURES.name})):")
        parts.append(table(paper.HEADS, printed))
    parts.append("\n".join(f"- {note}" for note in found["notes"]))
    return "\n\n".join(part for part in parts if part)


def origin(file: str, found: Document) -> str:
    """Where a result is from: command, commit, date, machine and versions."""
    machine = found["machine"]
    gpu = f", {machine['gpu']} (driver {machine.get('driver', 'unknown')})" if machine.get("gpu") else ""
    whole = "" if found["complete"] else f" Cut off: {_counted(found['repeats_asked'], 'repeat')} asked for."
    older = OLDER if _is_older(found) else ""
    return (
        f"`{found['command']}` of commit `{found['commit'] or 'unknown'}` on {found['date']}:"
        f" {_counted(found['repeats'], 'repeat')}, {_counted(found['threads'], 'thread')} per process, on"
        f" {machine['cpu']}, {machine['cores']} cores, {memory_text(machine['memory_bytes'])}{gpu},"
        f" Python {machine['python']}, torch {machine['torch']}.{whole}{older}"
        f" All figures: [{file}](results/{file})."
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _case(case: Document) -> list[str]:
    several = len(case["hybrids"]) > 1
    arms = {f"hybrid, {policy}" if several else "hybrid": arm for policy, arm in case["hybrids"].items()}
    arms |= dict(case["baselines"])
    parts = [
        f"**{case['name']}**: {_submodels(case)}",
        _arm_table(arms),
    ]
    verdicts = [
        (f"{policy} / {mode}" if several else f"hybrid / {mode}", verdict)
        for policy, by_mode in case["verdicts"].items()
        for mode, verdict in by_mode.items()
    ]
    parts.append(table(_VERDICT_HEADS, [_verdict(name, verdict) for name, verdict in verdicts]))
    reasons: dict[str, list[str]] = {}
    for name, verdict in verdicts:
        for reason in _reasons(verdict):
            reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        parts.append(f"Withheld, {'all' if 1 < len(verdicts) == len(names) else ', '.join(names)}: {reason}.")
    if len(case["submodels"]) <= 8:
        rows = [
            _part(f"{arm}, {name}", part) for arm, found in arms.items() for name, part in found["submodels"].items()
        ]
        parts += ["<details><summary>Each sub-model</summary>", table(_PART_HEADS, rows), "</details>"]
    return parts


def _submodels(case: Document) -> str:
    parts = case["submodels"]
    if len(parts) > 8:
        first = next(iter(parts.values()))
        return f"{len(parts)} times {_submodel(first)}; learning rates differ."
    return "; ".join(
        f"{name}: {_submodel(part)}, learning rate {part['learning_rate']:g}" for name, part in parts.items()
    )


def _submodel(part: Document) -> str:
    return (
        f"{part['parameters']:,} weights, {part['data'].removesuffix('.safetensors')}, {part['epochs']} epochs of"
        f" batches of {part['batch_size']}, {part['optimizer']}"
    )


def _arm_table(arms: Mapping[str, Document]) -> str:
    """One row for each arm; the kinds of pages and the loader only if they were measured, which older results lack."""
    pages, loaders = (any(arm.get(figure) for arm in arms.values()) for figure in ("file_bytes", "loader_s"))
    more = (*(_PAGE_HEADS if pages else ()), *(_LOADER_HEADS if loaders else ()))
    heads = (*_ARM_HEADS[:-1], *more, _ARM_HEADS[-1])
    return table(heads, [_arm(name, arm, pages=pages, loaders=loaders) for name, arm in arms.items()])


def _arm(name: str, arm: Document, *, pages: bool, loaders: bool) -> Sequence[str]:
    known = [text for text in (arm["memory_source"], arm.get("allocator")) if text]
    source = f" ({', '.join(known)})" if known else ""
    return (
        name,
        memory(arm["memory_bytes"]) + source,
        *(seconds(arm[figure]) for figure in ("makespan_s", "mean_turnaround_s", "cpu_s", "gpu_s")),
        *(memory(arm.get(figure)) for figure in ("anonymous_bytes", "file_bytes") if pages),
        *(_spread(arm.get(figure), "{:.2f}", " s") for figure in ("loader_s", "loader_cpu_s") if loaders),
        str(arm["repeats"]),
    )


def _verdict(name: str, verdict: Document) -> Sequence[str]:
    figures = (_or_withheld(ratio(verdict[figure]), verdict, figure) for figure in _FIGURE_NAMES)
    return (name, *figures, _SAME[verdict["identical_weights"]])


def _part(name: str, part: Document) -> Sequence[str]:
    times = (seconds(part[figure]) for figure in ("wait_s", "service_s", "turnaround_s"))
    return (name, *times, memory(part.get("peak_memory_bytes")), percent(part["test_accuracy"]))


def _held(entry: Document) -> Sequence[str]:
    way = f", {entry['hybrid']}" if "hybrid" in entry else ""  # older results name none
    what = f"{entry['case']}{way}: {_FIGURE_NAMES.get(entry['figure'], entry['figure'])} against {entry['against']}"
    median = MISSING if entry["median"] is None else f"{entry['median']:.2f}"
    return (what, f"{entry['at_most']:.2f}", median, _SAME[entry["holds"]])
