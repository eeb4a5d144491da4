"""Small pieces of HTML, with those that reports share. Every text from outside is escaped here or there."""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from pages._ui import wording
from unifiednn_core.base.errors import Finding
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views.report.markup import Looks as Looks
from unifiednn_core.views.report.markup import arm_badge as arm_badge
from unifiednn_core.views.report.markup import bold as bold
from unifiednn_core.views.report.markup import faint as faint
from unifiednn_core.views.report.markup import frame as frame
from unifiednn_core.views.report.markup import mono as mono
from unifiednn_core.views.report.markup import signed as signed
from unifiednn_core.views.report.markup import signed_name as signed_name
from unifiednn_core.views.report.markup import small as small
from unifiednn_core.views.report.markup import table as table

text = escape
"""Text as HTML."""


class Fact(NamedTuple):
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
    inside = f"{icon(words.icon)}{escape(words.label)}"
    return f'<span class="u-state" style="--c:var(--u-{words.colour})" title="{escape(words.sentence)}">{inside}</span>'


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


def section(words: str, aside: str = "") -> str:
    """Heading of a part of the page."""
    return f'<h2 class="u-section">{escape(words)}<small>{escape(aside)}</small></h2>'


def note(words: str) -> str:
    """Secondary words beside a title."""
    return f'<span class="u-note">{escape(words)}</span>'


def strip(facts: Iterable[Fact]) -> str:
    """The few figures that matter, side by side."""
    cells = (
        f'<div class="{"u-wide" if fact.wide else ""}"><dt>{escape(fact.label)}</dt><dd>{fact.value}</dd>'
        f'<div class="u-sub">{fact.sub}</div></div>'
        for fact in facts
    )
    return f'<dl class="u-strip">{"".join(cells)}</dl>'


def notice(colour: wording.Colour, symbol: str, heading: str, message: str, remedy: str = "") -> str:
    """Banner: the problem and the remedy."""
    lines = "".join(f"<p>{escape(line)}</p>" for line in (message, remedy) if line)
    looks = f'class="u-notice" role="status" style="--c:var(--u-{colour})"'
    return f"<div {looks}>{icon(symbol)}<b>{escape(heading)}</b>{lines}</div>"


def quiet(symbol: str, words: str) -> str:
    """One secondary line that needs no action."""
    return f'<div class="u-quiet" role="status">{icon(symbol)}<span>{escape(words)}</span></div>'


def findings(found: Iterable[Finding]) -> str:
    """Findings as notices, errors first."""
    notices = []
    for f in sorted(found, key=lambda finding: finding.severity != "error"):
        colour: wording.Colour = "red" if f.severity == "error" else "orange"
        notices.append(notice(colour, f.severity, f"{f.title} ({f.field})", f.message, f.remedy))
    return "".join(notices)


def shape(sides: Iterable[int | None]) -> str:
    """Shape of one input, such as `1 by 28 by 28`; a free dimension is "any"."""
    return " \N{MULTIPLICATION SIGN} ".join("any" if side is None else str(side) for side in sides) or "-"


def empty(heading: str, words: str, more: str = "") -> str:
    """Text of an empty page, above its buttons; `more` are further classes."""
    return f'<div class="u-empty {more}"><h2>{escape(heading)}</h2><p>{escape(words)}</p></div>'


def cells(looks: str, inside: Iterable[str]) -> str:
    """One line of cells; they are HTML already."""
    return f'<div class="{looks}">' + "".join(f"<span>{cell}</span>" for cell in inside) + "</div>"
