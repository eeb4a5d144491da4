"""Wherever a stranger's text is shown, it is shown literally: it makes no element, obeys nothing, and hides nothing."""

import faulthandler
import io
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from pages._ui import banners, forecast_panel, frame, predictions, preview, run_table, submodels
from tests.hostile.names import NAMES, poisoned
from tests.ui import fake_arms, fake_views
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.base.files import safe_file_name
from unifiednn_core.base.visible import is_visible, visible
from unifiednn_core.cli import terminal
from unifiednn_core.compare import runner
from unifiednn_core.data.values import DataNotes, DataPreview, DataSample, ValueStats
from unifiednn_core.preflight.report import FileReport
from unifiednn_core.runtime import worker
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.simulator import SimulatedJob
from unifiednn_core.spec.run import parse_run
from unifiednn_core.views import graph, markup, wording
from unifiednn_core.views.figures import curves, layout, marks, memory, schedule
from unifiednn_core.views.forecast import JobSet, forecast
from unifiednn_core.views.report import cards, html, selection, tables
from unifiednn_core.views.run_lines import RunLine
from unifiednn_core.views.run_rows import metrics_frame
from unifiednn_core.views.runs import CommandView, FileView, RunView
from unifiednn_core.views.side_by_side import Side

ROOT = Path(__file__).parents[2]
MARK = "QZQ"
"""A harmless name, to compare with."""
COLOURED = re.compile(r"\x1b\[[0-9;]*m")


class Elements(HTMLParser):
    """Elements with their attributes, and the texts between and in them."""

    def __init__(self, markup: str):
        super().__init__()
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.texts: list[str] = []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attributes)))
        self.texts += [value or "" for _, value in attributes]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("!--", ()))

    def handle_decl(self, decl: str) -> None:
        self.elements.append(("!", ()))


def data_set(name: str, image: str = "") -> FileView:
    """A data set whose columns and classes have this name."""
    classes = (f"cat{name}", f"dog{name}")
    seen = DataPreview(
        inputs=ValueStats(minimum=0, maximum=1, mean=0, std=1),
        class_counts=(1, 2),
        warnings=(Finding(title=f"T{name}", field=f"f{name}", message=f"m{name}", remedy=f"r{name}"),),
        samples=tuple(DataSample(values=f"1{name}", target=one, image=image) for one in classes),
        notes=DataNotes(class_names=classes, columns=(f"a{name}",), target=f"y{name}", part=f"p{name}"),
    )
    facts: dict[str, object] = {"input_dtype": f"uint8{name}", "target_dtype": f"int64{name}", "samples": 3}
    return FileView(
        sha256="0" * 64,
        kind="data",
        filename=f"f{name}",
        format=f"csv{name}",
        size_bytes=1,
        created_at_s=0.0,
        facts=facts | {"input_shape": [1], "preview": seen.model_dump()},
    )


def pieces(name: str) -> dict[str, str]:
    """Every piece of HTML that pages and reports are made of, with this name in all its texts."""
    predicted = fake_arms.prediction()
    hybrid = poisoned(fake_arms.hybrid(waits_for="room", memory_notes=("a note",), prediction=predicted), name)
    asked = CommandView(submodel=f"lenet{name}", text=f"save{name}", issued_at_s=0.0)
    untrue = poisoned(fake_arms.certificate("lenet", holds=False), name)
    compared = poisoned(fake_arms.comparison(), name)
    held = poisoned(fake_arms.withheld("concurrent", fake_arms.WITHHELD), name)
    broken = poisoned(fake_arms.arm("concurrent", problem="it failed"), name)
    whole = {"hybrid": hybrid, "concurrent": poisoned(fake_arms.baseline("concurrent"), name)}
    whole_text = "\udce9" not in name  # the store takes no half of a character, and a table has none as its head
    valid = len(name) < 190 and whole_text  # the notes of a data set hold nothing else
    pair = sides(f"one{name}", f"two{name}", view=poisoned(fake_arms.hybrid(), name))
    words = (markup.small, markup.bold, markup.faint, markup.mono, markup.title, markup.section, markup.note)
    return {
        "words": "".join(word(name) for word in words) + markup.section("", name) + markup.bar(0.5, name),
        "notice": markup.notice("red", "x", name, name, name) + markup.quiet("x", name) + markup.empty(name, name),
        "strip": markup.strip([markup.Fact(name, markup.text(name))]) + markup.arm_badge("hybrid", name),
        "table": markup.table(name, [{"a": name, "b": 1}]),
        "preview": "".join(preview.panel(data_set(name, image)) for image in ("", "data:image/png;base64,") if valid),
        "certificate": submodels.row(hybrid, replace(hybrid.submodels[0], certificate=untrue)),
        "rows": "".join(submodels.row(hybrid, part) + submodels.mini(part, hybrid) for part in hybrid.submodels),
        "list": "".join(run_table._line(RunLine(run=hybrid, owners=(f"ann{name}",))).cells),
        "values": submodels.values(hybrid),
        "waiting": banners.waiting(replace(hybrid, waiting_commands=(asked,))),
        "prediction": predictions.measured(hybrid) + markup.strip(predictions.facts(predicted, "fcfs")),
        "cards": cards.cards(compared) + cards.card(held, compared.hybrid, broken),
        "arms": "".join(part(compared) for part in (tables.arms, tables.submodels, tables.weights, tables.environment)),
        "report": html.render(compared, whole, "/* plotly */"),
        "side by side": "".join(table(pair) for table in SELECTED) + selection.cautions_html(pair)
        if whole_text
        else "",
        "report side by side": html.render_selection(pair, "/* plotly */") if whole_text else "",
    }


