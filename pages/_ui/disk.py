"""What the disk holds, by kind and by person; quotas; and what the server deletes by itself."""

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.spec.retention import GIB, Retention, retention_of, shortfall
from unifiednn_core.views import markup, wording

SHOWN = 50
OFF = "Nothing is deleted by itself: no retention is set."
ON = "Applied once an hour, with a line in the audit log for each. Open and interrupted runs always stay."
BEYOND = "Uploads beyond it are refused; what is there stays."


def draw() -> None:
    """Draw usage, quotas and retention."""
    _usage()
    _quotas()
    _retention()


def _usage() -> None:
    service = frame.service()
    use = service.retention.disk_use()
    kinds = {
        "Library": use.library,
        "Trained models": use.models,
        "Checkpoints": use.checkpoints,
        "Uploads": use.uploads,
        "Database": use.database,
        "Other": use.other,
    }
    facts = [markup.Fact(name, memory_text(size)) for name, size in kinds.items()]
    st.html(markup.section("Home folder", f"{service.home.root}, {memory_text(use.free)} free on the disk"))
    st.html(markup.strip([markup.Fact("In all", memory_text(use.home)), *facts]))


def _quotas() -> None:
    service = frame.service()
    everybody = service.people.default_quota()
    st.html(markup.section("Quotas", BEYOND))
    with st.form("set-quota", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        person = st.text_input("E-mail address", key="quota-person", placeholder="everybody without a quota", width=280)
        size = st.number_input(
            "GiB",
            0.0,
            1e6,
            0.0 if everybody is None else everybody / GIB,
            1.0,
            key="quota-gib",
            width=150,
            help="0 means no limit.",
        )
        if st.form_submit_button("Set quota", icon=":material/check:", key="quota-set"):
            with actions.showing_errors():
                service.people.set_quota(int(size * GIB) or None, person)
                st.rerun()
    owned = service.retention.owned()
    if not owned:
        st.html(markup.small("Nobody has files yet."))
        return
    rows = [
        {"Person": one.person or "this computer", "In all": one.used_bytes, "Library": one.library}
        | {"Trained models": one.models, "Newest checkpoints": one.checkpoints, "Quota": one.quota_bytes}
        for one in owned
    ]
    sizes = [name for name in rows[0] if name != "Person"]
    looks: markup.Looks = {"Person": markup.bold, **dict.fromkeys(sizes, memory_text)}
    st.html(markup.table("By person", rows, looks, right=sizes))


def _retention() -> None:
    desk = frame.service().retention
    now = desk.retention()
    st.html(markup.section("Retention", (OFF if now.is_off else ON)))
    with st.form("set-retention", border=False), st.container(horizontal=True, vertical_alignment="bottom"):
        runs = _field("Keep ended runs, days", now.keep_runs_days, "retention-runs")
        checkpoints = _field("Keep their checkpoints, days", now.keep_checkpoints_days, "retention-checkpoints")
        limit = _field("Home folder at most, GiB", now.home_limit_gib, "retention-limit")
        shown = st.form_submit_button("Show what would go", icon=":material/visibility:", key="retention-show")
        saved = st.form_submit_button("Save", icon=":material/check:", key="retention-save")
    asked: dict[str, object] = {
        "keep_runs_days": runs or None,
        "keep_checkpoints_days": checkpoints or None,
        "home_limit_gib": limit or None,
    }
    if saved:
        with actions.showing_errors():
            desk.set_retention(retention_of(asked))
            st.rerun()
    try:
        rules = retention_of(asked) if shown else now
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    _due(rules, tried=shown and rules != now)


def _field(label: str, value: float | None, key: str) -> float:
    return st.number_input(label, 0.0, 1e6, value or 0.0, 1.0, key=key, width=200, help="0 means no limit.")


def _due(rules: Retention, *, tried: bool) -> None:
    """Draw what the next pass deletes under these rules; nothing is deleted by drawing it."""
    desk = frame.service().retention
    due = desk.planned(rules)
    if tried:
        st.html(markup.notice("blue", "visibility", "Not saved", "This is what these settings would delete."))
    if rules.home_limit_gib and (said := shortfall(rules, due, desk.disk_use().home)):
        st.html(markup.notice("orange", "warning", "The limit cannot be reached", said))
    if not due:
        if tried or not rules.is_off:
            st.html(markup.small("Nothing is due."))
        return
    table = (
        {"Run": one.run.name, "Goes": "the run" if one.what == "run" else "its checkpoints"}
        | {"Ended": frame.ago(one.run.ended_at_s), "Frees": one.size_bytes, "Why": one.why}
        for one in due[:SHOWN]
    )
    freed = memory_text(sum(one.size_bytes for one in due))
    caption = f"Due now: {wording.count_text(len(due), 'deletion')}, {freed}"
    looks: markup.Looks = {"Run": markup.bold, "Frees": memory_text}
    st.html(markup.table(caption, table, looks, right={"Frees"}))
    if not tried:
        with st.popover("Delete now…", icon=":material/delete:", key="retention-now"):
            st.html(f"<p>{markup.text('This cannot be undone.')}</p>")
            if st.button("Delete what is due", key="retention-apply", type="primary"):
                with actions.showing_errors():
                    desk.apply_retention()
                    st.rerun()
