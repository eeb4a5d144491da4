"""The texts of pages: each is in every language, takes the same values there, and none is left over."""

import pytest

from tests.contract import text_catalog
from unifiednn_core.base.texts import ENGLISH, LANGUAGES

OTHERS = sorted(LANGUAGES.keys() - {ENGLISH})


@pytest.mark.parametrize("language", OTHERS)
def test_every_text_is_translated(language: str) -> None:
    missing = text_catalog.literal_keys().keys() - text_catalog.catalog(language).keys()
    assert not missing, "print them with: python -m tests.contract.text_catalog"


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_takes_the_same_values(language: str) -> None:
    texts = text_catalog.catalog(language)
    wrong = [text for text, told in texts.items() if text_catalog.places(text) != text_catalog.places(told)]
    assert not wrong


@pytest.mark.parametrize("language", OTHERS)
def test_no_translation_is_left_over(language: str) -> None:
    known = text_catalog.constants() | text_catalog.made()
    helps = text_catalog.plain(text_catalog.choices())
    left = text_catalog.catalog(language).keys() - known
    assert [text for text in sorted(left) if text_catalog.plain(text) not in helps] == []


def test_a_missing_text_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_catalog, "catalog", lambda language: {"A text that is nowhere": "", "Now": "{name}"})
    for check in (
        test_every_text_is_translated, test_a_translation_takes_the_same_values, test_no_translation_is_left_over
    ):  # fmt: skip
        with pytest.raises(AssertionError):
            check(OTHERS[0])
