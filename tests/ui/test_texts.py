"""Every text of a page is translated: in a language that puts marks around each text, no other English is left."""

import re
from collections.abc import Iterator, Mapping

import pytest
from streamlit.testing.v1 import AppTest

from tests.contract import text_catalog
from tests.ui.reading import html_of
from unifiednn_core.base import texts

PAGES = [(name, "") for name in ("now", "queue", "submit", "build", "run", "compare", "library", "people")]
RUNS = [("run", run) for run in ("r-live", "r-done", "r-lost", "r-quarantine")] + [("compare", "r-live")]
DATA = (
    r"[a-z\d][\w./-]*", r"[A-Z]+[-\d]*", r"[\w.-]+ \(\w+\)", r"Deutsch|English", r"(AMD|Intel\(R\)) .*", r"content: .*",
    r"[\d.,]+ [KMG]iB", r"[\d min]+ s", r"--\w+ \S+", r"\d+ \w+ \d\d:\d\d", r"power cut|too fast|\w+, resnet",
    r"PID \d+", r"(power cut|too fast|demo|second) / \w+", r"Round robin, 1 epoch each",
)  # fmt: skip
"""Names, figures, icons and choices of a spec."""
ENGLISH = (
    r"(: )?resnet has been in line longest; one epoch each\.", r"Requested: save\.", r"Save, at step 7\.",
    r"A run needs a sub-model\.", r"(A number|A whole number|A list of numbers).*\.|True or false\.",
    r"demo is queued\.", r"The worker process died\.", r"Look into worker\.log, then submit the spec again\.",
    r"This run, the machine or a version changed .*", r"hybrid run r-live is running; its figures come .*",
    r"PSS of the worker", r"there is no (concurrent|sequential) baseline of this run yet",
)  # fmt: skip
"""Reasons, causes, findings, events, and what an argument takes, which are English in every language."""


class Marked(Mapping[str, str]):
    """Texts of a language that puts marks around each; keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def __getitem__(self, text: str) -> str:
        self.asked.add(text)
        return f"⟦{text}⟧"

    def __iter__(self) -> Iterator[str]:
        return iter(self.asked)

    def __len__(self) -> int:
        return len(self.asked)


@pytest.fixture
def marked(monkeypatch):
    known = Marked()
    monkeypatch.setattr(texts, "_texts", lambda language: known)
    return known


def unmarked(words: str) -> str:
    """What is left without marked texts, which may stand in each other."""
    while words != (words := re.sub(r"⟦[^⟦⟧]*⟧", "", words)):
        pass
    return words.strip()


def shown(app: AppTest) -> list[str]:
    """All that the page shows: words and tips of HTML, labels, help and options of fields."""
    html = html_of(app)
    found = re.findall(r'(?:title|aria-label|alt|data-label)="([^"]*)"', html) + re.findall(r">([^<>]+)<", f">{html}<")
    for element in app._tree:
        proto = getattr(element, "proto", None)
        found += [
            told for name in ("label", "help", "placeholder") if isinstance(told := getattr(proto, name, ""), str)
        ]
        found += map(str, getattr(proto, "options", ()))
    return found + [one.value for one in (*app.markdown, *app.caption)]


def foreign(app: AppTest) -> list[str]:
    """English words that are neither translated nor data."""
    left = {part.strip("`,: ") for one in shown(app) for part in re.split(r" ·|· |,  ", unmarked(one))}
    words = {one for one in left if re.search(r"[A-Za-z]{3,}", one)}
    return sorted(one for one in words if not any(re.fullmatch(known, one) for known in (*DATA, *ENGLISH)))


def test_every_visible_text_is_translated(open_page, marked, service):
    service.devices.devices()
    other = {"pid": 7, "user": "mallory", "name": "python3", "size_bytes": 2**20, "busy_cores": 1.5}
    service.store.device_samples.write([{"device": "cpu", "others": [other]}])  # else those of this machine are shown
    left = {}
    for name, run in PAGES + RUNS:
        left[name, run] = foreign(open_page(name, **({"run": run} if run else {})))
    assert not {page: words for page, words in left.items() if words}
    helps = text_catalog.plain(text_catalog.choices())
    missing = marked.asked - text_catalog.catalog("de").keys()
    assert not {text for text in missing if text_catalog.plain(text) not in helps}


def test_a_text_without_tr_is_noticed(open_page, marked, monkeypatch):
    monkeypatch.setattr("pages.compare.tr", lambda text, **values: text, raising=False)
    monkeypatch.setattr("pages._ui.run_lists.tr", lambda text, **values: text)
    assert foreign(open_page("compare"))
