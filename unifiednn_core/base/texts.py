"""Texts of the dashboard in the viewer's language. The English text is the key; a language is a JSON file of texts."""

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from pathlib import Path

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "de": "Deutsch"}
"""Languages by code, with their own names."""
FOLDER = Path(__file__).with_name("languages")
_SPOKEN: ContextVar[str] = ContextVar("language", default=ENGLISH)


def tr(text: str, /, **values: object) -> str:
    """A text in the language of this thread, `values` put in by `str.format`; English where it is missing."""
    translated = _texts(_SPOKEN.get()).get(text, text)
    return translated.format(**values) if values else translated


def abbreviated(names: Sequence[str], most: int = 5) -> str:
    """List the first `most` names, and count the rest."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def set_language(language: str) -> None:
    """Set the language of this thread, such as `de` or `de-CH`; English for one without texts."""
    code = language.split("-")[0].lower()
    _SPOKEN.set(code if code in LANGUAGES else ENGLISH)


def current_language() -> str:
    """Code of the language of this thread."""
    return _SPOKEN.get()


@cache
def _texts(language: str) -> Mapping[str, str]:
    if language == ENGLISH:
        return {}
    found: dict[str, str] = json.loads((FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return found
