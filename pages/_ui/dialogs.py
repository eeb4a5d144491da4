"""Which dialog is open. It outlives the ticks of a page, which draws it in its body: a tick would close its own."""

from dataclasses import dataclass
from typing import Literal

import streamlit as st

Kind = Literal["stop", "discard", "adjust", "add"]
_ASKED, _COUNT = "dialog", "dialogs"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person opened: a kind of dialog about a run, or about one sub-model of it."""

    kind: Kind
    run_id: str
    submodel: str | None
    number: int
    """Never the same twice in a session, so that a dialog opened again has fresh widgets."""


def ask(kind: Kind, run_id: str, submodel: str | None = None) -> None:
    """Open a dialog in the next run of the page, in place of the one that is open."""
    number = st.session_state[_COUNT] = st.session_state.get(_COUNT, 0) + 1
    st.session_state[_ASKED] = Asked(kind, run_id, submodel, number)


def asked(*kinds: Kind) -> Asked | None:
    """The open dialog, if it is of one of these kinds."""
    known: Asked | None = st.session_state.get(_ASKED)
    return known if known is not None and known.kind in kinds else None


def forget() -> None:
    """Close the dialog, in the next run of the page."""
    st.session_state.pop(_ASKED, None)
