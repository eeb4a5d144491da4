"""Changing a run that lives: its policy, and the order, priorities and epochs of its sub-models."""

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from pages._ui import actions, banners, dialogs, edits, frame, markup, policy_form, wording
from unifiednn_core.errors import UnifiedNNError
from unifiednn_core.spec import PolicySpec
from unifiednn_core.views.runs import RunView, SubModelView

FIELD_WIDTH_PX, ICONS_WIDTH_PX = 112, 70


def draw() -> None:
    """Open the dialog if it was asked for. Call it once, in the body of a page."""
    asked = dialogs.asked("adjust")
    if asked is not None:
        name = wording.plain(frame.service().observe(asked.run_id).name)
        st.dialog(f"Adjust {name}", width="medium", on_dismiss=dialogs.forget)(_adjust)(asked)


def _adjust(asked: dialogs.Asked) -> None:
    view = frame.service().observe(asked.run_id)
    if not edits.is_open(view):
        st.html(markup.faint(wording.NOTHING_TO_ADJUST))
        return
    st.html(markup.small(wording.EDITS_HELP))
    submodels, policy = st.tabs(["Sub-models", "Policy"], key=f"adjust-tabs-{asked.number}")
    with submodels:
        _submodels(view, key=f"adjust{asked.number}")
    with policy:
        _policy(view, key=f"adjust{asked.number}-policy")
    # Asked again, because a button above may just have added to it.
    if waiting := banners.waiting(frame.service().observe(asked.run_id)):
        st.html(waiting)


def _policy(view: RunView, *, key: str) -> None:
    known = PolicySpec.model_validate(view.spec.get("policy", {}))
    wanted = PolicySpec.model_validate(policy_form.policy(known.model_dump(), key=key))
    if _apply_button("Apply policy", f"{key}-apply", off=wanted == known):
        _carry_out([lambda: frame.service().set_policy(view.run_id, wanted)])


def _submodels(view: RunView, *, key: str) -> None:
    run_id, service = view.run_id, frame.service()
    listed = {submodel.name: submodel for submodel in view.submodels if edits.is_open(submodel)}
    known = list(listed)
    held: list[str] = st.session_state.setdefault(f"{key}-order", known)
    order = [*(name for name in held if name in listed), *(name for name in known if name not in held)]
    priorities: dict[str, int] = {}
    epochs: dict[str, int] = {}
    with st.container(key="rows-adjust"):
        _head()
        for name in order:
            priorities[name], epochs[name] = _row(listed[name], order, key)
    new_priorities = edits.changed({name: s.priority for name, s in listed.items()}, priorities)
    new_epochs = edits.changed({name: s.epochs for name, s in listed.items()}, epochs)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if _apply_button("Apply order", f"{key}-apply-order", off=order == known, help=wording.ORDER_HELP):
            names = edits.whole_order([submodel.name for submodel in view.submodels], order)
            _carry_out([lambda: service.reorder(run_id, names)])
        if _apply_button("Apply priorities", f"{key}-apply-priorities", off=not new_priorities):
            _carry_out(_each(lambda name, value: service.set_priority(run_id, name, value), new_priorities))
        if _apply_button("Apply epochs", f"{key}-apply-epochs", off=not new_epochs):
            _carry_out(_each(lambda name, value: service.set_epochs(run_id, name, value), new_epochs))


def _head() -> None:
    with st.container(horizontal=True, key="row-adjust-head"):
        st.html(markup.small("Sub-model"))
        for word, width in (("Order", ICONS_WIDTH_PX), ("Priority", FIELD_WIDTH_PX), ("Epochs", FIELD_WIDTH_PX)):
            st.html(markup.small(word), width=width)


def _row(submodel: SubModelView, order: Sequence[str], key: str) -> tuple[int, int]:
    """Draw the fields of one sub-model; returns the priority and the epochs that they hold."""
    name = submodel.name
    with st.container(horizontal=True, vertical_alignment="center", key=f"row-adjust-{name}"):
        st.html(markup.signed_name(submodel.number, name))
        with st.container(horizontal=True, key=f"icons-adjust-{name}", width=ICONS_WIDTH_PX, wrap=False):
            for verb, icon, by, off in (
                ("Move up", "arrow_upward", -1, name == order[0]),
                ("Move down", "arrow_downward", 1, name == order[-1]),
            ):
                label = f"{verb} {wording.plain(name)}"
                st.button(
                    label,
                    key=f"{key}-{by}-{name}",
                    icon=f":material/{icon}:",
                    type="tertiary",
                    help=label,
                    disabled=off,
                    on_click=_move,
                    args=(f"{key}-order", edits.moved(order, name, by)),
                )
        priority = st.number_input(
            f"Priority of {wording.plain(name)}",
            value=submodel.priority,
            key=f"{key}-priority-{name}",
            label_visibility="collapsed",
            width=FIELD_WIDTH_PX,
        )
        epochs = st.number_input(
            f"Epochs of {wording.plain(name)}",
            1,
            value=submodel.epochs,
            key=f"{key}-epochs-{name}",
            label_visibility="collapsed",
            width=FIELD_WIDTH_PX,
        )
    return int(priority), int(epochs)


def _move(order_key: str, order: list[str]) -> None:
    st.session_state[order_key] = order


def _apply_button(label: str, key: str, *, off: bool, help: str | None = None) -> bool:
    return st.button(label, key=key, type="primary", icon=":material/check:", disabled=off, help=help)


def _each(call: Callable[[str, int], object], values: Mapping[str, int]) -> list[Callable[[], object]]:
    return [lambda name=name, value=value: call(name, value) for name, value in values.items()]  # type: ignore[misc]


def _carry_out(calls: Sequence[Callable[[], object]]) -> None:
    try:
        for call in calls:
            call()
    except UnifiedNNError as error:
        actions.show_error(error)
