"""People: who has which role, tokens for terminals and routes, and the ledger of what everybody did. For admins."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from pages._ui import actions, frame, markup, people, signed_in
from unifiednn_core.access.roles import NO_ROLE, Role
from unifiednn_core.errors import UnifiedNNError

if TYPE_CHECKING:
    from unifiednn_core.access.scoped import ScopedService

TABS = ("Roles", "Tokens", "Ledger")
LONGEST_DAYS = 365
GONE_WIDTH_PX = 360


def main() -> None:
    """Draw the three tabs."""
    frame.page("People")
    st.html(markup.title("People", markup.note("A given role goes before what the identity provider says.")))
    desk = signed_in.administration()
    roles, tokens, ledger = st.tabs(TABS, key="people-tabs", on_change="rerun")
    if roles.open:
        with roles:
            _roles(desk)
    if tokens.open:
        with tokens:
            _tokens(desk)
    if ledger.open:
        with ledger:
            st.html(people.ledger_table(desk.ledger()))


def _roles(desk: "ScopedService") -> None:
    with st.form("give-role", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("E-mail address", key="role-person")
        role = st.selectbox("Role", [*map(str, Role), NO_ROLE], index=1, key="role-role")
        pressed = st.form_submit_button("Give the role", type="primary", icon=":material/check:", key="role-give")
    if pressed:
        _attempt(lambda: desk.give_role(person, role))
    given = desk.people()
    if not given:
        st.html(markup.empty("No role was given yet", "Roles may come from the identity provider alone."))
        return
    st.html(people.people_table(given))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gone = st.selectbox(
            "Take a given role back", [one.person for one in given], index=None, key="role-gone", width=GONE_WIDTH_PX
        )
        if st.button("Take it back", key="role-forget", disabled=gone is None) and gone is not None:
            _attempt(lambda: desk.forget_person(gone))
            st.rerun()


def _tokens(desk: "ScopedService") -> None:
    with st.form("create-token"), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("For", key="token-person", help="E-mail address or name of who acts by it.")
        role = st.selectbox("Role", list(map(str, Role)), index=1, key="token-role")
        days = st.number_input("Days", 1, LONGEST_DAYS, 30, key="token-days")
        pressed = st.form_submit_button("Make a token", type="primary", icon=":material/key:", key="token-create")
    if pressed:
        _attempt(lambda: _show(desk.create_token(person, role, days)))
    listed = desk.tokens()
    if not listed:
        st.html(markup.empty("No token yet", "A terminal or a script acts as a person by a token."))
        return
    st.html(people.tokens_table(listed))
    living = [one.token_id for one in listed if one.revoked_at_s is None]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gone = st.selectbox("Revoke", living, index=None, key="token-gone", width=GONE_WIDTH_PX)
        if st.button("Revoke it", key="token-revoke", disabled=gone is None) and gone is not None:
            _attempt(lambda: desk.revoke_token(gone))
            st.rerun()


def _show(token: str) -> None:
    st.html(markup.notice("green", "key", "Copy it now", "It is shown this once; only its hash is kept."))
    st.code(token, language=None)


def _attempt(call: Callable[[], None]) -> None:
    try:
        call()
    except UnifiedNNError as error:
        actions.show_error(error)


if __name__ == "__main__":
    main()
