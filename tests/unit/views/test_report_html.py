"""The one-file report. That it opens and draws without a network is shown in a real browser."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.ui.fake_arms import baseline, comparison, hybrid, withheld
from tests.ui.reading import words_in
from unifiednn_core.views.report import html

PLOTLY = "/* plotly */ window.Plotly = {};"
EVIL = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)>"


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.scripts, self.tags, self.loads, self._open = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        self.loads += [value for name, value in attrs if name in ("src", "href", "action", "srcset", "data") and value]
        if tag == "script":
            self.scripts.append([attributes.get("type"), ""])
            self._open = self.scripts[-1]
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_endtag(self, tag):
        if tag == "script":
            self._open = None

    def handle_data(self, data):
        if self._open is not None:
            self._open[1] += data


def views(**changes):
    return {"hybrid": replace(hybrid(), **changes), "concurrent": baseline("concurrent")}


@pytest.fixture(scope="module")
def text():
    return html.render(comparison(), views(), PLOTLY)


def test_the_report_holds_verdict_arms_curves_memory_schedule_environment_and_command(text):
    words = words_in(text)
    for part in ("53 % less memory than concurrent", "Each sub-model in each arm", "AMD EPYC", "unifiednn compare"):
        assert part in words
    board = json.loads(next(body for kind, body in Page(text).scripts if kind == "application/json"))
    assert [chart["name"] for chart in board["charts"]] == [
        "loss-epochs",
        "loss-seconds",
        "accuracy-epochs",
        "accuracy-seconds",
        "memory",
        "schedule",
    ]
    assert [chip["name"] for chip in board["chips"]] == ["lenet", "resnet", "transformer", "concurrent"]


def test_nothing_is_loaded_from_anywhere(text):
    assert Page(text).loads == []
    assert not re.findall(r"https?:|@import|url\(", text, re.IGNORECASE)


def test_the_policy_allows_the_own_scripts_by_their_hash_and_nothing_else(text):
    page = Page(text)
    allowed = re.findall(r"'sha256-([^']+)'", page.policy)
    code = [body for kind, body in page.scripts if kind is None]
    assert allowed == [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in code]
    assert "default-src 'none'" in page.policy and len(code) == 2
    assert "unsafe-eval" not in page.policy and "script-src 'unsafe-inline'" not in page.policy


def test_names_and_texts_cannot_become_scripts_or_markup():
    bad = hybrid()
    parts = tuple(replace(s, name=EVIL) for s in bad.submodels)
    turns = tuple(turn._replace(submodel=EVIL, reason=EVIL) for turn in bad.schedule)
    known = comparison(
        name=EVIL, run_id=EVIL, verdicts={"concurrent": withheld("concurrent", EVIL)}, environment={EVIL: EVIL}
    )
    shown = Page(
        html.render(
            known, views(submodels=parts, schedule=turns, policy_text=EVIL, device=EVIL, spec={"name": EVIL}), PLOTLY
        )
    )
    assert "img" not in shown.tags and len(shown.scripts) == 3
    assert not any("alert" in body for kind, body in shown.scripts if kind is None)
    board = json.loads(next(body for kind, body in shown.scripts if kind == "application/json"))
    assert "<img" not in json.dumps([chart["figure"] for chart in board["charts"]])


def test_a_script_cannot_end_its_element_early():
    content, element = html.script("a('</script>'); b('</SCRIPT>'); c('<!--')")
    assert "</script" not in content.lower() and "<!--" not in content
    assert element == f"<script>{content}</script>"