SELECTED = (
    selection.figures_table,
    selection.settings_table,
    selection.machines_table,
    selection.weights_table,
    selection.cautions_html,
)


def sides(*labels: str, view: RunView | None = None) -> list[Side]:
    """Runs of these names that differ in settings and machines."""
    run = view or fake_arms.hybrid()
    return [
        Side(ref=f"r-{at}", label=label, view=replace(run, spec={"note": label}), alone=False, machine={"cpu": label})
        for at, label in enumerate(labels)
    ]


def outside_data(report: str) -> str:
    """A report without its scripts and figures: their text is for plotly."""
    return re.sub(r"<script.*?</script>|script-src [^;]*;", "", report, flags=re.DOTALL)


@pytest.fixture
def harmless(monkeypatch: pytest.MonkeyPatch) -> dict[str, Elements]:
    for asked in ("ago", "clock_at", "estimate"):  # pages ask the browser for its time zone
        monkeypatch.setattr(frame, asked, lambda *given, **more: "just now")
    monkeypatch.setattr(html, "_day", lambda at_s: "today")  # a minute may pass between two reports
    return {what: Elements(outside_data(piece)) for what, piece in pieces(MARK).items()}


def test_in_pages_and_reports_a_name_is_text(harmless: dict[str, Elements]) -> None:
    for name in NAMES:
        shown = visible(name, "\t\n\r")
        for what, piece in pieces(name).items():
            found, expected = Elements(outside_data(piece)), harmless[what]
            if not piece:
                continue
            assert found.elements == expected.elements, (name, what)
            address = quote(name, safe="", errors="surrogatepass")
            told = [text.replace(MARK, address if text.startswith("files/") else shown) for text in expected.texts]
            assert found.texts == told, (name, what)
            if "report" in what:
                assert piece.count("<script") == piece.count("</script") == 3 and "<!--" not in piece


def test_a_name_like_that_of_a_column_takes_no_column_away() -> None:
    jobs = tuple(SimulatedJob(name=name, epochs=1, steps_per_epoch=1) for name in ("Policy", "Makespan"))
    named = forecast(JobSet(jobs=jobs, basis="timed", peaks={"fcfs": 9}), FirstComeFirstServed())
    assert forecast_panel._policies((named,), named).count("<th ") == 7
    two = sides("Figure", "Setting")
    assert selection.figures_table(two).count("<th ") == selection.settings_table(two).count("<th ") == 3


def drawn(document: Any) -> Iterator[tuple[str, str]]:
    """Each text of a figure that plotly draws, with its place: its elements and templates, and what a reader reads."""
    hidden = {"uid", "legendgroup", "stackgroup", "uirevision", "bdata", "dtype", "of", "part"}
    if isinstance(document, dict):
        for key, value in document.items():
            if key not in hidden:
                yield from ((f"{key}.{place}", text) for place, text in drawn(value))
    elif isinstance(document, list):
        for place, value in enumerate(document):
            yield from ((f"{place}.{more}", text) for more, text in drawn(value))
    elif isinstance(document, str):
        yield "", document


