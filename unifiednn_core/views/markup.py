"""Small pieces of HTML for pages and reports, and the one renderer of tables. All texts are escaped by `text`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from html import escape
from typing import Any, NamedTuple

from unifiednn_core.base.errors import Finding
from unifiednn_core.base.visible import visible
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.views import wording
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import RunView, SubModelView

Looks = Mapping[str, Callable[[Any], str]]
"""By column of a table, a function that makes HTML of its values."""


def text(words: str) -> str:
    """Text as HTML: literal and visible, without elements."""
    return escape(visible(words, "\t\n\r"))


def bold(words: str) -> str:
    """Text as HTML, in bold."""
    return f"<b>{text(words)}</b>"


def faint(words: str) -> str:
    """Text as HTML, secondary."""
    return f'<span class="u-faint">{text(words)}</span>'


def mono(words: str) -> str:
    """Text as HTML, in the font of code."""
    return f'<span class="u-mono">{text(words)}</span>'


def small(words: str) -> str:
    """Paragraph of secondary text, set small."""
    return f'<div class="u-small u-faint">{text(words)}</div>'


def signed_name(number: int, name: str) -> str:
    """Letter of a sub-model on its colour, and its name, on one line."""
    mark = sign(number)
    return (
        '<span class="u-line" style="flex-wrap:nowrap">'
        f'<span class="u-sign" style="background:{mark.colour};color:{mark.ink}">{mark.letter}</span>'
        f'<b class="u-clip" title="{text(name)}">{text(name)}</b></span>'
    )


def signed(sign_and_name: tuple[int, str] | tuple[()]) -> str:
    """`signed_name` of a pair in a frame; nothing for an empty one."""
    return signed_name(*sign_and_name) if sign_and_name else ""


def arm_badge(mode: str, words: str = "") -> str:
    """Name of an arm: the hybrid filled, a baseline neutral and dashed."""
    return f'<span class="u-arm u-arm-{text(mode)}">{text(words or mode.capitalize())}</span>'


class Fact(NamedTuple):
    """One figure of a strip. `value` and `sub` are HTML already; `label` is text."""

    label: str
    value: str
    sub: str = ""
    wide: bool = False
    tip: str = ""
    """What the figure means."""


def icon(name: str) -> str:
    """Material symbol, hidden from screen readers: words follow."""
    return f'<span class="u-icon" aria-hidden="true">{text(name)}</span>'


def state_badge(state: State) -> str:
    """State as icon, words and colour."""
    return _words_badge(wording.STATES[state])


def run_badge(view: RunView) -> str:
    """State of a run, which tells if only some of its sub-models completed."""
    return _words_badge(wording.run_words(view))


def standing_badge(run: RunView, part: SubModelView) -> str:
    """State of a sub-model in its run: who trains, who is next, who waits for what."""
    return _words_badge(wording.standing_words(run, part))


def _words_badge(words: wording.StateWords) -> str:
    return badge(words.label, words.icon, words.colour, words.sentence)


def badge(label: str, symbol: str, colour: wording.Colour, tip: str) -> str:
    """Words on their colour with a symbol; `tip` says what they mean."""
    inside = f'{icon(symbol)}<span class="u-clip">{text(label)}</span>'
    said = f"{label}: {tip}" if tip else label
    return f'<span class="u-state" style="--c:var(--u-{colour})" title="{text(said)}">{inside}</span>'


def bar(fraction: float, label: str, colour: str | None = None) -> str:
    """Thin progress bar; `label` says what it measures."""
    percent = 100 * min(1.0, max(0.0, fraction))
    tint = f' style="--c:{colour}"' if colour else ""
    return (
        f'<span class="u-bar" role="progressbar" aria-label="{text(label)}" aria-valuenow="{percent:.0f}" '
        f'aria-valuemin="0" aria-valuemax="100"{tint}><i style="width:{percent:.2f}%"></i></span>'
    )


def parts_bar(parts: Iterable[tuple[float, str]], label: str) -> str:
    """Thin bar of several parts, each a fraction of the whole with its colour; `label` says what it measures."""
    inside = "".join(
        f'<i style="width:{100 * min(1.0, max(0.0, fraction)):.1f}%;--c:{colour}"></i>' for fraction, colour in parts
    )
    return f'<span class="u-bar u-parts" role="img" aria-label="{text(label)}">{inside}</span>'


def title(words: str, *more: str) -> str:
    """Page title; `more` is HTML on the same line."""
    return f'<div class="u-title"><h1 title="{text(words)}">{text(words)}</h1>{"".join(more)}</div>'


def section(words: str, aside: str = "", *, place: str = "") -> str:
    """Heading of a part of the page; `place` is the id to which links lead."""
    where = f' id="{place}"' if place else ""
    return f'<h2 class="u-section"{where}>{text(words)} <small>{text(aside)}</small></h2>'


def note(words: str) -> str:
    """Secondary words after a title."""
    return f'<span class="u-note" title="{text(words)}">{text(words)}</span>'


def strip(facts: Iterable[Fact], looks: str = "") -> str:
    """The few figures that matter, side by side; `looks` are further classes."""
    cells = (
        f'<div class="{"u-wide" if fact.wide else ""}"><dt{_tip(fact.tip)}>{text(fact.label)}</dt><dd>{fact.value}</dd>'
        f'<dd class="u-sub">{fact.sub}</dd></div>'
        for fact in facts
    )
    return f'<dl class="u-strip {looks}">{"".join(cells)}</dl>'


def _tip(words: str) -> str:
    return f' title="{text(words)}"' if words else ""


def notice(colour: wording.Colour, symbol: str, heading: str, message: str, remedy: str = "") -> str:
    """Banner: the problem and the remedy."""
    lines = "".join(f"<p>{text(line)}</p>" for line in (message, remedy) if line)
    looks = f'class="u-notice" role="status" style="--c:var(--u-{colour})"'
    return f"<div {looks}>{icon(symbol)}<b>{text(heading)}</b>{lines}</div>"


def quiet(symbol: str, words: str) -> str:
    """One secondary line that needs no action."""
    return f'<div class="u-quiet" role="status">{icon(symbol)}<span>{text(words)}</span></div>'


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
    return f'<div class="u-empty {more}"><h2>{text(heading)}</h2><p>{text(words)}</p></div>'


def cells(looks: str, inside: Iterable[str]) -> str:
    """One line of cells; they are HTML already."""
    return f'<div class="{looks}">' + "".join(f"<span>{cell}</span>" for cell in inside) + "</div>"


def table(
    caption: str, rows: Iterable[Mapping[str, object]], looks: Looks | None = None, right: Collection[str] = ()
) -> str:
    """Rows, from heads to values, as a table that screen readers can walk through; None is shown as a dash.

    Values without a look are shown as escaped text. Columns of numbers are set to the right, and those in `right`.
    """
    rows = list(rows)
    head, columns = "", []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        start = ' class="u-num"' if name in right or _are_numbers(values) else ""
        look = (looks or {}).get(name, _plain)
        head += f'<th scope="col"{start}>{text(name)}</th>'
        label = f' data-label="{text(name)}"'  # shown on phones, where rows are cards
        columns.append([f"<td{start}{label}>{'-' if value is None else look(value)}</td>" for value in values])
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True))
    return (
        f'<div class="u-scroll" role="region" tabindex="0" aria-label="{text(caption)}">'
        f'<table class="u-table"><caption>{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _are_numbers(values: Iterable[object]) -> bool:
    kinds = {type(value) for value in values if value is not None}
    return kinds in ({int}, {float})


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else text(str(value))
