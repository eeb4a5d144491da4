"""Admin: people and what they may do, tokens, disk and retention, health, webhooks, the machine, and the audit log."""

from collections.abc import Sequence

import streamlit as st

from pages._ui import actions, audit_log, disk, frame, health, notifications_form, signed_in
from unifiednn_core.base.visible import visible
from unifiednn_core.service.people import MOST_TICKETS
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.spec.sharing import Sharing
from unifiednn_core.views import markup, wording
from unifiednn_core.views.people import PersonView, TokenView

TABS = ("Roles", "Sharing", "Tokens", "Disk", "Health", "Notifications", "Machine", "Audit log")
ROLES = "A role given here overrides that of the identity provider."
ALONE = "Nobody signs in: this server is for one person of this machine. Roles and tokens count once people sign in."
LONGEST_DAYS = 365
GONE_WIDTH_PX = 360
TICKETS_HELP = "Share of the device under the policy Fair: 2 is twice the time of a person with 1."


def main() -> None:
    """Draw the tab that is open."""
    frame.page("People")
    words = ROLES if signed_in.login_configured() else ALONE
    st.html(markup.title("Admin", markup.note(words)))
    drawn = (_roles, _sharing, _tokens, disk.draw, health.draw, notifications_form.draw, _machine, audit_log.draw)
    for tab, draw in zip(st.tabs(list(TABS), key="people-tabs", on_change="rerun"), drawn, strict=True):
        if tab.open:
            with tab:
                draw()


def _roles() -> None:
    desk = frame.service().people
    with st.form("give-role", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("E-mail address", key="role-person")
        role = st.selectbox("Role", [*map(str, Role), NO_ROLE], index=1, key="role-role")
        pressed = st.form_submit_button("Give role", type="primary", icon=":material/check:", key="role-give")
    if pressed:
        with actions.showing_errors():
            desk.give_role(person, role)
    given = [one for one in desk.people() if one.role]
    if not given:
        st.html(markup.empty("No roles given yet", "Until then, roles come from the identity provider."))
        return
    _people(wording.count_text(len(given), "given role"), given)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        people = [one.person for one in given]
        gone = st.selectbox("Remove a given role", people, None, visible, key="role-gone", width=GONE_WIDTH_PX)
        if st.button("Remove role", key="role-forget", disabled=gone is None) and gone is not None:
            with actions.showing_errors():
                desk.forget_person(gone)
            st.rerun()


def _sharing() -> None:
    desk = frame.service().people
    now = desk.sharing()
    since = "This is the default."
    if now.changed_by is not None:
        since = f"Set by {now.changed_by}, {frame.ago(now.changed_at_s)}."
    st.html(markup.section(f"Who may share a process: {now.sharing}", f"{now.meaning} {since}"))
    with st.form("set-sharing"), st.container(horizontal=True, vertical_alignment="bottom"):
        options = list(map(str, Sharing))
        chosen = st.selectbox("Who may share a process", options, index=options.index(now.sharing), key="sharing-of")
        if st.form_submit_button("Save", icon=":material/check:", key="sharing-save"):
            with actions.showing_errors():
                desk.set_sharing(chosen)
            st.rerun()
    with st.form("give-team", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("E-mail address", key="team-person")
        team = st.text_input("Team", key="team-name", help="Empty: the person leaves the team.")
        pressed = st.form_submit_button("Set team", type="primary", icon=":material/group:", key="team-give")
    if pressed:
        with actions.showing_errors():
            desk.give_team(person, team)
    with st.form("give-tickets", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("E-mail address", key="tickets-person")
        tickets = st.number_input("Tickets", 1, MOST_TICKETS, key="tickets-number", help=TICKETS_HELP)
        pressed = st.form_submit_button("Set tickets", icon=":material/confirmation_number:", key="tickets-give")
    if pressed:
        with actions.showing_errors():
            desk.give_tickets(person, tickets)
    placed = [one for one in desk.people() if one.team or one.tickets]
    if placed:
        _people("Teams and tickets", placed)
    else:
        st.html(markup.empty("No teams yet", "Under the setting team, nobody shares a process until then."))


def _people(caption: str, people: Sequence[PersonView]) -> None:
    table = (
        {"Person": one.person, "Role": one.role or "-", "Team": one.team or "-"}
        | {"Tickets": one.tickets or 1}
        | {"Given": frame.ago(one.changed_at_s), "By": one.changed_by}
        for one in people
    )
    st.html(markup.table(caption, table, {"Person": markup.bold, "Given": markup.faint}))


def _tokens() -> None:
    desk = frame.service().people
    with st.form("create-token"), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("For", key="token-person", help="E-mail address or name of the person.")
        role = st.selectbox("Role", list(map(str, Role)), index=1, key="token-role")
        days = st.number_input("Days", 1, LONGEST_DAYS, 30, key="token-days")
        pressed = st.form_submit_button("Create token", type="primary", icon=":material/key:", key="token-create")
    if pressed:
        with actions.showing_errors():
            _show(desk.create_token(person, role, days))
    listed = desk.tokens()
    if not listed:
        st.html(markup.empty("No tokens yet", "A terminal or script with a token acts as that person."))
        return
    table = (
        {"Token": one.token_id, "Acts as": one.person, "Role": one.role}
        | {"Created": frame.ago(one.created_at_s), "By": one.created_by, "Valid": _valid(one)}
        for one in listed
    )
    looks = {"Token": markup.mono, "Acts as": markup.bold, "Created": markup.faint}
    st.html(markup.table(wording.count_text(len(listed), "token"), table, looks))
    living = [one.token_id for one in listed if one.revoked_at_s is None]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gone = st.selectbox("Revoke", living, index=None, key="token-gone", width=GONE_WIDTH_PX)
        if st.button("Revoke token", key="token-revoke", disabled=gone is None) and gone is not None:
            with actions.showing_errors():
                desk.revoke_token(gone)
            st.rerun()


def _machine() -> None:
    table = (
        {"Checked": one.name, "State": one.state, "Found": one.found, "Wanted": one.wanted, "What to do": one.remedy}
        for one in frame.service().monitoring.doctor()
    )
    st.html(markup.table("Of this machine", table, {"Checked": markup.bold}))


def _valid(token: TokenView) -> str:
    if token.revoked_at_s:
        return "revoked"
    return f"until {audit_log.moment(token.expires_at_s)}"


def _show(token: str) -> None:
    st.html(markup.notice("green", "key", "Copy it now", "It is shown only once; the server stores its hash."))
    st.code(token, language=None)


if __name__ == "__main__":
    main()
