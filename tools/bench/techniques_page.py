"""`docs/TECHNIQUES.md`, from the table of techniques and from the results of their bench.

`python -m tools.bench.techniques_page --write` writes it; without, it says whether the page is up to date.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.bench import report
from unifiednn_core.base.units import memory_text
from unifiednn_core.scheduling.peaks import slowdown
from unifiednn_core.spec.techniques import TECHNIQUES, Technique, name_of

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
PAGE = "TECHNIQUES.md"
PATTERN = "techniques-*.json"
"""Result files of this page; those without `measured` show their own tables."""
PAYS = 0.02
"""Least share of the memory that a technique has to save to pay off."""
LOST = 0.01
"""Most test accuracy, as a share, that a lossy technique may cost to pay off."""
LEARNED = 0.25
"""Least part of the way from chance to certainty that a network must have learned for its accuracy to say anything."""
_CHANCE = {"lenet": 0.1, "resnet18": 0.1, "transformer": 0.5}
"""Accuracy of guessing, by network: ten classes, or two."""
Document = Mapping[str, Any]
_TO_HOST = ("offload", "idle_offload")
_TITLES = {name_of(one): one.title for one in TECHNIQUES}
_MINUS = "\N{MINUS SIGN}"
_HEADS = (
    "network, batch",
    "technique",
    "memory of a step",
    "predicted",
    "seconds per step",
    "between turns",
    "test accuracy",
    "bits",
)

INTRODUCTION = """# Less memory for one network

A technique is a way to train one sub-model in less memory. It is an entry of the hyper-parameters:

```json
"techniques": [{"name": "compression", "bfloat16": true}]
```