def as_plotly_reads(text: str) -> tuple[list[str], list[str], str]:
    """Its tags, its templates, and the text without them, as svg_text_utils.js has them."""
    known = {
        "mu": "μ",
        "amp": "&",
        "lt": "<",
        "gt": ">",
        "nbsp": "\xa0",
        "times": "\N{MULTIPLICATION SIGN}",
        "plusmn": "±",
        "deg": "°",
    }

    def entity(found: re.Match[str]) -> str:
        body = found[1]
        if body[0] != "#":
            return known.get(body, found[0])
        return chr(int(body[2:], 16) if body[1] == "x" else int(body[1:]))

    tags, templates = re.findall(r"<[^>]*>", text), re.findall(r"%\{[^}]*\}?", text)
    return tags, templates, re.sub(r"&(#\d+|#x[\da-fA-F]+|[a-z]+);", entity, re.sub(r"<[^>]*>", "", text))


def figures(name: str) -> list[Any]:
    run, arm = (poisoned(one, name) for one in (fake_arms.hybrid(), fake_arms.baseline("concurrent")))
    made = [curves.curves(run, "loss", [arm]), schedule.schedule(run), schedule.arms_schedule([run, arm])]
    return [*made, memory.memory(run, [arm]), layout.figure(marks.draw(run.marks)[0], layout.layout(1, "r"))]


def test_in_charts_a_name_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "NAME_CHARACTERS", 10_000)
    harmless = list(drawn(figures(MARK)))
    assert sum(MARK in text for _, text in harmless) > 20
    for name in NAMES:
        found = list(drawn(figures(name)))
        for (place, text), (known, plain) in zip(found, harmless, strict=True):
            tags, templates, words = as_plotly_reads(text)
            expected_tags, expected_templates, expected = as_plotly_reads(plain)
            assert (place, tags, templates) == (known, expected_tags, expected_templates), name
            assert words == expected.replace(MARK, visible(name)), name


def test_in_markdown_a_name_is_a_word_or_a_code_span() -> None:
    markdown = MarkdownIt("gfm-like", {"linkify": False})
    for name in NAMES:
        joined = visible(name).replace(":material/", ":material\N{WORD JOINER}/")
        for before, after in (("", ""), ("Stop ", ""), ("Imported ", " and more.")):
            parsed = markdown.parse(f"{before}{wording.plain(name)}{after}")
            [paragraph] = [token for token in parsed if token.children is not None]
            shown = [token for token in paragraph.children or () if token.content]
            assert {token.type for token in shown} <= {"text", "code_inline"}, name
            assert "".join(token.content for token in shown).strip() == f"{before}{joined}{after}".strip(), name
        if wording.plain(name) == name:
            assert re.fullmatch(r"[\w -]+", name), "nothing that Streamlit reads as more than words"


