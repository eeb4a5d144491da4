"""A comparison as one HTML file that needs no network and no other file, and runs no script but its own."""

import base64
import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from unifiednn_core.spec.run import Mode
from unifiednn_core.views.comparison import Comparison
from unifiednn_core.views.comparison import arms_of as shown_arms
from unifiednn_core.views.figures.board import document
from unifiednn_core.views.markup import bold, faint, small, text
from unifiednn_core.views.report import cards, selection, tables
from unifiednn_core.views.report.charts import arms_of, charts
from unifiednn_core.views.report.charts import scripts as own_scripts
from unifiednn_core.views.runs import RunView
from unifiednn_core.views.side_by_side import Side, merged

HERE = Path(__file__).parent
BOARD = '<div id="board"></div><noscript>The charts need JavaScript; the figures above do not.</noscript>'


def render(comparison: Comparison, views: Mapping[Mode, RunView], plotly_js: str) -> str:
    """The page: verdict, arms, curves, memory, schedule, environment, command.

    `views` holds one run of each arm, with its curves; `plotly_js` is the text of plotly.min.js, which the page embeds.
    """
    drawn, hybrid = charts(views, ("loss", "accuracy")), views.get("hybrid")
    board = None if hybrid is None or not drawn else document(hybrid, drawn, arms_of(views))
    parts = (
        _header(comparison, hybrid),
        "<main>",
        cards.cards(comparison),
        f'<section class="part">{tables.arms(comparison)}</section>',
        BOARD if board else "",
        f'<section class="part">{tables.submodels(comparison)}</section>',
        folded("Weights", tables.weights(comparison)),
        folded("Environment", tables.environment(comparison)),
        folded("Command and spec", _command(hybrid)) if hybrid else "",
        "</main>",
        _footer(comparison),
    )
    return page(f"{comparison.name}: hybrid against plain PyTorch", parts, board, plotly_js)


def render_selection(sides: Sequence[Side], plotly_js: str) -> str:
    """The page of runs side by side."""
    board = document(merged(sides), selection.charts(sides))
    names = " · ".join(side.label for side in sides)
    parts = (
        f"<header><h1>Side by side</h1><div class='u-faint'>{text(names)}</div></header>",
        "<main>",
        selection.cautions_html(sides),
        f'<section class="part">{selection.figures_table(sides)}</section>',
        BOARD,
        f'<section class="part">{selection.settings_table(sides)}</section>',
        folded("Machines", selection.machines_table(sides)),
        folded("Weights", selection.weights_table(sides)),
        "</main>",
        f"<footer class='u-small'>{faint(f'UnifiedNN, {_day(time.time())}. This file loads nothing.')}</footer>",
    )
    return page(f"Side by side: {names}", parts, board, plotly_js)


def page(title: str, parts: Iterable[str], board: object | None, plotly_js: str) -> str:
    """A page of these parts, whose `board`, if it has one, is drawn in the place that `BOARD` leaves."""
    scripts = [script(plotly_js), script(own_scripts() + _own("report.js"))] if board else []
    data = f'<script type="application/json" id="figures">{data_block(board)}</script>' if board else ""
    head = _head(title, [content for content, _ in scripts])
    whole = (head, "<body>", *parts, data, *(element for _, element in scripts), "</body></html>\n")
    return "\n".join(part for part in whole if part)


def script(text: str) -> tuple[str, str]:
    """A script as its content and its element; the content cannot end the element early."""
    content = re.sub("</(?=script)", r"<\\/", text, flags=re.IGNORECASE).replace("<!--", "<\\!--").replace("\r\n", "\n")
    return content, f"<script>{content}</script>"


def data_block(value: object) -> str:
    """Value as JSON that is safe inside an element: without `<`, `>` and `&`."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _head(title: str, scripts: list[str]) -> str:
    digests = (base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in scripts)
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
    policy += "base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title>"
        f"<style>{_own('parts.css')}{_own('report.css')}</style></head>"
    )


def _own(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _header(comparison: Comparison, hybrid: RunView | None) -> str:
    facts = [comparison.run_id]
    if hybrid is not None:
        threads = "" if hybrid.threads is None else f"{hybrid.threads} thread{'' if hybrid.threads == 1 else 's'}"
        facts = [hybrid.state.value, hybrid.policy_text, hybrid.device, threads, _day(hybrid.created_at_s), *facts]
    line = text(" · ".join(fact for fact in facts if fact))
    return (
        f"<header><h1>{text(comparison.name)}</h1><div class='u-faint'>{line}</div>"
        f"{small('One hybrid process against the same training by plain PyTorch. Every ratio is hybrid / baseline.')}"
        "</header>"
    )


def folded(title: str, content: str) -> str:
    """Content behind its title."""
    return f"<details><summary>{title}</summary>{content}</details>"


def _command(hybrid: RunView) -> str:
    spec = text(json.dumps(hybrid.spec, indent=2))
    return f"<pre>unifiednn compare spec.json</pre>{small('spec.json:')}<pre>{spec}</pre>"


def _footer(comparison: Comparison) -> str:
    troubled = [(arm.mode.capitalize(), arm.problem) for arm in shown_arms(comparison) if arm.problem]
    notes = "".join(f"<p>{bold(mode)}: {text(problem)}</p>" for mode, problem in troubled)
    return (
        f"<footer class='u-small'>{notes}{faint(f'UnifiedNN, {_day(time.time())}. This file loads nothing.')}</footer>"
    )


def _day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at_s))
