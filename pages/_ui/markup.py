"""Small pieces of HTML. Every text that comes from outside is escaped here, and nowhere else is HTML written."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from pages._ui import wording
from pages._ui.palette import sign
from unifiednn_core.errors import Finding
from unifiednn_core.lifecycle import State


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


def sign_badge(arrival: int) -> str:
    """Letter of a sub-model on its colour."""
    mark = sign(arrival)
    return f'<span class="u-sign" style="background:{mark.colour};color:{mark.ink}">{mark.letter}</span>'


def signed_name(arrival: int, name: str) -> str:
    """Sign and name of a sub-model on one line."""
    return (
        f'<span class="u-line" style="flex-wrap:nowrap">{sign_badge(arrival)}'
        f'<b class="u-clip" title="{escape(name)}">{escape(name)}</b></span>'
    )


def bar(fraction: float, label: str, colour: str | None = None) -> str:
    """Thin progress bar; `label` says what it measures."""
    percent = 100 * min(1.0, max(0.0, fraction))
    tint = f' style="--c:{colour}"' if colour else ""
    return (
        f'<span class="u-bar" role="progressbar" aria-label="{escape(label)}" aria-valuenow="{percent:.0f}" '
        f'aria-valuemin="0" aria-valuemax="100"{tint}><i style="width:{percent:.2f}%"></i></span>'
    )


def title(text: str, *beside: str) -> str:
    """Page title; `beside` is HTML on the same line."""
    return f'<div class="u-title"><h1>{escape(text)}</h1>{"".join(beside)}</div>'


def note(text: str) -> str:
    """Secondary words beside a title."""
    return f'<span class="u-note">{escape(text)}</span>'


def section(text: str, aside: str = "") -> str:
    """Heading of a part of the page."""
    return f'<h2 class="u-section">{escape(text)}<small>{escape(aside)}</small></h2>'


def strip(facts: Iterable[Fact]) -> str:
    """The few figures that matter, side by side."""
    cells = (
        f'<div class="{"u-wide" if fact.wide else ""}"><dt>{escape(fact.label)}</dt><dd>{fact.value}</dd>'
        f'<div class="u-sub">{fact.sub}</div></div>'
        for fact in facts
    )
    return f'<dl class="u-strip">{"".join(cells)}</dl>'


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numeric: frozenset[int] = frozenset()
) -> str:
    """Table that screen readers can walk through. Cells are HTML already; heads and caption are text.

    `numeric` holds the places of the columns that are set to the right.
    """
    right = [' class="u-num"' if at in numeric else "" for at in range(len(heads))]
    head = "".join(f'<th scope="col"{r}>{escape(text)}</th>' for text, r in zip(heads, right, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{r}>{cell}</td>" for cell, r in zip(row, right, strict=True)) + "</tr>" for row in rows
    )
    return (
        f'<div class="u-scroll"><table class="u-table"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


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


def text(words: str) -> str:
    """Text as HTML."""
    return escape(words)


def bold(words: str) -> str:
    """Text as HTML, in bold."""
    return f"<b>{escape(words)}</b>"


def faint(words: str) -> str:
    """Text as HTML, secondary."""
    return f'<span class="u-faint">{escape(words)}</span>'


def small(words: str) -> str:
    """Paragraph of secondary words, set small."""
    return f'<div class="u-small u-faint">{escape(words)}</div>'


def brief(state: State, policy: str, submodels: int, figure: str, moment: str) -> str:
    """One line of a list of runs."""
    count = escape(wording.count_text(submodels, "sub-model"))
    cells = (state_badge(state), faint(policy), count, escape(figure), faint(moment))
    return '<div class="u-brief">' + "".join(f"<span>{cell}</span>" for cell in cells) + "</div>"