def printed(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> str:
    """What the terminal of a person gets."""
    written = io.StringIO()
    for console in (terminal.out, terminal.err):
        for name, value in (("_file", written), ("_force_terminal", True), ("_width", 4000)):
            monkeypatch.setattr(console, name, value)
    call()
    return written.getvalue()


def test_a_terminal_obeys_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Service:
        runs = type("Runs", (), {"artifact": staticmethod(lambda run, part: f"/home/{part}")})

    for name in NAMES:
        view = poisoned(fake_arms.hybrid(cause="it failed", remedy="try"), name)
        finding = Finding(title="T", field=f"f{name}", message=f"m{name}", remedy=f"r{name}")
        held = fake_arms.comparison(verdicts={"concurrent": fake_arms.withheld("concurrent", "why")})
        facts: dict[str, object] = {name: name, "list": [name]}
        report = FileReport(kind="data", format=name, sha256="0", size_bytes=1, facts=facts)
        calls: dict[str, Callable[[], object]] = {
            "say": partial(terminal.say, name, to=terminal.out, style="yellow"),
            "table": partial(terminal.print_table, ("a", "b"), [(name, (name, name))]),
            "findings": partial(terminal.print_findings, [finding]),
            "runs": partial(terminal.print_runs, [view]),
            "result": partial(terminal.print_result, view, Service()),
            "comparison": partial(terminal.print_comparison, poisoned(held, name)),
            "file": partial(terminal.print_file, report),
        }
        for what, call in calls.items():
            plain = COLOURED.sub("", printed(call, monkeypatch))
            assert all(is_visible(sign) or sign == "\n" for sign in plain), (name, what)
            keep = "\n" if what == "findings" else ""  # which may have several lines
            assert visible(name, keep).strip()[:90] in plain, (name, what)


def test_json_is_ascii_and_says_the_name_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        terminal.print_json({"name": name})
        text = capsys.readouterr().out
        assert text.isascii() and text.count("\n") == 3 and json.loads(text) == {"name": name}


def test_a_log_has_visible_characters_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()

    def work(*given: object, remote: object = None) -> int:
        for name in NAMES:
            traceback.print_exception(RuntimeError(name))
            sys.stdout.write(name)
        return 0

    for module, act in ((worker, "train"), (runner, "run_baseline")):
        with monkeypatch.context() as patched:
            for owner, name, value in (
                *((sys, "stdout", log), (sys, "stderr", log), (sys, "argv", ["x", "home", "run"])),
                *((module, act, work), (os, "_exit", lambda code: None), (os, "umask", lambda mask: 0)),
                (faulthandler, "enable", lambda: None),
            ):
                patched.setattr(owner, name, value)
            module.main()
    text = log.getvalue()
    assert all(is_visible(sign) or sign in "\n\t" for sign in text)
    assert all(text.count(visible(name, "\n\t")) >= 4 for name in NAMES)


def test_a_file_name_is_visible_and_names_no_folder() -> None:
    for name in NAMES:
        with suppress(BadInput):  # nothing is left of it
            kept = safe_file_name(name)
            assert all(map(is_visible, kept)) and not set(kept) & set("/\\") and kept.strip(" .") == kept


def test_no_sub_model_has_such_a_name() -> None:
    """So names of downloads, folders and zips, and texts of metrics.csv hold letters, digits, `-` and `_` alone."""
    for name in (*(f"{start}{name}" for name in NAMES for start in ("", "lenet")), "lenet\n", "=1", "-1", "@x", "a.b"):
        with pytest.raises(BadInput):
            parse_run({"submodels": [{"name": name, "model": "m", "train_data": "d"}]})
    points = metrics_frame(fake_arms.hybrid())
    assert set(points.columns) == {"submodel", "data", "epoch", "loss", "accuracy"}
    assert set(points["submodel"]) == set(fake_views.NAMES) and set(points["data"]) == {"train", "test"}


def test_a_graph_has_no_node_that_a_name_made() -> None:
    def dot(text: str) -> str:
        stored = {"name": f"n{text}", "labels": [f"Linear{text}", "ReLU"], "edges": [[0, 1]]}
        return graph.graph_dot(json.dumps([stored]))

    quoted = re.compile(r'"(?:[^"\\]|\\.)*"')
    for name in NAMES:
        assert quoted.sub("TEXT", dot(name)) == quoted.sub("TEXT", dot(MARK)), name
        assert all(is_visible(sign) or sign == "\n" for sign in dot(name)), name


def test_each_medium_has_one_place_that_escapes() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("unifiednn_core", "pages")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"html import escape|html\.escape|rich\.markup", path.read_text(encoding="utf-8"))
    }
    assert found == {"unifiednn_core/views/markup.py", "unifiednn_core/views/figures/layout.py"}


def test_the_names_would_be_noticed(monkeypatch: pytest.MonkeyPatch, harmless: dict[str, Elements]) -> None:
    """Without the rule of a medium, its test fails."""
    element, link, obeyed = (next(name for name in NAMES if part in name) for part in ("<img", "![load]", "\x1b["))
    written = io.StringIO()
    Console(file=written, force_terminal=True).print(obeyed, markup=False, highlight=False)
    assert "\x1b]0;title" in written.getvalue()
    [paragraph] = [token for token in MarkdownIt().parse(link) if token.children is not None]
    assert {"image", "link_open"} <= {token.type for token in paragraph.children or ()}
    monkeypatch.setattr(markup, "escape", lambda text: text)
    assert Elements(pieces(element)["words"]).elements != harmless["words"].elements
    monkeypatch.setattr(layout, "escape", lambda text, quote: text)
    assert any("<img" in "".join(as_plotly_reads(text)[0]) for _, text in drawn(figures(element)))