A name alone stands for its defaults, and each technique stands there once; on the page Build it is a box to tick. It
is part of what was asked for: of the checkpoint's recipe, of the fingerprint, of the verdict. The check takes a step
with and without it, so that prediction, admission and forecast know what it saves, and warns of one that saves
nothing. Baselines never use any: Compare sets the technique against none. An **exact** technique leaves every bit;
weights trained by a **lossy** one are judged by test loss and accuracy and never called identical."""

HOW = """Each row is one network trained twice in one hybrid, with the technique and without, in turns of one step,
beside another tenant's LeNet; then alone. Memory of a step is its peak without weights, gradients, optimizer state
and data; memory between turns is what the sub-model keeps on the device while others train. "The same" bits are those
of the training without the technique. That a sub-model has the same bits alone and in the hybrid, and that the LeNet
beside it keeps its own, is promised for every row; a row that breaks it says so."""

PAYING = f"""A technique pays off if it saves at least {100 * PAYS:g} % of the memory of a step or between turns, and a
lossy one only if test accuracy falls by at most {100 * LOST:g} point. The trainings here are short. Accuracy near
chance (10 % with ten classes, 50 % with two) cannot judge a lossy technique: below a quarter of the way from chance to
100 % a network counts as too little trained, and the technique only "saves memory". Longer trainings with DropIT stand
under `techniques-dropit`."""

IN_TURN = """Lanes step two sub-models at once (the idea of Zico, USENIX ATC 2021): where the sum of their peaks is
too much, one climbs to the peak of its step while the other comes down from its own. The check notes from which
gradient on a step needs how much at most; a lane waits with its next step until the other is past such a place, so
the limit holds however the steps drift, and no bit changes. A pair whose steps exclude each other for too long is not
tried, and one that is measured to be no faster is parted. "In turn" is the least memory in which two of a network may
step at once, without weights and optimizer state, as the check counts it. **It does not pay off on CUDA** and is off
there: torch's allocator keeps what a stream has freed for that stream, so the peak of one lane cannot use the valley
of another."""


def page(folder: Path = RESULTS) -> str:
    """The text of the page; raises `OSError`, `ValueError` for results that cannot be read."""
    found = [(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob(PATTERN))]
    measured = [(name, one) for name, one in found if "measured" in one]
    parts = [INTRODUCTION, "## All techniques", _table_of_all()]
    if measured:
        parts += ["## Which pay off, and where", PAYING, "\n".join(_verdicts(measured)), "## Measured", HOW]
    for name, one in found:
        parts += _measured(name, one) if "measured" in one else [report.section(name, one, ())]
    if pairs := [pair for _, one in measured for pair in one.get("in_turn", ())]:
        parts += ["## Two sub-models at once: peaks in turn", IN_TURN, _table_of_pairs(pairs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table_of_pairs(pairs: Sequence[Document]) -> str:
    heads = ("two of a network, batch", "sum of the peaks", "in turn", "of a step alone", "progress at best")
    rows = [
        (
            f"{pair['network']}, {pair['batch_size']}",
            memory_text(2 * pair["peak_bytes"]),
            f"{memory_text(pair['together_bytes'])} ({_signed(pair['together_bytes'] / (2 * pair['peak_bytes']) - 1)})",
            f"{100 * pair['share']:.0f} %",
            f"{2 / slowdown(pair['share'], pair['share']):.2f} times that of one",
        )
        for pair in pairs
    ]
    return report.table(heads, rows)


def _table_of_all() -> str:
    heads = ("technique", "what it does", "from", "parameters", "bits")
    rows = [
        (f"{one.title}<br>`{name_of(one)}`", one.summary, one.paper, _parameters(one), _bits(one)) for one in TECHNIQUES
    ]
    ruler = ("---",) * len(heads)
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ruler, *rows))


def _parameters(technique: type[Technique]) -> str:
    fields = {name: field for name, field in technique.model_fields.items() if name != "name"}
    return "<br>".join(f"`{name}`: {_value(field.get_default())}" for name, field in fields.items()) or "none"


def _value(default: object) -> str:
    return "required" if repr(default) == "PydanticUndefined" else json.dumps(default, default=str)


def _bits(technique: type[Technique]) -> str:
    """Exact or lossy, and which parameters make it so."""
    if any(field.is_required() for field in technique.model_fields.values()):
        return "see the parameters"
    exact = technique().exact
    flags = [name for name, field in technique.model_fields.items() if field.annotation is bool]
    other = [name for name in flags if technique(**{name: not technique.model_fields[name].default}).exact != exact]
    word, opposite = ("exact", "lossy") if exact else ("**lossy**", "exact")
    return f"{word}; {opposite} with `{'`, `'.join(other)}`" if other else word


def _measured(name: str, found: Document) -> list[str]:
    """The table of one result file, and what had no figures."""
    rows = [_row(row) for row in found["measured"] if row["figures"] is not None]
    refused = [row for row in found["measured"] if row["figures"] is None]
    told = [f"- {_asked(row)} on {row['network']}: {' '.join(row['told']) or row['failed']}" for row in refused]
    scale = "narrowed, on a CPU" if found["scale"] == "cpu" else "at the size of the paper, on a GPU"
    notes = [f"- {note}" for note in found["notes"]]
    return [
        f"### Networks {scale}",
        report.origin(name, found),
        report.table(_HEADS, rows) if rows else "",
        "Not measured:\n\n" + "\n".join(told) if told else "",
        "\n".join(notes),
    ]


def _row(row: Document) -> Sequence[str]:
    one = row["figures"]
    return (
        f"{row['network']}, {row['batch_size']}",
        _asked(row),
        _memory(one["step_bytes"]),
        _memory(one["predicted_bytes"]),
        _seconds(one["step_s"]),
        _memory(one["rest_bytes"]),
        _accuracy(one),
        _promises(one),
    )


def _promises(one: Document) -> str:
    broken = [] if one["same_alone"] else ["**others alone**"]
    broken += [] if one["others_unchanged"] else ["**the LeNet's change**"]
    same = "the same" if one["same_bits"] else "lossy" if not one["exact"] else "**differ**"
    return ", ".join([same, *broken])


def _verdicts(results: Iterable[tuple[str, Document]]) -> list[str]:
    """A sentence for each technique and network: what it saves for what, or that it does not pay off."""
    told: dict[str, dict[str, list[str]]] = {}
    for _, found in results:
        for row in found["measured"]:
            if (one := row["figures"]) is not None:
                text = f"{row['network']} ({found['scale']}): {_gain(one, row['network'])}"
                told.setdefault(_asked(row), {}).setdefault(_verdict(row, found), []).append(text)
    return [
        f"- **{asked}**. " + " ".join(f"{verdict} {'; '.join(by[verdict])}." for verdict in _VERDICTS if verdict in by)
        for asked, by in told.items()
    ]


_VERDICTS = (
    "Pays off on",
    "Saves memory on",
    "**Does not pay off** on",
    "**Does not pay off on a CPU**, whose memory it moves to itself; a device would see",
)


def _verdict(row: Document, found: Document) -> str:
    pays, saves, not_, within = _VERDICTS
    one = row["figures"]
    if _within_host(row, found):
        return within
    if _saved(one) < PAYS:
        return not_
    return pays if one["exact"] or (_learned(one, row["network"]) and _keeps_accuracy(one)) else saves


def _learned(one: Document, network: str) -> bool:
    """Whether the network without the technique has learned enough for its accuracy to say anything."""
    chance, without = _CHANCE.get(network, 0.0), one["accuracy"]["without"]
    return without is not None and without >= chance + LEARNED * (1 - chance)


def _keeps_accuracy(one: Document) -> bool:
    without, given = _pair(one["accuracy"])
    return given is not None and without - given <= LOST


def _within_host(row: Document, found: Document) -> bool:
    """Whether the memory that a technique moves to is that from which it comes."""
    return found["scale"] == "cpu" and any(one["name"] in _TO_HOST for one in row["techniques"])


def _gain(one: Document, network: str) -> str:
    step, rest = _share(one["step_bytes"]), _share(one["rest_bytes"])
    parts = [f"{_signed(step)} memory of a step"] if step is not None else []
    parts += [f"{_signed(rest)} between turns"] if rest is not None and abs(rest) >= PAYS else []
    without, given = _pair(one["step_s"])
    parts += [f"{given / without:.2f} times the time"] if without and given else []
    if not one["exact"]:
        judged = "" if _learned(one, network) else " (too little trained to judge)"
        parts += [f"test accuracy {_accuracy(one)}{judged}"]
    return ", ".join(parts)


def _saved(one: Document) -> float:
    """Largest share of memory that is saved, in a step or between turns."""
    return max(-(_share(one[figure]) or 0.0) for figure in ("step_bytes", "rest_bytes"))


def _share(pair: Document) -> float | None:
    """Growth of a figure by a technique, as a share of the figure without; None where it is not known."""
    without, given = _pair(pair)
    return None if not without or given is None else given / without - 1


def _accuracy(one: Document) -> str:
    return " → ".join("none" if value is None else f"{100 * value:.1f} %" for value in _pair(one["accuracy"]))


def _memory(pair: Document) -> str:
    without, given = _pair(pair)
    if without is None or given is None:
        return report.MISSING
    share = _share(pair)
    change = "" if share is None else f" ({_signed(share)})"
    return f"{memory_text(round(without))} → {memory_text(round(given))}{change}"


def _seconds(pair: Document) -> str:
    without, given = _pair(pair)
    if not without or given is None:
        return report.MISSING
    return f"{1e3 * without:,.1f} → {1e3 * given:,.1f} ms ({given / without:.2f} times)"


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else _MINUS}{abs(100 * share):.0f} %" if abs(share) >= 0.005 else "± 0 %"


def _pair(pair: Document) -> tuple[Any, Any]:
    return pair["without"], pair["given"]


def _asked(row: Document) -> str:
    """Titles of the techniques, with their parameters."""
    each = []
    for one in row["techniques"]:
        given = ", ".join(f"{name} {json.dumps(value)}" for name, value in one.items() if name != "name")
        each.append(_TITLES.get(one["name"], one["name"]) + (f" ({given})" if given else ""))
    return " + ".join(each)


if __name__ == "__main__":
    place = RESULTS.parent / PAGE
    if "--write" in sys.argv[1:]:
        place.write_text(page(), encoding="utf-8")
    else:
        sys.exit(int(not place.is_file() or place.read_text(encoding="utf-8") != page()))
