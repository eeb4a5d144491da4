"""Sub-models of a run in rows: the table with its actions, the short rows of Now, and a table of all values."""

from collections.abc import Callable

import streamlit as st

from pages._ui import actions, banners, frame
from unifiednn_core.base.units import duration_text, memory_text
from unifiednn_core.views import markup, wording
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import RunView, SubModelView

ACTIONS_WIDTH_PX = 132


def draw_table(view: RunView) -> None:
    """Draw one row for each sub-model, with the buttons that its state allows and its downloads."""
    with st.container(key="rows-submodels"):
        with st.container(horizontal=True, key="row-head"):
            st.html(_head())
            st.space(ACTIONS_WIDTH_PX)
        for submodel in view.submodels:
            with st.container(horizontal=True, vertical_alignment="center", key=f"row-submodel-{submodel.name}"):
                st.html(row(submodel))
                _actions(view, submodel)
            banners.failure_panel(view.run_id, submodel)


def _actions(view: RunView, submodel: SubModelView) -> None:
    if not (submodel.artifact or submodel.checkpoint_step is not None or submodel.actions & set(actions.BUTTONS)):
        st.space(ACTIONS_WIDTH_PX)  # so that the columns of all rows align
        return
    with st.container(horizontal=True, key=f"icons-submodel-{submodel.name}", width=ACTIONS_WIDTH_PX, wrap=False):
        actions.state_buttons(view.run_id, view.name, submodel.actions, submodel.name, look="icon")
        if submodel.artifact:
            download_button(view.run_id, submodel.name, submodel.artifact, submodel.artifact_bytes)
        if (step := submodel.checkpoint_step) is not None:
            label = f"Download checkpoint of {submodel.name}"
            tip = f"Download the newest checkpoint, step {step:,}, {memory_text(submodel.checkpoint_bytes)}"
            address = actions.download_address("checkpoints", view.run_id, submodel.name)
            actions.download_link(label, address, icon="bookmark", tip=tip, bare=True)


def download_button(run_id: str, submodel: str, artifact: str, size_bytes: int | None) -> None:
    """Link that fetches the zip of a trained model."""
    tip = f"Download the trained model {artifact}, {memory_text(size_bytes)}"
    address = actions.download_address("models", run_id, submodel)
    actions.download_link(f"Download {submodel}", address, tip=tip, bare=True)


def row(submodel: SubModelView) -> str:
    """One row of the table."""
    rest = "".join(
        f'<span data-label="{head}"{"" if head == "Epoch" else " class=u-num"}>{cell(submodel)}</span>'
        for head, cell in CELLS.items()
    )
    name, state = markup.signed_name(submodel.number, submodel.name), markup.state_badge(submodel.state)
    return f'<div class="u-row"><span>{name}</span><span>{state}</span>{rest}</div>'


def mini(submodel: SubModelView) -> str:
    """One line of the Now page."""
    figures = (
        f'<span class="u-num">{submodel.epochs_done:,} / {submodel.epochs:,} epochs{_deadline(submodel)}</span>'
        f'<span class="u-num u-optional">loss {wording.loss_text(submodel.train_loss)}</span>'
        f'<span class="u-num u-optional">test {wording.accuracy_text(submodel.test_accuracy)}</span>'
    )
    name, state = markup.signed_name(submodel.number, submodel.name), markup.state_badge(submodel.state)
    return f'<div class="u-mini">{name}<span>{state}</span>{_progress(submodel)}{figures}</div>'


def values(view: RunView) -> str:
    """Last value of every curve, as a table."""
    table = markup.frame(
        {"Sub-model": (s.number, s.name), "State": s.state, "Epochs": f"{s.epochs_done:,} / {s.epochs:,}"}
        | {"Steps": f"{s.steps_done:,} / {s.steps_total:,}", "Train loss": s.train_loss}
        | {"Train accuracy": s.train_accuracy, "Test loss": s.test_loss, "Test accuracy": s.test_accuracy}
        | {"Weights": s.parameters, "Format": s.model_format, "SHA-256 of weights": s.state_sha256}
        for s in view.submodels
    )
    looks: markup.Looks = {
        "Sub-model": markup.signed,
        "State": markup.state_badge,
        "Train loss": wording.loss_text,
        "Train accuracy": wording.accuracy_text,
        "Test loss": wording.loss_text,
        "Test accuracy": wording.accuracy_text,
        "SHA-256 of weights": lambda sha: markup.mono(f"{sha[:16]}…"),
    }
    return markup.table("Last value of each figure", table, looks, right={*table.columns[2:9]})


def _head() -> str:
    heads = ("Sub-model", "State", *CELLS)
    cells = "".join(f"<span{' class=u-num' if at > 2 else ''}>{head}</span>" for at, head in enumerate(heads))
    return f'<div class="u-row u-head" aria-hidden="true">{cells}</div>'


def _checkpoint(submodel: SubModelView) -> str:
    age = markup.text(frame.ago(submodel.checkpoint_at_s, seconds=True))
    step = submodel.checkpoint_step
    return "-" if step is None else f'step {step:,}<span class="u-under">{age}</span>'


def _deadline(submodel: SubModelView) -> str:
    text = wording.deadline_text(submodel)
    return f'<span class="u-under">{text}</span>' if text else ""


def _progress(submodel: SubModelView) -> str:
    done = submodel.steps_done / submodel.steps_total if submodel.steps_total else 0.0
    return markup.bar(done, f"Progress of {submodel.name}", sign(submodel.number).colour)


CELLS: dict[str, Callable[[SubModelView], str]] = {
    "Epoch": lambda s: f'<span class="u-nowrap">{s.epochs_done:,} / {s.epochs:,}</span>{_progress(s)}',
    "Loss": lambda s: wording.loss_text(s.train_loss),
    "Test accuracy": lambda s: wording.accuracy_text(s.test_accuracy),
    "Service": lambda s: duration_text(s.service_s),
    "Wait": lambda s: duration_text(s.wait_s),
    "Turnaround": lambda s: ("-" if s.turnaround_s is None else duration_text(s.turnaround_s)) + _deadline(s),
    "Peak memory": lambda s: "-" if s.peak_memory_bytes is None else memory_text(s.peak_memory_bytes),
    "Checkpoint": _checkpoint,
}
"""Columns of the table, after name and state."""
