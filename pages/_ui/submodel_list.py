"""The sub-models of a draft in rows that can be moved, edited, removed and given a priority."""

import streamlit as st

from pages._ui import drafts, frame, markup, wording

ICONS = (
    ("up", "arrow_upward", "Move up"),
    ("down", "arrow_downward", "Move down"),
    ("top", "vertical_align_top", "Move to the top"),
    ("edit", "edit", "Edit"),
    ("remove", "delete", "Remove"),
)


def draw(draft: drafts.Document, *, locked: bool) -> tuple[drafts.Document, int | None]:
    """Draw the rows; returns the draft as changed by them, and the place of a sub-model to be edited.

    `locked` keeps the rows as they are, while the editor of one is open.
    """
    names = {drafts.reference(file): file.filename for file in frame.service().files()}
    changed, edit = dict(draft), None
    with st.container(key="rows-build"):
        for at, submodel in enumerate(drafts.submodels(draft)):
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-build-{at}"):
                line = markup.faint(drafts.summary(submodel, names))
                st.html(f'{markup.signed_name(at, submodel["name"])}<div class="u-small u-entry">{line}</div>')
                priority = _priority(at, submodel, locked)
                if priority != submodel.get("priority", 0):
                    changed = drafts.put(changed, at, {**submodel, "priority": priority})
                pressed = _buttons(at, submodel["name"], len(drafts.submodels(draft)), locked)
            if pressed == "edit":
                edit = at
            elif pressed:
                changed = _moved(changed, at, pressed)
    return changed, edit


def _priority(at: int, submodel: drafts.Document, locked: bool) -> int:
    known = int(submodel.get("priority", 0))
    typed = st.number_input(
        f"Priority of {wording.plain(submodel['name'])}",
        value=known,
        # The key holds the value that is saved, so that a row which moved shows its own priority.
        key=f"priority-{submodel['name']}-{at}-{known}",
        label_visibility="collapsed",
        width=104,
        help="Priority: lower goes first.",
        disabled=locked,
    )
    return int(typed)


def _buttons(at: int, name: str, count: int, locked: bool) -> str:
    pressed = ""
    off = {"up": at == 0, "top": at == 0, "down": at == count - 1}
    with st.container(horizontal=True, key=f"icons-build-{at}", width="content", wrap=False):
        for action, icon, verb in ICONS:
            label = f"{verb} {wording.plain(name)}"
            if st.button(
                label,
                key=f"{action}-{at}",
                icon=f":material/{icon}:",
                type="tertiary",
                help=label,
                disabled=locked or off.get(action, False),
            ):
                pressed = action
    return pressed


def _moved(draft: drafts.Document, at: int, action: str) -> drafts.Document:
    if action == "remove":
        return drafts.remove(draft, at)
    return drafts.move(draft, at, {"up": at - 1, "down": at + 1, "top": 0}[action])
