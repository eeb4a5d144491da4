"""What a run leaves: all models in one file, a card for each with its certificate, the way to train it again."""

from collections.abc import Mapping
from functools import partial

import streamlit as st

from pages._ui import actions, draft_list, frame, signed_in, submodels
from unifiednn_core.base.errors import UnifiedNNError
from unifiednn_core.base.units import memory_text
from unifiednn_core.views import certificate, markup, wording
from unifiednn_core.views.runs import RunView, SubModelView

NOTHING_YET = "A trained model appears here when its sub-model has ended, with the certificate of its file."


def download_all(view: RunView) -> None:
    """Link to all trained models of a run in one zip; nothing before there is one."""
    sizes = [part.artifact_bytes or 0 for part in view.submodels if part.artifact]
    if not sizes:
        return
    label = f"Download all, {memory_text(sum(sizes))}"
    tip = f"All {len(sizes)} trained models with their certificates, in one zip"
    actions.download_link(label, actions.download_address("models", view.run_id), tip=tip, primary=True)


def train_again(run_id: str, submodel: str | None = None) -> None:
    """Draw a button that opens a new draft of a run, or of one of its sub-models."""
    if not signed_in.may("clone_run"):
        return
    key, tip = f"again-{run_id}-{submodel or ''}", "Opens a new draft with the same networks, data and settings."
    if st.button("Train again", key=key, icon=":material/replay:", help=tip):
        try:
            draft_id = frame.service().library.clone_run(run_id, submodel)
        except UnifiedNNError as error:
            actions.attempt(partial(_refuse, error))
            st.rerun()
        draft_list.go(draft_id)


def _refuse(error: UnifiedNNError) -> None:
    raise error


def models(view: RunView) -> None:
    """Draw a card for each trained model."""
    trained = [part for part in view.submodels if part.artifact]
    if not trained:
        st.html(markup.small(NOTHING_YET))
        return
    for place in range(0, len(trained), 2):
        for column, part in zip(st.columns(2, gap="small"), trained[place : place + 2], strict=False):
            with column, st.container(border=True, key=f"model-{part.name}"):
                _card(view, part)


def _card(view: RunView, part: SubModelView) -> None:
    name = markup.signed_name(part.number, part.name)
    st.html(f'<div class="u-line u-model">{name}{markup.standing_badge(view, part)}</div>')
    tested = f"test accuracy {wording.accuracy_text(part.test_accuracy)}"
    lines = [markup.faint(f"{part.artifact} · {memory_text(part.artifact_bytes)} · {tested}")]
    if sha := part.state_sha256:
        lines.append(f'{markup.faint("SHA-256 of weights")} <span class="u-sha">{markup.mono(sha)}</span>')
    st.html(f'<div class="u-small">{"<br>".join(lines)}</div>')
    with st.container(horizontal=True, key=f"model-actions-{part.name}"):
        submodels.download_button(view.run_id, part.name, part.artifact or "", part.artifact_bytes)
        train_again(view.run_id, part.name)
    _certificate(part)


def _certificate(part: SubModelView) -> None:
    """What its file was compared with, and the lines that load it, to be copied."""
    found = part.certificate
    if found is None:
        if part.certify_at_s is None:
            st.html(markup.quiet("rule", "No certificate: the file could not be compared. The events say why."))
        else:
            st.html(markup.quiet("hourglass_top", "Verifying: the file is compared with the hybrid."))
        return
    verdict, symbol, colour = certificate.LOOKS[certificate.standing(found)]
    badge = markup.badge(verdict, symbol, colour, certificate.headline(found))
    rows = "".join(
        f"<dt>{markup.text(certificate.TITLES[one.what])}</dt>"
        f'<dd title="{markup.text(one.text)}">{markup.text(certificate.OUTCOMES[one.outcome])}</dd>'
        for one in found.compared
    )
    if found.techniques:
        names = ", ".join(map(markup.text, found.techniques))
        rows += f"<dt>{markup.text('Techniques')}</dt><dd>{names}</dd>"
    findings = "".join(f'<p class="u-error u-small">{markup.text(text)}</p>' for text in found.findings)
    made = f"Made {frame.ago(found.made_at_s)} with {_versions(found.versions)}"
    st.html(
        f'<div class="u-certificate">{badge}<p class="u-small">{markup.text(certificate.headline(found))}</p>'
        f'<dl class="u-pairs u-small">{rows}</dl>{findings}{markup.small(made)}</div>'
    )
    if found.snippet:
        with st.expander("Load it in Python", icon=":material/code:"):
            st.code(found.snippet, language="python")


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
