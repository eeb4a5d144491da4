"""Dialogs that end training, add a sub-model or change a run. A page draws them in its body: ticks would close them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

import streamlit as st

from pages._ui import actions, arms, banners, drafts, forecast_panel, frame, run_form, submodel_form
from unifiednn_core.base.errors import BadInput, Finding, UnifiedNNError
from unifiednn_core.service.forecasts import RunChange
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.spec.techniques import MOST_DEVICES
from unifiednn_core.views import markup, wording
from unifiednn_core.views.forecast import Counterfactual
from unifiednn_core.views.runs import RunView, SubModelView
from unifiednn_core.views.techniques import nodes_text

_Value = TypeVar("_Value", int, float | None)
FIELD_WIDTH_PX, PLACE_WIDTH_PX, ICONS_WIDTH_PX = 104, 84, 104
OPEN = (frozenset(State) - ENDED - {State.STOPPING}) | {State.INTERRUPTED}
"""States in which a run or sub-model can be changed; the changes of an interrupted one hold when it is resumed."""
STOP_RUN = (
    "Training ends after the current step. The progress of each sub-model is saved and can be downloaded, and the "
    "history stays. A stopped run cannot be resumed."
)
STOP_SUBMODEL = (
    "It ends after its current step; the other sub-models continue. Its progress is saved and can be downloaded. "
    "A stopped sub-model cannot be resumed."
)
STOP_BASELINE = "Its processes end now and keep nothing. A stopped baseline gives no verdict; you can run it again."
DISCARD_RUN = (
    "Training ends after this step. Finished sub-models and the history stay; the others keep nothing: no model file "
    "and no checkpoint. This cannot be undone."
)
DISCARD_SUBMODEL = (
    "It ends after its current step; the other sub-models continue. It keeps nothing: no model file and no "
    "checkpoint. This cannot be undone."
)
EDITS_HELP = "Each change takes effect at the next step. No progress is lost."
DEVICES_HELP = (
    "They compute the virtual nodes of a batch. The number changes no bit of the result. Devices compute at once, and "
    "each one more needs the memory of a share, unless the network draws random numbers or has buffers such as those "
    "of batch normalisation: then they take turns."
)
ORDER_HELP = "Earlier means arrived first. First come follows this order; the other policies break ties by it."


def draw_all() -> None:
    """Draw the dialog that is open, if any. Call it once, in the body of a page."""
    asked: actions.Dialog | None = st.session_state.get(actions.DIALOG)
    if asked is None:
        return
    view = frame.service().runs.observe(asked.run_id)
    stops = "Stop baseline?" if arms.is_baseline(view) else "Stop training?"
    name = wording.plain(view.name)
    titles: dict[str, tuple[str, Literal["small", "medium", "large"], Callable[[actions.Dialog], None]]] = {
        "stop": (stops, "small", partial(_stop, view=view)),
        "discard": ("Discard training?", "small", partial(_discard, view=view)),
        "add": (f"Add a sub-model to {name}", "large", _add),
        "adjust": (f"Adjust {name}", "large", _adjust),
    }
    title, width, draw = titles[asked.kind]
    st.dialog(title, width=width, on_dismiss=actions.close_dialog)(draw)(asked)


def _stop(asked: actions.Dialog, view: RunView) -> None:
    what, baseline = asked.submodel or view.name, arms.is_baseline(view)
    if baseline:
        survives, no, yes = STOP_BASELINE, "Keep it running", "Stop the baseline"
    else:
        survives = STOP_SUBMODEL if asked.submodel else STOP_RUN
        no, yes = "Keep training", "Stop and keep results"
    st.html(f"<p>{markup.bold(what)}: {markup.text(survives)}</p>")
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button(no, key="stop-no"):
            _close()
        if not baseline and st.button("Discard…", key="stop-discard", help="End it and keep nothing."):
            actions.open_dialog("discard", asked.run_id, asked.submodel)
            st.rerun()
        if st.button(yes, key="stop-yes", type="primary", icon=":material/stop:"):
            _end(Event.STOP, asked)


def _discard(asked: actions.Dialog, view: RunView) -> None:
    what, lost = asked.submodel or view.name, DISCARD_SUBMODEL if asked.submodel else DISCARD_RUN
    st.html(f"<p>{markup.bold(what)}: {markup.text(lost)}</p>")
    typed = st.text_input(f"Type its name to confirm: {wording.plain(what)}", key=f"discard-name-{asked.number}")
    icon, wrong = ":material/delete_forever:", typed != what
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep training", key="discard-no"):
            _close()
        if st.button("Discard", key="discard-yes", type="primary", icon=icon, disabled=wrong):
            _end(Event.DISCARD, asked)


def _end(event: Event, asked: actions.Dialog) -> None:
    actions.carry_out(event, asked.run_id, asked.submodel)
    _close()


def _close() -> None:
    actions.close_dialog()
    st.rerun()


def _add(asked: actions.Dialog) -> None:
    view = frame.service().runs.observe(asked.run_id)
    key, taken = f"add{asked.number}", [submodel.name for submodel in view.submodels]
    st.html(markup.small(wording.ADD_HELP))
    entered = submodel_form.submodel_form({}, taken, key=key)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="add-cancel"):
            _close()
        words = "Add anyway" if st.session_state.get(f"{key}-warned") == entered else "Add to the run"
        pressed = st.button(words, key="add-save", type="primary", icon=":material/add:")
    if pressed:
        _submit(asked.run_id, entered, taken, key=key)


def _submit(run_id: str, entered: drafts.Document, taken: list[str], *, key: str) -> None:
    def on_warnings(findings: Sequence[Finding]) -> None:
        """Show warnings first; a second submission of the same sub-model ignores them."""
        if findings and st.session_state.get(f"{key}-warned") != entered:
            st.session_state[f"{key}-warned"] = entered
            raise BadInput(findings)

    spec, _ = drafts.spec_or_findings({"submodels": [entered]})
    found = submodel_form.findings_of(entered, taken, key=key)
    try:
        if found or spec is None:
            raise BadInput(found)
        with st.spinner("Checking model and data…"):
            frame.service().runs.add_submodel(run_id, spec.submodels[0], on_warnings=on_warnings)
    except BadInput as error:
        submodel_form.tell(error.findings, key=key)
        st.rerun()  # the form above was drawn without them
    except UnifiedNNError as error:
        actions.show_error(error)
        return
    _close()


def _adjust(asked: actions.Dialog) -> None:
    view = frame.service().runs.observe(asked.run_id)
    if not is_open(view):
        st.html(markup.faint("This run has ended; nothing is left to adjust."))
        return
    st.html(markup.small(EDITS_HELP))
    parts = {"Sub-models": _adjust_submodels}
    if not view.shared:  # the policy of shared hybrids is the operator's
        parts["Policy"] = _adjust_policy
    if any(map(has_devices, view.submodels)):
        parts["Logical devices"] = _adjust_devices
    tabs = st.tabs(list(parts), key=f"adjust-tabs-{asked.number}")
    for tab, (at, draw) in zip(tabs, enumerate(parts.values()), strict=True):
        with tab:
            draw(view, key=f"adjust{asked.number}-{at}")
    # Observed again: a button above may have added a command.
    if waiting := banners.waiting(frame.service().runs.observe(asked.run_id)):
        st.html(waiting)


def _adjust_policy(view: RunView, *, key: str) -> None:
    known = PolicySpec.model_validate(view.spec.get("policy", {}))
    wanted = PolicySpec.model_validate(run_form.policy(known.model_dump(), key=key))
    if wanted != known:
        _foresee(partial(frame.service().runs.forecast_change, view.run_id, RunChange(policy=wanted)))
    if _apply_button("Apply policy", f"{key}-apply", off=wanted == known):
        _carry_out([partial(frame.service().runs.set_policy, view.run_id, wanted)])


def _foresee(change: Callable[[], Counterfactual]) -> None:
    """Draw what a change would do to each finish, before it is applied."""
    try:
        st.html(forecast_panel.counterfactual(change()))
    except UnifiedNNError:  # applying it tells
        return


def _adjust_submodels(view: RunView, *, key: str) -> None:
    runs = frame.service().runs
    listed = {submodel.name: submodel for submodel in view.submodels if is_open(submodel)}
    known = list(listed)
    held: list[str] = st.session_state.setdefault(f"{key}-order", known)
    order = [*(name for name in held if name in listed), *(name for name in known if name not in held)]
    with st.container(key="rows-adjust"):
        _head()
        typed = {name: _row(listed[name], order, key) for name in order}
    new_priorities = changed({name: listed[name].priority for name in order}, {n: typed[n][0] for n in order})
    new_deadlines = changed({name: listed[name].deadline_s for name in order}, {n: typed[n][2] for n in order})
    new_epochs = changed({name: listed[name].epochs for name in order}, {n: typed[n][1] for n in order})
    if order != known or new_priorities or new_epochs:
        names = whole_order([submodel.name for submodel in view.submodels], order) if order != known else None
        asked = RunChange(priorities=new_priorities, epochs=new_epochs, order=names or ())
        _foresee(partial(runs.forecast_change, view.run_id, asked))
    with st.container(horizontal=True, horizontal_alignment="right"):
        if _apply_button("Apply order", f"{key}-apply-order", off=order == known, help=ORDER_HELP):
            names = whole_order([submodel.name for submodel in view.submodels], order)
            _carry_out([partial(runs.reorder, view.run_id, names)])
        if _apply_button("Apply priorities", f"{key}-apply-priorities", off=not new_priorities):
            _carry_out([partial(runs.set_priority, view.run_id, *new) for new in new_priorities.items()])
        if _apply_button("Apply deadlines", f"{key}-apply-deadlines", off=not new_deadlines):
            _carry_out([partial(runs.set_deadline, view.run_id, *new) for new in new_deadlines.items()])
        if _apply_button("Apply epochs", f"{key}-apply-epochs", off=not new_epochs):
            _carry_out([partial(runs.set_epochs, view.run_id, *new) for new in new_epochs.items()])


def _adjust_devices(view: RunView, *, key: str) -> None:
    st.html(markup.small(DEVICES_HELP))
    known = {one.name: one.nodes.devices for one in view.submodels if one.nodes is not None and has_devices(one)}
    typed: dict[str, int] = {}
    with st.container(key="rows-devices"):
        for one in view.submodels:
            if one.nodes is None or one.name not in known:
                continue
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-devices-{one.name}"):
                cut = markup.text(nodes_text(one.nodes.count, one.nodes.shares))
                st.html(f'{markup.signed_name(one.number, one.name)}<span class="u-under">{cut}</span>')
                typed[one.name] = st.number_input(
                    f"Logical devices of {wording.plain(one.name)}",
                    1,
                    MOST_DEVICES,
                    one.nodes.devices,
                    key=f"{key}-{one.name}",
                    label_visibility="collapsed",
                    width=FIELD_WIDTH_PX,
                )
    new = changed(known, typed)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if _apply_button("Apply devices", f"{key}-apply", off=not new):
            _carry_out([partial(frame.service().runs.set_devices, view.run_id, *one) for one in new.items()])


def _head() -> None:
    with st.container(horizontal=True, key="row-adjust-head"):
        st.html(markup.small("Sub-model"))
        widths = {"Order": PLACE_WIDTH_PX + ICONS_WIDTH_PX}
        for word in ("Order", "Priority", "Epochs", "Deadline (s)"):
            st.html(markup.small(word), width=widths.get(word, FIELD_WIDTH_PX))


def _row(submodel: SubModelView, order: Sequence[str], key: str) -> tuple[int, int, float | None]:
    """Draw the fields of one sub-model; returns its priority, epochs and deadline."""
    name = submodel.name
    with st.container(horizontal=True, vertical_alignment="center", key=f"row-adjust-{name}"):
        st.html(markup.signed_name(submodel.number, name))
        label, place = wording.plain(name), order.index(name) + 1
        # A key for each place, so that a move fills the field anew.
        place_key = f"{key}-place-{place}-{name}"
        st.number_input(
            f"Place of {label}",
            1,
            len(order),
            place,
            key=place_key,
            label_visibility="collapsed",
            width=PLACE_WIDTH_PX,
            on_change=_put,
            args=(f"{key}-order", place_key, order, name),
        )
        with st.container(horizontal=True, key=f"icons-adjust-{name}", width=ICONS_WIDTH_PX, wrap=False):
            for verb, icon, by in (
                ("Move {name} to the top", "vertical_align_top", -len(order)),
                ("Move up {name}", "arrow_upward", -1),
                ("Move down {name}", "arrow_downward", 1),
            ):
                off = name == (order[0] if by < 0 else order[-1])
                click = (f"{key}-order", moved(order, name, by))
                said = verb.format(name=label)
                actions.icon_button(said, icon, f"{key}-{icon}-{name}", disabled=off, on_click=_move, args=click)
        field = partial(st.number_input, label_visibility="collapsed", width=FIELD_WIDTH_PX)
        priority = field(f"Priority of {label}", value=submodel.priority, key=f"{key}-priority-{name}")
        epochs = field(f"Epochs of {label}", 1, value=submodel.epochs, key=f"{key}-epochs-{name}")
        deadline_s = field(
            f"Deadline of {label}", 0.0, value=submodel.deadline_s, key=f"{key}-deadline-{name}", placeholder="none"
        )
    return int(priority), int(epochs), deadline_s or None


def _move(order_key: str, order: list[str]) -> None:
    st.session_state[order_key] = order


def _put(order_key: str, place_key: str, order: list[str], name: str) -> None:
    """Put a sub-model at the place that was typed."""
    by = int(st.session_state[place_key]) - 1 - order.index(name)
    _move(order_key, moved(order, name, by))


def _apply_button(label: str, key: str, *, off: bool, help: str | None = None) -> bool:
    return st.button(label, key=key, type="primary", icon=":material/check:", disabled=off, help=help)


def _carry_out(calls: Sequence[Callable[[], object]]) -> None:
    with actions.showing_errors():
        for call in calls:
            call()


def is_open(part: RunView | SubModelView) -> bool:
    """Whether a run or a sub-model can still change."""
    return part.state in OPEN


def has_devices(submodel: SubModelView) -> bool:
    """Whether logical devices compute its virtual nodes, and their number can still change."""
    return submodel.nodes is not None and is_open(submodel)


def moved(names: Sequence[str], name: str, by: int) -> list[str]:
    """Names with one of them moved by a number of places, at most to an end."""
    rest = [other for other in names if other != name]
    at = max(0, min(names.index(name) + by, len(rest)))
    return [*rest[:at], name, *rest[at:]]


def whole_order(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """All names, those of `wanted` in its order; each other name keeps its place."""
    turn = iter(wanted)
    return [next(turn) if name in wanted else name for name in names]


def changed(known: Mapping[str, _Value], typed: Mapping[str, _Value]) -> dict[str, _Value]:
    """Typed values that differ."""
    return {name: value for name, value in typed.items() if value != known[name]}
