"""When a point of a curve was reached: epochs trained as seconds since the launch, by the turns on the device."""

import numpy as np

from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.views.runs import RunView, Series, SubModelView

SHOWN_TURNS = 2000
"""From so many turns on a view may hold the latest only."""
_EDGE_STEPS = 1e-6


def launch_offset_s(view: RunView) -> float:
    """Seconds from the launch of the first process to the moment that all other seconds of the run count from."""
    if view.launched_at_s is None or view.started_at_s is None:
        return 0.0
    return max(0.0, view.started_at_s - view.launched_at_s)


def over_time(view: RunView, submodel: SubModelView, series: Series) -> Series:
    """The same values over seconds since the launch; what came before the first turn that is known is left out."""
    turns = [turn for turn in view.schedule if turn.submodel == submodel.name and turn.steps > 0]
    if not turns or not series.x or not submodel.epochs:
        return Series()
    after = np.cumsum([turn.steps for turn in turns], dtype=float)
    if view.state in ENDED or len(view.schedule) >= SHOWN_TURNS:
        after += max(0.0, submodel.steps_done - after[-1])
    before = np.concatenate([[after[0] - turns[0].steps], after[:-1]]) + _EDGE_STEPS
    steps = np.stack([before, after], axis=1).ravel()
    seconds = np.array([moment for turn in turns for moment in (turn.start_s, turn.end_s)])
    epochs = submodel.epochs_done if submodel.state is State.COMPLETED else submodel.epochs  # some stop early
    wanted = np.asarray(series.x) * (submodel.steps_total / epochs)
    known = (wanted >= steps[0]) & (wanted <= steps[-1] + 0.5)
    at_s = np.interp(wanted[known], steps, seconds) + launch_offset_s(view)
    return Series(tuple(at_s.tolist()), tuple(np.asarray(series.y)[known].tolist()))
