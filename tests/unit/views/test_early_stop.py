import pytest

from unifiednn_core.store.schema import SubModelRow
from unifiednn_core.views.run_rows import early_stop

ASKED = {"early_stopping": {"metric": "test_loss", "patience": 5}}
SAID = "Stopped early at epoch 7 of 20: the test loss did not improve for 5 epochs."


@pytest.mark.parametrize(
    ("state", "epochs_done", "asked", "said"),
    [
        ("completed", 7, ASKED, SAID),
        ("completed", 20, ASKED, None),
        ("stopped", 7, ASKED, None),
        ("running", 7, ASKED, None),
        ("completed", 7, {}, None),
        ("completed", 7, {"early_stopping": None}, None),
    ],
)
def test_who_was_complete_before_the_last_epoch_is_told_so(
    state: str, epochs_done: int, asked: dict[str, object], said: str | None
) -> None:
    row = SubModelRow(name="a", state=state, epochs=20, epochs_done=epochs_done)
    assert early_stop(row, asked) == said
