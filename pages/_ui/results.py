"""What a run leaves: all models in one file, the way to train it again."""

from pages._ui import actions
from unifiednn_core.base.texts import tr
from unifiednn_core.base.units import memory_text
from unifiednn_core.views.runs import RunView


def download_all(view: RunView) -> None:
    """Link to all trained models of a run in one zip; nothing before there is one."""
    sizes = [part.artifact_bytes or 0 for part in view.submodels if part.artifact]
    if not sizes:
        return
    label = tr("Download all, {size}", size=memory_text(sum(sizes)))
    tip = tr("All {count} trained models with their certificates, in one zip", count=len(sizes))
    actions.download_link(label, actions.download_address("models", view.run_id), tip=tip, primary=True)


def draw(view: RunView) -> None:
    """Draw a card for each trained model."""
