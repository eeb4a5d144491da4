"""The result of a chaos test as a document, and the document as tables. Pure functions."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tools.chaos.judge import ANY_MOMENT, Outcome
from tools.chaos.plan import CHECKPOINT_STEPS
from unifiednn_core.base.failpoints import ACTIONS, POINTS

SHOWN_PROBLEMS = 50
LASTING = {
    "stop": "hosts stopped for a while (SIGSTOP)",
    "split": "networks split between a host and the database",
    "locked": "times that the store was locked",
    "files": "times that files could not be reached",
}
"""Faults of a cluster that kill nobody."""
PLACEMENT = "placement."
"""Beginning of the points that only shared hybrids pass."""
_ACTION_NAMES = {
    "sigkill": "SIGKILL",
    "sigterm": "SIGTERM",
    "disk_full": "disk full",
    "read_only": "read-only disk",
    "locked": "store locked",
}
Document = Mapping[str, Any]
Row = tuple[str, ...]


def document(outcome: Outcome, *, asked: Mapping[str, Any], elapsed_s: float) -> dict[str, Any]:
    """The document of `--json`. `asked` holds command, machine, date and version."""
    return {
        "passed": outcome.passed,
        **asked,
        "elapsed_s": round(elapsed_s, 1),
        "kills": outcome.kills,
        "exercises": outcome.exercises,
        "recovered": outcome.recovered,
        "unplanned_deaths": outcome.unplanned_deaths,
        "recovery_s": _spread(outcome.recovery_s),
        "fresh_recovery_s": _spread(outcome.fresh_recovery_s),
        "checkpoint_every_steps": CHECKPOINT_STEPS,
        "redone_steps": _spread(outcome.redone_steps),
        "commands": {
            "acknowledged": outcome.acknowledged,
            "refused": outcome.refused,
            "lost": outcome.lost_commands,
            "applied_twice": outcome.commands_applied_twice,
        },
        "steps": {
            "counted": outcome.steps,
            "twice": outcome.steps_twice,
            "missing": outcome.steps_missing,
            "other_losses": outcome.other_losses,
        },
        "stores": {"checked": outcome.stores_checked, "unreadable": outcome.unreadable_stores},
        "submodels": {"trained": outcome.submodels, "other_bits": outcome.other_bits},
        "damaged_checkpoints": {"damaged": outcome.damaged, "untold": outcome.damage_untold},
        "clock_jumps": outcome.clock_jumps,
        "downloads": {"made": outcome.downloads, "broken": outcome.broken_downloads},
        "faults": [
            {"place": place, **{action: outcome.struck[place, action] for action in ACTIONS}}
            for place in _places(outcome)
        ],
        **({"pooled": _pooled(outcome)} if outcome.submissions else {}),
        **({"cluster": _of_cluster(outcome, asked["database"])} if "database" in asked else {}),
        "problems": outcome.problems[:SHOWN_PROBLEMS],
        "kept": outcome.kept,
    }


def _pooled(outcome: Outcome) -> dict[str, int]:
    names = ("submissions", "hybrids", "shared_hybrids", "moves", "contradictions", "left_behind")
    return {name: getattr(outcome, name) for name in names}


def _of_cluster(outcome: Outcome, database: str) -> dict[str, Any]:
    names = (
        "claims",
        "double_claims",
        "lost_checkpoints",
        "late_writes",
        "left_over",
        "unreadable_pages",
        "strange_errors",
        "gave_up",
    )
    lasting = {kind: outcome.lasting[kind] for kind in LASTING}
    figures = {name: getattr(outcome, name) for name in names}
    return {"database": database, "lasting": lasting, **figures, "unsaved_s": _spread(outcome.unsaved_s)}


def result_rows(found: Document) -> list[Row]:
    """What was found, beside what was promised."""
    commands, steps, stores = found["commands"], found["steps"], found["stores"]
    submodels, damaged, downloads = found["submodels"], found["damaged_checkpoints"], found["downloads"]
    return [
        ("processes killed", f"{found['kills']:,}", ""),
        *(_pooled_rows(found["pooled"]) if "pooled" in found else []),
        *(_cluster_rows(found["cluster"]) if "cluster" in found else []),
        ("trainings, each with faults throughout", f"{found['exercises']:,}", ""),
        ("trainings that completed without help", f"{found['recovered']:,}", "all"),
        ("acknowledged commands lost", _of(commands["lost"], commands["acknowledged"]), "0"),
        ("commands that took effect twice", f"{commands['applied_twice']}", "0"),
        ("steps counted twice", _of(steps["twice"], steps["counted"]), "0"),
        ("steps missing", _of(steps["missing"], steps["counted"]), "0"),
        ("steps with another loss", _of(steps["other_losses"], steps["counted"]), "0"),
        ("unreadable stores", _of(stores["unreadable"], stores["checked"]), "0"),
        ("sub-models with other bits than without faults", _of(submodels["other_bits"], submodels["trained"]), "0"),
        ("damaged checkpoints that no event reports", _of(damaged["untold"], damaged["damaged"]), "0"),
        ("broken downloads", _of(downloads["broken"], downloads["made"]), "0"),
        ("unplanned deaths of processes", f"{found['unplanned_deaths']}", "0"),
        ("clock jumps, up to 12 h forwards or backwards", f"{found['clock_jumps']:,}", ""),
    ]


def _of(bad: int, tried: int) -> str:
    """How many of those that were tried broke a promise: nothing tried keeps none."""
    return f"{bad} of {tried:,}" if tried else "not tried"


def _pooled_rows(pooled: Mapping[str, int]) -> list[Row]:
    return [
        ("submissions", f"{pooled['submissions']:,}", ""),
        ("hybrids that trained them", f"{pooled['hybrids']:,}", ""),
        ("hybrids that trained submissions of several people", f"{pooled['shared_hybrids']:,}", ""),
        ("times that a sub-model left a hybrid before its end", f"{pooled['moves']:,}", ""),
        ("submissions left behind", _of(pooled["left_behind"], pooled["submissions"]), "0"),
        ("contradictions between hybrids, runs and sub-models", f"{pooled['contradictions']}", "0"),
    ]


def _cluster_rows(cluster: Mapping[str, Any]) -> list[Row]:
    lasting, double = cluster["lasting"], _of(cluster["double_claims"], cluster["claims"])
    return [
        *((LASTING[kind], f"{lasting[kind]:,}", "") for kind in LASTING if lasting[kind]),
        ("processes that ended because they had lost their hybrid or the store", f"{cluster['gave_up']:,}", ""),
        ("two hybrids on one device, or two workers of one hybrid", double, "0"),
        ("recorded checkpoints that were lost", f"{cluster['lost_checkpoints']}", "0"),
        ("steps recorded by an attempt that was over", f"{cluster['late_writes']}", "0"),
        ("processes and claims left behind", f"{cluster['left_over']}", "0"),
        ("stores that pages cannot read", f"{cluster['unreadable_pages']}", "0"),
        ("errors in logs that no fault explains", f"{cluster['strange_errors']}", "0"),
    ]


def time_rows(found: Document) -> list[Row]:
    """How long recovery took, and what it cost: count, median, 95th percentile, most."""
    unsaved_s = found["cluster"]["unsaved_s"] if "cluster" in found else None
    return [
        *([("since the last checkpoint, at a death", *_seconds(unsaved_s))] if unsaved_s else []),
        ("recovery, worker forked", *_seconds(found["recovery_s"])),
        ("recovery, worker a new interpreter", *_seconds(found["fresh_recovery_s"])),
        (f"steps trained again (checkpoint every {found['checkpoint_every_steps']})", *_counts(found["redone_steps"])),
    ]


def fault_rows(found: Document) -> list[Row]:
    """How often each fault struck, by place and action."""
    return [(row["place"], *(str(row[action]) if row[action] else "" for action in ACTIONS)) for row in found["faults"]]


RESULT_HEADS: Row = ("", "found", "promised")
TIME_HEADS: Row = ("", "measured", "median", "p95", "most")
FAULT_HEADS: Row = ("where it struck", *(_ACTION_NAMES[action] for action in ACTIONS))


def markdown(found: Document) -> str:
    """The tables of a result."""
    machine, commit = found["machine"], found["commit"] or "unknown"
    verdict = "It passed." if found["passed"] else "**It failed.**"
    parts = [
        f"`{found['command']}` of commit `{commit}` on {found['date']} took {found['elapsed_s']:.0f} s on"
        f" {machine['cpu']}, {machine['cores']} cores, {machine['os']}, Python {machine['python']},"
        f" torch {machine['torch']}, SQLite {machine['sqlite']}. {verdict}{_cut_off(found)}",
        _table(RESULT_HEADS, result_rows(found)),
        _table(TIME_HEADS, time_rows(found)),
        _table(FAULT_HEADS, fault_rows(found)),
        *(f"- {problem}" for problem in found["problems"]),
    ]
    return "\n\n".join(parts)


def _cut_off(found: Document) -> str:
    asked, minutes = found.get("kills_asked"), found.get("limit_minutes")
    if asked is None or minutes is None or found["kills"] >= asked:
        return ""
    return f" It was asked for {asked:,} kills; the limit of {minutes:g} minutes ended it after {found['kills']:,}."


def _places(outcome: Outcome) -> list[str]:
    moments = sorted({place for place, _ in outcome.struck if place.startswith(ANY_MOMENT)})
    of_drill = [point for point in POINTS if outcome.submissions or not point.startswith(PLACEMENT)]
    return [*of_drill, *moments]


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    """Count, median, 95th percentile and most; the percentiles are values that were measured (nearest rank)."""
    if not values:
        return None
    ordered = sorted(values)

    def rank(share: float) -> float:
        return round(ordered[max(0, math.ceil(share * len(ordered)) - 1)], 3)

    return {"count": len(ordered), "median": rank(0.5), "p95": rank(0.95), "max": rank(1.0)}


def _seconds(spread: Mapping[str, float] | None) -> Row:
    return _figures(spread, "{:.2f} s")


def _counts(spread: Mapping[str, float] | None) -> Row:
    return _figures(spread, "{:.0f}")


def _figures(spread: Mapping[str, float] | None, form: str) -> Row:
    if spread is None:
        return ("0", "", "", "")
    return (f"{spread['count']:,}", *(form.format(spread[name]) for name in ("median", "p95", "max")))


def _table(heads: Row, rows: Sequence[Row]) -> str:
    ruler = ("---", *("---:" for _ in heads[1:]))
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ruler, *rows))
