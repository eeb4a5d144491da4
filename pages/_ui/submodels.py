"""Sub-models of a run in rows: the table with its actions, the short rows of Now, and a table of all values."""

from collections.abc import Callable

import streamlit as st

from pages._ui import actions, frame
from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.views import certificate, markup, not_learning, wording
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import RunView, SubModelView
from unifiednn_core.views.techniques import line

ACTIONS_WIDTH_PX, SLOT_WIDTH_PX = 156, 34
SLOTS = (frozenset({Event.PAUSE, Event.RESUME}), frozenset({Event.SAVE}), frozenset({Event.STOP}))
"""Each button of a row has a place of its own, whether the others are there or not."""


def draw_table(view: RunView) -> None:
    """Draw one row for each sub-model, with the buttons that its state allows and its downloads."""
    with st.container(key="rows-submodels"):
        with st.container(horizontal=True, key="row-head"):
            st.html(_head(view))
            st.space(ACTIONS_WIDTH_PX)
        for submodel in view.submodels:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-submodel-{submodel.name}"):
                st.html(row(view, submodel))
                _actions(view, submodel)
            if submodel.not_learning is not None:
                st.html(markup.findings([not_learning.finding(submodel.name, submodel.not_learning)]))
            if submodel.cause and submodel.state in ENDED - {State.FAILED} and not submodel.in_doubt:
                words = wording.STATES[submodel.state]
                st.html(markup.quiet(words.icon, f"{submodel.name}: {submodel.cause}"))


def _actions(view: RunView, submodel: SubModelView) -> None:
    with st.container(horizontal=True, key=f"icons-submodel-{submodel.name}", width=ACTIONS_WIDTH_PX, wrap=False):
        if submodel.artifact:
            download_button(view.run_id, submodel.name, submodel.artifact, submodel.artifact_bytes)
            return
        for slot in SLOTS:
            if allowed := submodel.actions & slot:
                actions.state_buttons(view.run_id, view.name, allowed, submodel.name, look="icon")
            else:
                st.space(SLOT_WIDTH_PX)


def download_button(run_id: str, submodel: str, artifact: str, size_bytes: int | None) -> None:
    """Link that fetches the zip of a trained model, with its size."""
    size = memory_text(size_bytes)
    tip = f"Download the trained model {artifact}, {size}"
    label = f"Download {submodel}, {size}"
    address = actions.download_address("models", run_id, submodel)
    actions.download_link(label, address, tip=tip, shown=f"Download, {size}")


def row(view: RunView, submodel: SubModelView) -> str:
    """One row of the table."""
    rest = "".join(
        f'<span role="cell" data-label="{markup.text(head)}"{"" if head == "Epoch" else " class=u-num"}>'
        f"{cell(view, submodel)}</span>"
        for head, cell in CELLS.items()
    )
    name = markup.signed_name(submodel.number, submodel.name)
    state = f'<span class="u-line">{markup.standing_badge(view, submodel)}{_verified(submodel)}</span>'
    cells = f'<span role="cell">{name}{_techniques(submodel)}</span><span role="cell">{state}</span>{rest}'
    return f'<div class="u-row" role="row" id="{_row_id(submodel)}">{cells}</div>'


def mini(submodel: SubModelView, run: RunView | None = None) -> str:
    """One line of the Now page; with its run it says who is next and who waits."""
    figures = (
        f'<span class="u-num">{submodel.epochs_done:,} / {submodel.epochs:,} epochs{_deadline(submodel)}</span>'
        f'<span class="u-num u-optional">loss {wording.loss_text(submodel.train_loss)}</span>'
        f'<span class="u-num u-optional">test {wording.accuracy_text(submodel.test_accuracy)}</span>'
    )
    name = markup.signed_name(submodel.number, submodel.name)
    state = markup.state_badge(submodel.state) if run is None else markup.standing_badge(run, submodel)
    return f'<div class="u-mini">{name}<span>{state}</span>{_progress(submodel)}{figures}</div>'


