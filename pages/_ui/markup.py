"""Small pieces of HTML, with those that reports share. Every text from outside is escaped here or there."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from pages._ui import wording
from unifiednn_core.errors import Finding
from unifiednn_core.lifecycle import State
from unifiednn_core.report.markup import (
    arm_badge,
    bold,
    faint,
    section,
    sign_badge,
    signed_name,
    small,
    table,
    text,
)

__all__ = [
    "Fact",
    "arm_badge",
    "bar",
    "bold",
    "brief",
    "door",
    "empty",
    "faint",
    "findings",
    "icon",
    "note",
    "notice",
    "quiet",
    "section",
    "shape",
    "sign_badge",
    "signed_name",
    "small",
    "state_badge",
    "strip",
    "table",
    "text",
    "title",
]


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of a strip. `value` and `sub` are HTML already; `label` is text."""

    label: str
    value: str
    sub: str = ""
    wide: bool = False


def icon(name: str) -> str:
    """Material symbol, hidden from screen readers: words stand beside it."""
    return f'<span class="u-icon" aria-hidden="true">{escape(name)}</span>'


def state_badge(state: State) -> str:
    """State as icon, words and colour."""
    words = wording.STATES[state]
    text = f"{icon(words.icon)}{escape(words.label)}"
    return f'<span class="u-state" style="--c:var(--u-{words.colour})" title="{escape(words.sentence)}">{text}</span>'


def bar(fraction: float, label: str, colour: str | None = None) -> str:
    """Thin progress bar; `label` says what it measures."""
    percent = 100 * min(1.0, max(0.0, fraction))
    tint = f' style="--c:{colour}"' if colour else ""
    return (
        f'<span class="u-bar" role="progressbar" aria-label="{escape(label)}" aria-valuenow="{percent:.0f}" '
        f'aria-valuemin="0" aria-valuemax="100"{tint}><i style="width:{percent:.2f}%"></i></span>'
    )


def title(words: str, *beside: str) -> str:
    """Page title; `beside` is HTML on the same line."""
    return f'<div class="u-title"><h1>{escape(words)}</h1>{"".join(beside)}</div>'


def note(text: str) -> str:
    """Secondary words beside a title."""
    return f'<span class="u-note">{escape(text)}</span>'


def strip(facts: Iterable[Fact]) -> str:
    """The few figures that matter, side by side."""
    cells = (
        f'<div class="{"u-wide" if fact.wide else ""}"><dt>{escape(fact.label)}</dt><dd>{fact.value}</dd>'
        f'<div class="u-sub">{fact.sub}</div></div>'
        for fact in facts
    )
    return f'<dl class="u-strip">{"".join(cells)}</dl>'


def terms(pairs: Iterable[tuple[str, str]]) -> str:
    """Words of a command, and what each of them means."""
    rows = "".join(f"<dt>{escape(term)}</dt><dd>{escape(meaning)}</dd>" for term, meaning in pairs)
    return f'<dl class="u-terms">{rows}</dl>'


def notice(colour: wording.Colour, symbol: str, heading: str, message: str, remedy: str = "") -> str:
    """Banner: what is the matter, and what to do."""
    remedy_line = f"<p>{escape(remedy)}</p>" if remedy else ""
    return (
        f'<div class="u-notice" role="status" style="--c:var(--u-{colour})">{icon(symbol)}<b>{escape(heading)}</b>'
        f"<p>{escape(message)}</p>{remedy_line}</div>"
    )


def quiet(symbol: str, text: str) -> str:
    """One secondary line that is good to know: nothing has to be done."""
    return f'<div class="u-quiet" role="status">{icon(symbol)}<span>{escape(text)}</span></div>'


def findings(found: Iterable[Finding]) -> str:
    """Findings as notices, errors first."""
    ordered = sorted(found, key=lambda finding: finding.severity != "error")
    return "".join(
        notice("red", "error", f"{f.title} ({f.field})", f.message, f.remedy)
        if f.severity == "error"
        else notice("orange", "warning", f"{f.title} ({f.field})", f.message, f.remedy)
        for f in ordered
    )


def shape(sides: Iterable[int | None]) -> str:
    """Shape of one input, such as `1 by 28 by 28`; a free dimension is "any"."""
    return " &times; ".join("any" if side is None else str(side) for side in sides) or "-"


def empty(heading: str, text: str) -> str:
    """What an empty screen says above its buttons."""
    return f'<div class="u-empty"><h2>{escape(heading)}</h2><p>{escape(text)}</p></div>'


def door(heading: str, text: str) -> str:
    """What stands above the one button of a page that lets nobody further."""
    return f'<div class="u-empty u-door"><h2>{escape(heading)}</h2><p>{escape(text)}</p></div>'


def brief(state: State, way: str, submodels: int, figure: str, moment: str) -> str:
    """One line of a list of runs; `way` is HTML already."""
    count = escape(wording.count_text(submodels, "sub-model"))
    cells = (state_badge(state), way, count, escape(figure), faint(moment))
    return '<div class="u-brief">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"
