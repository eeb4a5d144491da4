"""Tables of the library: files with what uses them, and what runs have kept on this server."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

import streamlit as st

from pages._ui import actions, file_pick, frame, rows, signed_in, starts
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.spec.run_query import MOST_COUNTED, MOST_USES_COUNTED, KeptQuery, KeptSort
from unifiednn_core.views import markup, wording
from unifiednn_core.views.certificate import LOOKS, Standing
from unifiednn_core.views.library import KeptModel, QuotaView, ShelvedFile
from unifiednn_core.views.runs import FileView

SHA_LENGTH = 12
SHOWN = 50
"""Rows shown at first."""
DELETING, RENAMING = "library-deleting", "library-renaming"
ENTRIES = {"model": "Model", "train_data": "Training data", "test_data": "Test data", "start_from.file": "Starts from"}
AGAIN = "Figures and models of ended runs stay, but training them again needs the file."
DESCENDING = frozenset({"size", "runs", "added", "accuracy"})
Key = Callable[[Any], Any]


def quota(view: QuotaView) -> str:
    """What the files of the viewer take, of how much; and what the home folder takes."""
    parts = f"library {memory_text(view.library)}, models {memory_text(view.models)}, "
    parts += f"newest checkpoints {memory_text(view.checkpoints)}"
    lines = [_measure(f"Your files: {memory_text(view.used_bytes)}", view.used_bytes, view.quota_bytes, parts)]
    if view.home_bytes is not None:
        free = "" if view.free_bytes is None else f"{memory_text(view.free_bytes)} free on the disk"
        home = f"Home folder: {memory_text(view.home_bytes)}"
        lines.append(_measure(home, view.home_bytes, view.home_limit_bytes, free))
    return f'<div class="u-quotas">{"".join(lines)}</div>'


def _measure(words: str, used: int, limit: int | None, more: str) -> str:
    of = "" if limit is None else f" of {memory_text(limit)}"
    fraction = None if not limit else used / limit
    colour = None if fraction is None or fraction < 0.9 else "var(--u-red)"
    bar = "" if fraction is None else markup.bar(fraction, words, colour)
    return f'<div class="u-quota"><span><b>{markup.text(words + of)}</b> {markup.faint(more)}</span>{bar}</div>'


def files(held: Sequence[ShelvedFile], thing: str, *, key: str) -> None:
    """Draw the table of these files, with search, filters, and what can be done with the ticked ones."""
    shown = _filtered(held, key)
    bar = st.container(horizontal=True, vertical_alignment="center", key=f"{key}-bar")
    place = st.container()
    if not shown:
        st.html(markup.empty("No file matches", "Change the search or the filters."))
        return
    keys: dict[str, Key] = {
        "name": lambda one: one.file.filename.lower(),
        "kind": lambda one: one.file.kind,
        "format": lambda one: one.file.format,
        "size": lambda one: one.file.size_bytes,
        "runs": lambda one: one.runs,
        "added": lambda one: one.file.created_at_s,
    }
    heads = {
        "name": "File",
        "kind": "Kind",
        "format": "Format",
        "facts": "Facts",
        "runs": "Used by",
        "size": "Size",
        "added": "Added",
        "sha": "SHA-256",
    }
    columns = [rows.Column(name, label, name in keys, name == "size") for name, label in heads.items()]
    total = memory_text(sum(one.file.size_bytes for one in shown))
    caption = f"{wording.count_text(len(shown), thing)}, {total}"
    sort, descending, most = _arrangement(key)
    ordered = sorted(shown, key=keys[sort], reverse=descending)
    answer = _table(columns, [_line(one) for one in ordered[:most]], len(ordered), caption, key)
    chosen = [one for one in held if one.file.sha256 in answer.ticked]
    with bar:
        _file_bar(chosen, key)
    if len(chosen) == 1:
        place.html(_details(chosen[0]))


def kept(what: Literal["model", "checkpoint"], thing: str, *, key: str) -> None:
    """Draw the table of what runs have kept, with search and what can be done with the ticked one."""
    text = st.text_input(
        "Search", key=f"{key}-text", placeholder="sub-model, run", width=240, label_visibility="collapsed"
    ).strip()
    sort, descending, most = _arrangement(key)
    asked = KeptQuery(what, text, cast("KeptSort", sort), descending, most or MOST_COUNTED)
    found = frame.service().library.kept(asked)
    shown = found.models
    bar = st.container(horizontal=True, vertical_alignment="center", key=f"{key}-bar")
    place = st.container()
    if not shown:
        st.html(markup.empty("Nothing matches", "Change the search."))
        return
    is_model = what == "model"
    heads = {"name": "Sub-model", "run": "Run", "state": "State", "accuracy": "Test accuracy"}
    heads |= {"sha": "SHA-256 of weights", "certificate": "Certificate"} if is_model else {"step": "Step"}
    heads |= {"size": "Size", "added": "Written", "get": "Download"}
    columns = [
        rows.Column(name, label, name in get_args(KeptSort), name in ("accuracy", "size", "step"))
        for name, label in heads.items()
    ]
    count = wording.count_text(found.total, thing)
    caption = f"{count} or more: search for the others"
    if found.size_bytes is not None:
        caption = f"{count}, {memory_text(found.size_bytes)}"
    lines = [_kept_line(one, list(heads)[1:]) for one in shown]
    answer = _table(columns, lines, found.total, caption, key)
    chosen = [one for one in shown if _kept_key(one) in answer.ticked]
    with bar:
        one = chosen[0] if len(chosen) == 1 else None
        label = "Use in a new hybrid" if is_model else "Continue in a new hybrid"
        used = st.button(label, key=f"{key}-use", icon=":material/account_tree:", disabled=one is None)
        st.html(markup.small(_ticked_words(len(chosen))))
    if one is not None and used:
        starts.with_kept(one.run_id, one.submodel, one.what)
    if one is not None:
        place.html(_lineage(one))


def draw_dialogs(held: Sequence[ShelvedFile]) -> None:
    """Draw the dialog that deletes or renames, if one is open. Call it once, in the body of the page."""
    by_sha = {one.file.sha256: one for one in held}
    if asked := st.session_state.get(DELETING):
        chosen = [by_sha[sha256] for sha256 in asked[1] if sha256 in by_sha]
        st.dialog(f"Delete {wording.count_text(len(chosen), 'file')}?", on_dismiss=_close)(_deletion)(asked[0], chosen)
    elif (asked := st.session_state.get(RENAMING)) and asked[1] in by_sha:
        st.dialog("Rename", on_dismiss=_close)(_renaming)(asked[0], by_sha[asked[1]])


def _filtered(held: Sequence[ShelvedFile], key: str) -> list[ShelvedFile]:
    kinds = sorted({one.file.kind for one in held})
    with st.container(horizontal=True, vertical_alignment="bottom", key=f"{key}-filters"):
        asked = st.text_input(
            "Search",
            key=f"{key}-text",
            placeholder="name, format, SHA-256, run",
            width=280,
            label_visibility="collapsed",
        )
        kind = None
        if len(kinds) > 1:
            kind = st.selectbox(
                "Kind", kinds, None, key=f"{key}-kind", placeholder="all kinds", width=160, label_visibility="collapsed"
            )
    text = asked.strip().lower()
    of_runs = frame.service().library.files_used_by(text) if text else frozenset()

    def matches(file: FileView) -> bool:
        words = f"{file.filename}\n{file.format}\n{file.sha256}".lower()
        return (text in words or file.sha256 in of_runs) and kind in (None, file.kind)

    return [one for one in held if matches(one.file)]


def _arrangement(key: str) -> tuple[str, bool, int | None]:
    """Column that a table is sorted by, whether its largest value comes first, and how many rows are drawn."""
    sort, descending = st.session_state.get(f"{key}-sort", ("added", True))
    return sort, descending, None if st.session_state.get(f"{key}-all", False) else SHOWN


def _table(
    columns: Sequence[rows.Column], drawn: Sequence[rows.TableLine], total: int, caption: str, key: str
) -> rows.Answer:
    """Draw rows in their order, with a button for the rest of so many in all."""
    sort, descending, _ = _arrangement(key)
    answer = rows.draw(columns, drawn, caption=caption, key=f"{key}-table", sort=sort, descending=descending)
    if answer.sorted:
        down = not descending if answer.sorted == sort else answer.sorted in DESCENDING
        st.session_state[f"{key}-sort"] = (answer.sorted, down)
        st.rerun()
    if len(drawn) < total and st.button(f"Show all {total}", key=f"{key}-more"):
        st.session_state[f"{key}-all"] = True
        st.rerun()
    return answer


def _line(one: ShelvedFile) -> rows.TableLine:
    file = one.file
    users = [_counted(one.runs, "run", MOST_USES_COUNTED)] if one.runs else []
    users += [wording.count_text(len(one.drafts), "draft")] if one.drafts else []
    facts = " · ".join(file_pick.facts(file)) or "-"
    came = f"from run {one.origin.run_name or one.origin.run_id}" if one.origin else ""
    if one.owners > 1:
        came = " · ".join(filter(None, (came, f"{one.owners} people have it")))
    return rows.TableLine(
        file.sha256,
        file.filename,
        (
            markup.text(file.kind),
            markup.text(file.format),
            f'<span class="u-faint u-clip" title="{markup.text(facts)}">{markup.text(facts)}</span>',
            markup.text(", ".join(users)) or markup.faint("-"),
            memory_text(file.size_bytes),
            f'<span class="u-faint u-nowrap">{markup.text(frame.ago(file.created_at_s))}</span>',
            markup.mono(file.sha256[:SHA_LENGTH]),
        ),
        badge=f'<span class="u-more u-faint">{markup.text(came)}</span>' if came else "",
    )


def _kept_key(one: KeptModel) -> str:
    return f"{one.run_id}/{one.submodel}"


def _kept_line(one: KeptModel, names: Sequence[str]) -> rows.TableLine:
    kind = "models" if one.what == "model" else "checkpoints"
    address = actions.download_address(kind, one.run_id, one.submodel)
    label = f"Download {one.submodel}, {memory_text(one.size_bytes)}"
    run = markup.text(one.run_name)
    cells = {
        "run": f'<a class="u-clip u-link" href="run?run={markup.text(one.run_id)}" title="{run}">{run}</a>',
        "state": markup.state_badge(one.state),
        "accuracy": wording.accuracy_text(one.test_accuracy),
        "sha": markup.mono(one.state_sha256[:SHA_LENGTH]) if one.state_sha256 else "-",
        "certificate": _certificate(one.certificate),
        "step": "-" if one.step is None else f"{one.step:,}",
        "size": memory_text(one.size_bytes),
        "added": f'<span class="u-faint u-nowrap">{markup.text(frame.ago(one.at_s))}</span>',
        "get": actions.download_html(label, address, tip=one.filename, bare=True),
    }
    return rows.TableLine(_kept_key(one), one.submodel, [cells[name] for name in names])


def _certificate(stands: Standing | None) -> str:
    if stands is None:
        return "-"
    words, symbol, colour = LOOKS[stands]
    return markup.badge(words, symbol, colour, "Separation certificate")


def _file_bar(chosen: Sequence[ShelvedFile], key: str) -> None:
    one = chosen[0] if len(chosen) == 1 else None
    icon = ":material/account_tree:"
    if signed_in.may("save_draft") and st.button(
        "Use in a new hybrid", key=f"{key}-use", icon=icon, disabled=one is None or one.file.kind == "tokenizer"
    ):
        starts.with_file(chosen[0])
    if st.button("Rename…", key=f"{key}-rename", icon=":material/edit:", disabled=one is None):
        st.session_state[RENAMING] = (key, chosen[0].file.sha256)
        st.rerun()
    if st.button("Delete…", key=f"{key}-delete", icon=":material/delete:", disabled=not chosen):
        st.session_state[DELETING] = (key, tuple(one.file.sha256 for one in chosen))
        st.rerun()
    st.html(markup.small(_ticked_words(len(chosen))))


def _ticked_words(count: int) -> str:
    return f"{count} selected" if count else "Tick a row to use it."


def _counted(count: int, thing: str, most: int) -> str:
    """A count with its noun, of things that are counted up to `most`."""
    words = wording.count_text(count, thing)
    return words if count < most else f"{words} or more"


def _details(one: ShelvedFile) -> str:
    """What uses a file, and where it is from."""
    lines = []
    if one.origin is not None:
        what = "Trained model" if one.origin.what == "model" else "Checkpoint"
        step = "" if one.origin.step is None else f", step {one.origin.step}"
        run_id, name = one.origin.run_id, one.origin.run_name
        link = _run_link(run_id, name) if one.origin.is_there else markup.text(name or run_id)
        lines.append(f"{markup.text(what)} {markup.bold(one.origin.submodel)}{markup.text(step)}, {link}")
    for use in frame.service().library.file_uses(one.file.sha256):
        entry = ENTRIES.get(use.entry, use.entry)
        needed = f" {markup.faint('still needed: the run has not ended')}" if use.needed else ""
        lines.append(
            f"{markup.text(entry)}: {markup.bold(use.submodel)}, {_run_link(use.run_id, use.run_name)}{needed}"
        )
    for draft_id, name in one.drafts:
        address = f'<a class="u-link" href="build?draft={markup.text(draft_id)}">{markup.text(name or draft_id)}</a>'
        lines.append(f"{markup.text('Draft')}: {address}")
    return _list("Used by", lines or [markup.faint("No run and no draft names this file.")])


def _lineage(one: KeptModel) -> str:
    try:
        found = frame.service().library.lineage(one.run_id, one.submodel)
    except UnifiedNNError as error:
        return markup.small(str(error))
    lines = [f"{markup.text('Run')}: {_run_link(one.run_id, one.run_name)}"]
    for entry, name, sha256, there in found.files:
        gone = "" if there else f" {markup.faint('no longer in the library')}"
        lines.append(f"{markup.text(ENTRIES[entry])}: {markup.bold(name)} {markup.mono(sha256[:SHA_LENGTH])}{gone}")
    return _list("Made of", lines)


def _run_link(run_id: str, name: str) -> str:
    return f'<a class="u-link" href="run?run={markup.text(run_id)}">{markup.text(name or run_id)}</a>'


def _list(heading: str, lines: Sequence[str]) -> str:
    return markup.section(heading) + f'<ul class="u-details">{"".join(f"<li>{line}</li>" for line in lines)}</ul>'


def _deletion(key: str, chosen: Sequence[ShelvedFile]) -> None:
    can = []
    for one in chosen:
        name, uses = markup.bold(one.file.filename), frame.service().library.file_uses(one.file.sha256)
        if runs := dict.fromkeys(use.run_name for use in uses if use.needed):
            words = f"Needed by runs that have not ended: {', '.join(runs)}."
            st.html(markup.notice("orange", "block", one.file.filename, words))
            continue
        can.append(one)
        used = [_counted(one.runs, "ended run", MOST_USES_COUNTED)] if one.runs else []
        used += [wording.count_text(len(one.drafts), "draft")] if one.drafts else []
        words = f"used by {', '.join(used)}." if used else "nothing uses it."
        if one.owners > 1:
            words += f" Shared by {one.owners} people; it is deleted for all of them."
        st.html(f"<p>{name}, {memory_text(one.file.size_bytes)}: {markup.text(words)}</p>")
    st.html(markup.small(f"{AGAIN} This cannot be undone."))
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Keep", key="library-delete-no"):
            _close()
            st.rerun()
        label = f"Delete {wording.count_text(len(can), 'file')}"
        if st.button(label, key="library-delete-yes", type="primary", icon=":material/delete:", disabled=not can):
            library = frame.service().library
            actions.attempt(lambda: [library.delete_file(one.file.sha256) for one in can])
            rows.clear(f"{key}-table")
            _close()
            st.rerun()


def _renaming(key: str, one: ShelvedFile) -> None:
    name = st.text_input("Name", one.file.filename, key=f"library-name-{one.file.sha256[:8]}", max_chars=160)
    st.html(markup.small("Only for you: others keep their own names, and drafts the name that it had."))
    with st.container(horizontal=True, horizontal_alignment="right"):
        if st.button("Cancel", key="library-rename-no"):
            _close()
            st.rerun()
        if st.button("Rename", key="library-rename-yes", type="primary", icon=":material/check:"):
            try:
                frame.service().library.rename_file(one.file.sha256, name)
            except UnifiedNNError as error:
                actions.show_error(error)
                return
            _close()
            st.rerun()


def _close() -> None:
    st.session_state.pop(DELETING, None)
    st.session_state.pop(RENAMING, None)
