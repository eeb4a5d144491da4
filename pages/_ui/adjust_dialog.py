"""Changing an active run: its policy, and the order, priorities and epochs of its sub-models."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from pages._ui import actions, banners, frame, markup, run_form, wording
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import PolicySpec
from unifiednn_core.views.runs import RunView, SubModelView

FIELD_WIDTH_PX, ICONS_WIDTH_PX = 112, 70
# An interrupted run waits to be resumed; what is changed meanwhile holds from then on.
OPEN = (frozenset(State) - ENDED - {State.STOPPING}) | {State.INTERRUPTED}


def draw() -> None:
    """Draw the dialog if it is open. Call it once, in the body of a page."""
    asked = actions.opened_dialog("adjust")
    if asked is not None:
        name = wording.plain(frame.service().runs.observe(asked.run_id).name)
        st.dialog(f"Adjust {name}", width="medium", on_dismiss=actions.close_dialog)(_adjust)(asked)


def _adjust(asked: actions.Dialog) -> None:
    view = frame.service().runs.observe(asked.run_id)
    if not is_open(view):
        st.html(markup.faint(wording.NOTHING_TO_ADJUST))
        return
    st.html(markup.small(wording.EDITS_HELP))
    submodels, policy = st.tabs(["Sub-models", "Policy"], key=f"adjust-tabs-{asked.number}")
    with submodels:
        _submodels(view, key=f"adjust{asked.number}")
    with policy:
        _policy(view, key=f"adjust{asked.number}-policy")
    # Observed again, because a button above may just have added a command.
    if waiting := banners.waiting(frame.service().runs.observe(asked.run_id)):
        st.html(waiting)


def _policy(view: RunView, *, key: str) -> None:
    known = PolicySpec.model_validate(view.spec.get("policy", {}))
    wanted = PolicySpec.model_validate(run_form.policy(known.model_dump(), key=key))
    if _apply_button("Apply policy", f"{key}-apply", off=wanted == known):
        _carry_out([lambda: frame.service().runs.set_policy(view.run_id, wanted)])


def _submodels(view: RunView, *, key: str) -> None:
    run_id, service = view.run_id, frame.service()
    listed = {submodel.name: submodel for submodel in view.submodels if is_open(submodel)}
    known = list(listed)
    held: list[str] = st.session_state.setdefault(f"{key}-order", known)
    order = [*(name for name in held if name in listed), *(name for name in known if name not in held)]
    priorities: dict[str, int] = {}
    epochs: dict[str, int] = {}
    with st.container(key="rows-adjust"):
        _head()
        for name in order:
            priorities[name], epochs[name] = _row(listed[name], order, key)
    new_priorities = changed({name: s.priority for name, s in listed.items()}, priorities)
    new_epochs = changed({name: s.epochs for name, s in listed.items()}, epochs)
    with st.container(horizontal=True, horizontal_alignment="right"):
        if _apply_button("Apply order", f"{key}-apply-order", off=order == known, help=wording.ORDER_HELP):
            names = whole_order([submodel.name for submodel in view.submodels], order)
            _carry_out([lambda: service.runs.reorder(run_id, names)])
        if _apply_button("Apply priorities", f"{key}-apply-priorities", off=not new_priorities):
            _carry_out(_each(lambda name, value: service.runs.set_priority(run_id, name, value), new_priorities))
        if _apply_button("Apply epochs", f"{key}-apply-epochs", off=not new_epochs):
            _carry_out(_each(lambda name, value: service.runs.set_epochs(run_id, name, value), new_epochs))


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
                label, click = f"{verb} {wording.plain(name)}", (f"{key}-order", moved(order, name, by))
                actions.icon_button(label, icon, f"{key}-{by}-{name}", disabled=off, on_click=_move, args=click)
        field = partial(st.number_input, label_visibility="collapsed", width=FIELD_WIDTH_PX)
        label = wording.plain(name)
        priority = field(f"Priority of {label}", value=submodel.priority, key=f"{key}-priority-{name}")
        epochs = field(f"Epochs of {label}", 1, value=submodel.epochs, key=f"{key}-epochs-{name}")
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


def is_open(part: RunView | SubModelView) -> bool:
    """Whether a run or a sub-model can still be changed."""
    return part.state in OPEN


def moved(names: Sequence[str], name: str, by: int) -> list[str]:
    """Names with one of them moved by so many places; it stays within the ends."""
    rest = [other for other in names if other != name]
    at = max(0, min(names.index(name) + by, len(rest)))
    return [*rest[:at], name, *rest[at:]]


def whole_order(names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """All names, those in `wanted` in its order, each other one at the place that it has."""
    turn = iter(wanted)
    return [next(turn) if name in wanted else name for name in names]


def changed(known: Mapping[str, int], typed: Mapping[str, int]) -> dict[str, int]:
    """What was typed and differs."""
    return {name: value for name, value in typed.items() if value != known[name]}
