"""Every text of a page is translated: in a language that puts marks around each text, no other English is left."""

import re
from collections.abc import Iterator, Mapping

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.reading import html_of
from unifiednn_core.base import texts

PAGES = {
    "now": {}, "queue": {}, "submit": {}, "build": {}, "run": {}, "compare": {}, "library": {}, "people": {},
}  # fmt: skip


class _Marked(Mapping[str, str]):
    def __getitem__(self, text: str) -> str:
        return f"⟦{text}⟧"

    asked: set[str] = set()

    def get(self, text: str, default: object = None) -> str:
        self.asked.add(text)
        return self[text]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def unmarked(words: str) -> str:
    """What is left without marked texts, which may stand in each other."""
    while words != (words := re.sub(r"⟦[^⟦⟧]*⟧", "", words)):
        pass
    return words


def shown(app: AppTest) -> list[str]:
    html = html_of(app)
    found = re.findall(r'(?:title|aria-label|alt|data-label)="([^"]*)"', html)
    found += re.findall(r">([^<>]+)<", f">{html}<")
    for element in app._tree:
        proto = getattr(element, "proto", None)
        for name in ("label", "help", "placeholder", "options"):
            told = getattr(proto, name, None)
            found += [told] if isinstance(told, str) else map(str, told or ()) if name == "options" else []
    found += [one.value for kind in (app.markdown, app.caption) for one in kind]
    return found


def test_look(open_page, monkeypatch, drafted):
    monkeypatch.setattr(texts, "_texts", lambda language: _Marked())
    asked = [("build", {"draft": drafted})] + [(name, {}) for name in PAGES] + [("run", {"run": r}) for r in ("r-live", "r-quarantine", "r-lost", "r-done", "r-hybrid", "r-queued", "r-failed")] + [("compare", {"run": "r-live"})]
    for name, query in asked:
        try:
            app = open_page(name, **query)
        except AssertionError as e:
            print("##", name, query, str(e)[:300]); continue
        left = {unmarked(one).strip() for one in shown(app)}
        print("##", name, query, sorted(one for one in left if re.search(r"[A-Za-z]{3,}", one)))
    import json
    de = json.load(open("unifiednn_core/base/languages/de.json"))
    print("NOT", json.dumps(sorted(_Marked.asked - de.keys())))
