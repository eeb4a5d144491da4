"""Work that a page waits for without being blocked: it goes on in a thread, and a line tells of it."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

import streamlit as st

from unifiednn_core.views import markup

AT_ONCE = 4
LOOK_S = 0.5
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Underway(Generic[Made]):
    """Something that a thread makes. It goes on when the page is left."""

    future: Future[Made]

    @classmethod
    def of(cls, make: Callable[[], Made]) -> "Underway[Made]":
        """Begin to make it."""
        return cls(_pool().submit(make))

    @property
    def done(self) -> bool:
        """Whether it is made, or failed."""
        return self.future.done()

    def result(self) -> Made:
        """What was made; raises what the thread raised."""
        return self.future.result()


def end_within(some: Sequence[Underway[Made]], seconds: float) -> bool:
    """Wait at most this long until all have ended; whether they have."""
    return not wait([one.future for one in some], seconds).not_done


def draw(reading: Underway[Made], words: str) -> None:
    """Draw a line as long as it lasts, and the page anew when it has ended."""

    @st.fragment(run_every=LOOK_S)
    def look() -> None:
        if reading.done:
            st.rerun()
        st.html(markup.quiet("hourglass_top", words))

    look()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, "reading")
