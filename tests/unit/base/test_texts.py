"""Texts in the viewer's language."""

import json
import threading

import pytest

from unifiednn_core.base import texts
from unifiednn_core.base.texts import current_language, set_language, tr


@pytest.fixture(autouse=True)
def _german(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "_texts", {"en": {}, "de": {"{count} runs": "{count} Läufe"}}.__getitem__)
    yield
    set_language("en")


def test_a_text_is_translated_with_its_values():
    assert tr("{count} runs", count=3) == "3 runs"
    set_language("de-AT")
    assert tr("{count} runs", count=3) == "3 Läufe"


def test_a_text_that_is_missing_stays_english():
    set_language("de")
    assert tr("Pause {name}", name="{count}") == "Pause {count}"


def test_a_text_without_values_keeps_its_braces():
    assert tr('{"epochs": 3}') == '{"epochs": 3}'


def test_an_unknown_language_is_english():
    set_language("tlh")
    assert current_language() == "en"


def test_each_thread_speaks_its_own_language():
    set_language("de")
    heard = []
    thread = threading.Thread(target=lambda: heard.append(current_language()))
    thread.start()
    thread.join()
    assert heard == ["en"] and current_language() == "de"


def test_each_language_has_its_file():
    for code in texts.LANGUAGES.keys() - {texts.ENGLISH}:
        found = json.loads((texts.FOLDER / f"{code}.json").read_text(encoding="utf-8"))
        assert all(isinstance(key, str) and isinstance(text, str) for key, text in found.items())
