"""When each step of a sub-model was done, from its turns on the device."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.views.figures.arrays import Floats
from unifiednn_core.views.runs import SHOWN_TURNS, RunView, Series, Slice, SubModelView

_EDGE_STEPS = 1e-6


class Timeline(NamedTuple):
    """Moments of one sub-model: `steps` done at `seconds` since the launch, both rising."""

    steps: Floats
    seconds: Floats
    steps_per_epoch: float

    def at(self, epochs: Sequence[float] | Floats) -> Floats:
        """Seconds since the launch at which so many epochs were trained; NaN where that is not known."""
        wanted = np.asarray(epochs, dtype=float) * self.steps_per_epoch
        if not len(self.steps):
            return np.full(len(wanted), np.nan)
        known = (wanted >= self.steps[0]) & (wanted <= self.steps[-1] + 0.5)
        return np.where(known, np.interp(wanted, self.steps, self.seconds), np.nan)


def timelines(view: RunView) -> Mapping[str, Timeline]:
    """The timeline of each sub-model, by name.

    It begins with the first known turn that made a step; the start of a process makes none.
    """
    own: dict[str, list[Slice]] = {}
    for turn in view.schedule:
        if turn.steps > 0:
            own.setdefault(turn.submodel, []).append(turn)
    whole = view.state in ENDED or len(view.schedule) >= SHOWN_TURNS
    return {
        part.name: _timeline(part, own.get(part.name, ()), view.launch_offset_s, whole=whole) for part in view.submodels
    }


def over_time(view: RunView, submodel: SubModelView, series: Series) -> Series:
    """The known part of a curve over seconds since the launch."""
    at_s = timelines(view)[submodel.name].at(series.x)
    known = ~np.isnan(at_s)
    return Series(tuple(at_s[known].tolist()), tuple(np.asarray(series.y)[known].tolist()))


def steps_per_epoch(part: SubModelView) -> float:
    """Steps of one epoch; 0 if nobody knows."""
    epochs = part.epochs_done if part.state is State.COMPLETED else part.epochs  # some stop early
    return part.steps_total / epochs if epochs else 0.0


def span_s(view: RunView, others: Sequence[RunView] = ()) -> tuple[float, float]:
    """From the launch to the last that is known of these runs: the range that their charts over time share."""
    ends_s = [1.0]
    for one in (view, *others):
        known = [*one.memory.x[-1:], *one.breakdown.at_s[-1:], max((turn.end_s for turn in one.schedule), default=0.0)]
        ends_s += [end_s + one.launch_offset_s for end_s in known]
    return 0.0, max(ends_s)


def _timeline(part: SubModelView, turns: Sequence[Slice], offset_s: float, *, whole: bool) -> Timeline:
    if not turns or not part.epochs:
        return Timeline(np.empty(0), np.empty(0), 0.0)
    after = np.cumsum([turn.steps for turn in turns], dtype=float)
    if whole:
        after += max(0.0, part.steps_done - after[-1])
    before = np.concatenate([[after[0] - turns[0].steps], after[:-1]]) + _EDGE_STEPS
    steps = np.stack([before, after], axis=1).ravel()
    seconds = np.array([moment for turn in turns for moment in (turn.start_s, turn.end_s)]) + offset_s
    return Timeline(steps, seconds, steps_per_epoch(part))
