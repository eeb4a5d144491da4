"""Escapes invisible characters in untrusted text: one rule for pages, charts, terminals, reports and logs."""

import sys
from contextlib import suppress
from typing import TextIO, cast
from unicodedata import category

BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and signs that look like nothing."""


def is_visible(character: str) -> bool:
    """Whether a character is printable or a space: no control character, direction mark or zero-width character."""
    return (character.isprintable() or category(character) == "Zs") and character not in BLANK


def visible(text: str, keep: str = "") -> str:
    r"""Text in which an invisible character is written as its escape, such as `\u202e`, unless it is in `keep`.

    A terminal would obey such a character, and a page would reorder or hide what is around it.
    """
    if text.isprintable() and BLANK.isdisjoint(text):
        return text
    return "".join(
        one if is_visible(one) or one in keep else one.encode("unicode_escape").decode("ascii") for one in text
    )


def cell(text: str) -> str:
    """Text for a spreadsheet, which takes what begins with one of these signs for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


class _VisibleStream:
    """A stream of text that writes visible characters, tabs and line ends. A full disk drops them."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self._stream.write(visible(text, "\n\t"))
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._stream.flush()


def keep_log_visible() -> None:
    """Escape what this process logs from now on: messages of errors quote the files of strangers.

    A log that cannot be written, as on a full disk, is no error: whoever reports one would end by it.
    """
    sys.stdout, sys.stderr = (cast("TextIO", _VisibleStream(stream)) for stream in (sys.stdout, sys.stderr))