def values(view: RunView) -> str:
    """Last value of every curve, as a table."""
    peak = "Own peak memory" if view.mode == "hybrid" else "Peak memory of its process"
    rows = [
        {"Sub-model": (s.number, s.name), "State": s.state, "Epochs": f"{s.epochs_done:,} / {s.epochs:,}"}
        | {"Steps": f"{s.steps_done:,} / {s.steps_total:,}", "Train loss": s.train_loss}
        | {"Train accuracy": s.train_accuracy, "Test loss": s.test_loss, "Test accuracy": s.test_accuracy}
        | {"Weights": s.parameters, peak: s.peak_memory_bytes, "Format": s.model_format}
        | ({"Techniques": line(s.techniques)} if any(one.techniques for one in view.submodels) else {})
        | {"SHA-256 of weights": s.state_sha256}
        for s in view.submodels
    ]
    looks: markup.Looks = {
        "Sub-model": markup.signed,
        "State": markup.state_badge,
        "Train loss": wording.loss_text,
        "Train accuracy": wording.accuracy_text,
        "Test loss": wording.loss_text,
        "Test accuracy": wording.accuracy_text,
        peak: memory_text,
        "SHA-256 of weights": lambda sha: markup.mono(f"{sha[:16]}…"),
    }
    right = {head for row in rows for head in [*row][2:10]}
    return markup.table("Last value of each figure", rows, looks, right)


def _head(view: RunView) -> str:
    """The table with its row of heads; it owns the rows, which Streamlit draws beside it."""
    heads = ("Sub-model", "State", *CELLS)
    cells = "".join(
        f'<span role="columnheader"{" class=u-num" if at > 2 else ""}>{markup.text(head)}</span>'
        for at, head in enumerate(heads)
    )
    rows = " ".join(map(_row_id, view.submodels))
    label = markup.text("Sub-models")
    head = f'<div class="u-row u-head" role="row">{cells}</div>'
    return f'<div role="table" aria-label="{label}" aria-owns="{rows}">{head}</div>'


def _verified(submodel: SubModelView) -> str:
    """A sign for the certificate of its file."""
    if (found := submodel.certificate) is None:
        return "" if submodel.certify_at_s is None else markup.faint("verifying")
    _, symbol, colour = certificate.LOOKS[certificate.standing(found)]
    words = markup.text(certificate.headline(found))
    sign = f'<span class="u-icon" style="color:var(--u-{colour})" title="{words}" aria-hidden="true">{symbol}</span>'
    return f'{sign}<span class="u-unseen">{words}</span>'


def _techniques(submodel: SubModelView) -> str:
    """In what ways it trains in less memory."""
    return f'<span class="u-under">{markup.text(line(submodel.techniques))}</span>' if submodel.techniques else ""


def _row_id(submodel: SubModelView) -> str:
    return f"submodel-{submodel.number}"


def _checkpoint(view: RunView, submodel: SubModelView) -> str:
    """Link to the newest checkpoint, with its age."""
    if (step := submodel.checkpoint_step) is None:
        return "-"
    label = f"Download checkpoint of {submodel.name}"
    size = memory_text(submodel.checkpoint_bytes)
    tip = f"Download the newest checkpoint, step {step:,}, {size}"
    address = actions.download_address("checkpoints", view.run_id, submodel.name)
    shown, age = f"step {step:,}", frame.ago(submodel.checkpoint_at_s, seconds=True)
    return (
        f'<a class="u-link" href="{markup.text(address)}" download title="{markup.text(tip)}">'
        f'<span class="u-unseen">{markup.text(label)}</span><span>{markup.text(shown)}</span></a>'
        f'<span class="u-under">{markup.text(age)}</span>'
    )


def _turnaround(submodel: SubModelView) -> str:
    """How long it took, or when it ends."""
    under = taken = ""
    if submodel.turnaround_s is not None:
        taken = duration_text(submodel.turnaround_s)
    elif (ends := submodel.ends_in_s) is not None:
        span, when = f"in {wording.range_text(ends)}", frame.estimate(None, ends)
        under = f'<span class="u-under" title="{markup.text(when)}">{markup.text(span)}</span>'
    return f"{under or taken or '-'}{_deadline(submodel)}"


def _deadline(submodel: SubModelView) -> str:
    text = wording.deadline_text(submodel)
    return f'<span class="u-under">{text}</span>' if text else ""


def _progress(submodel: SubModelView) -> str:
    return markup.bar(submodel.progress, f"Progress of {submodel.name}", sign(submodel.number).colour)


CELLS: dict[str, Callable[[RunView, SubModelView], str]] = {
    "Epoch": lambda _, s: f'<span class="u-nowrap">{s.epochs_done:,} / {s.epochs:,}</span>{_progress(s)}',
    "Loss": lambda _, s: wording.loss_text(s.train_loss),
    "Test accuracy": lambda _, s: wording.accuracy_text(s.test_accuracy),
    "Service": lambda _, s: duration_text(s.service_s),
    "Wait": lambda _, s: duration_text(s.wait_s),
    "Turnaround": lambda _, s: _turnaround(s),
    "Checkpoint": _checkpoint,
}
"""Columns of the table, after name and state."""
