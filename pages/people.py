"""Admin: people and what they may do, tokens, disk and retention, health, webhooks, protections, and the audit log."""

from collections.abc import Callable, Sequence

import streamlit as st

from pages._ui import actions, audit_log, disk, frame, health, notifications_form, signed_in
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.texts import tr
from unifiednn_core.base.visible import visible
from unifiednn_core.service.people import MOST_TICKETS
from unifiednn_core.service.roles import NO_ROLE, Role
from unifiednn_core.spec.sharing import Sharing
from unifiednn_core.views import markup, wording
from unifiednn_core.views.people import PersonView, TokenView

TABS = ("Roles", "Sharing", "Tokens", "Disk", "Health", "Notifications", "Protections", "Audit log")
ROLES = "A role given here overrides that of the identity provider."
ALONE = "Nobody signs in: this server is for one person of this machine. Roles and tokens count once people sign in."
LONGEST_DAYS = 365
GONE_WIDTH_PX = 360
TICKETS_HELP = "Share of the device under the policy Fair: 2 is twice the time of a person with 1."


def main() -> None:
    """Draw the tab that is open."""
    frame.page("People")
    words = tr(ROLES) if signed_in.login_configured() else tr(ALONE)
    st.html(markup.title(tr("Admin"), markup.note(words)))
    drawn = (_roles, _sharing, _tokens, disk.draw, health.draw, notifications_form.draw, _protections, audit_log.draw)
    for tab, draw in zip(st.tabs([tr(tab) for tab in TABS], key="people-tabs", on_change="rerun"), drawn, strict=True):
        if tab.open:
            with tab:
                draw()


def _roles() -> None:
    desk = frame.service().people
    with st.form("give-role", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input(tr("E-mail address"), key="role-person")
        role = st.selectbox(tr("Role"), [*map(str, Role), NO_ROLE], index=1, key="role-role")
        pressed = st.form_submit_button(tr("Give role"), type="primary", icon=":material/check:", key="role-give")
    if pressed:
        _attempt(lambda: desk.give_role(person, role))
    given = [one for one in desk.people() if one.role]
    if not given:
        st.html(markup.empty(tr("No roles given yet"), tr("Until then, roles come from the identity provider.")))
        return
    _people(wording.count_text(len(given), "given role"), given)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        people = [one.person for one in given]
        gone = st.selectbox(tr("Remove a given role"), people, None, visible, key="role-gone", width=GONE_WIDTH_PX)
        if st.button(tr("Remove role"), key="role-forget", disabled=gone is None) and gone is not None:
            _attempt(lambda: desk.forget_person(gone))
            st.rerun()


def _sharing() -> None:
    desk = frame.service().people
    now = desk.sharing()
    since = tr("This is the default.")
    if now.changed_by is not None:
        since = tr("Set by {person}, {ago}.", person=now.changed_by, ago=frame.ago(now.changed_at_s))
    heading = tr("Who may share a process: {sharing}", sharing=tr(now.sharing))
    st.html(markup.section(heading, f"{tr(now.meaning)} {since}"))
    with st.form("set-sharing"), st.container(horizontal=True, vertical_alignment="bottom"):
        options = list(map(str, Sharing))
        chosen = st.selectbox(
            tr("Who may share a process"), options, index=options.index(now.sharing), key="sharing-of"
        )
        if st.form_submit_button(tr("Save"), icon=":material/check:", key="sharing-save"):
            _attempt(lambda: desk.set_sharing(chosen))
            st.rerun()
    with st.form("give-team", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input(tr("E-mail address"), key="team-person")
        team = st.text_input(tr("Team"), key="team-name", help=tr("Empty: the person leaves the team."))
        pressed = st.form_submit_button(tr("Set team"), type="primary", icon=":material/group:", key="team-give")
    if pressed:
        _attempt(lambda: desk.give_team(person, team))
    with st.form("give-tickets", clear_on_submit=True), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input(tr("E-mail address"), key="tickets-person")
        tickets = st.number_input(tr("Tickets"), 1, MOST_TICKETS, key="tickets-number", help=tr(TICKETS_HELP))
        pressed = st.form_submit_button(tr("Set tickets"), icon=":material/confirmation_number:", key="tickets-give")
    if pressed:
        _attempt(lambda: desk.give_tickets(person, tickets))
    placed = [one for one in desk.people() if one.team or one.tickets]
    if placed:
        _people(tr("Teams and tickets"), placed)
    else:
        st.html(markup.empty(tr("No teams yet"), tr("Under the setting team, nobody shares a process until then.")))


def _people(caption: str, people: Sequence[PersonView]) -> None:
    table = (
        {tr("Person"): one.person, tr("Role"): one.role or "-", tr("Team"): one.team or "-"}
        | {tr("Tickets"): one.tickets or 1}
        | {tr("Given"): frame.ago(one.changed_at_s), tr("By"): one.changed_by}
        for one in people
    )
    st.html(markup.table(caption, table, {tr("Person"): markup.bold, tr("Given"): markup.faint}))


def _tokens() -> None:
    desk = frame.service().people
    with st.form("create-token"), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input(tr("For"), key="token-person", help=tr("E-mail address or name of the person."))
        role = st.selectbox(tr("Role"), list(map(str, Role)), index=1, key="token-role")
        days = st.number_input(tr("Days"), 1, LONGEST_DAYS, 30, key="token-days")
        pressed = st.form_submit_button(tr("Create token"), type="primary", icon=":material/key:", key="token-create")
    if pressed:
        _attempt(lambda: _show(desk.create_token(person, role, days)))
    listed = desk.tokens()
    if not listed:
        st.html(markup.empty(tr("No tokens yet"), tr("A terminal or script with a token acts as that person.")))
        return
    table = (
        {tr("Token"): one.token_id, tr("Acts as"): one.person, tr("Role"): one.role}
        | {tr("Created"): frame.ago(one.created_at_s), tr("By"): one.created_by, tr("Valid"): _valid(one)}
        for one in listed
    )
    looks = {tr("Token"): markup.mono, tr("Acts as"): markup.bold, tr("Created"): markup.faint}
    st.html(markup.table(wording.count_text(len(listed), "token"), table, looks))
    living = [one.token_id for one in listed if one.revoked_at_s is None]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        gone = st.selectbox(tr("Revoke"), living, index=None, key="token-gone", width=GONE_WIDTH_PX)
        if st.button(tr("Revoke token"), key="token-revoke", disabled=gone is None) and gone is not None:
            _attempt(lambda: desk.revoke_token(gone))
            st.rerun()


def _protections() -> None:
    desk = frame.service().people
    table = (
        {tr("Protection"): one.name, tr("State"): tr("on") if one.holds else tr("off")}
        | {tr("What it does"): f"{one.text} {one.remedy}"}
        for one in desk.protections()
    )
    st.html(markup.table(tr("Of this machine"), table, {tr("Protection"): markup.bold}))


def _valid(token: TokenView) -> str:
    if token.revoked_at_s:
        return tr("revoked")
    return tr("until {moment}", moment=audit_log.moment(token.expires_at_s))


def _show(token: str) -> None:
    st.html(markup.notice("green", "key", tr("Copy it now"), tr("It is shown only once; the server stores its hash.")))
    st.code(token, language=None)


def _attempt(call: Callable[[], None]) -> None:
    try:
        call()
    except UnifiedNNError as error:
        actions.show_error(error)


if __name__ == "__main__":
    main()
