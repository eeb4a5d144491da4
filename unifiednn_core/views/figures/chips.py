"""Chips: what the charts of a page show, once for all of them; a click on one singles it out in the browser."""

from collections.abc import Sequence
from typing import TypedDict

from unifiednn_core.base.visible import visible
from unifiednn_core.spec.run import Mode
from unifiednn_core.views.figures.layout import FAINT, identity
from unifiednn_core.views.figures.palette import sign
from unifiednn_core.views.runs import RunView

BASELINE_DASHES: dict[Mode, str] = {"concurrent": "6px,3px", "sequential": "2px,3px"}


class Chip(TypedDict):
    """One chip. `letter` is empty for a baseline."""

    key: str
    """What it stands for: `of` in the `meta` of a trace."""
    letter: str
    name: str
    colour: str
    ink: str
    dash: str


def part_key(name: str) -> str:
    """Key of a sub-model."""
    return identity("sub-model", name)


def baseline_key(mode: Mode) -> str:
    """Key of a baseline."""
    return identity("baseline", mode)


def chips(view: RunView, baselines: Sequence[RunView] = ()) -> list[Chip]:
    """A chip for each sub-model in order of arrival, then one for each baseline."""
    made = []
    for part in view.submodels:
        mark = sign(part.number)
        key, name = part_key(part.name), visible(part.name)
        made.append(Chip(key=key, letter=mark.letter, name=name, colour=mark.colour, ink=mark.ink, dash=mark.dash))
    for arm in baselines:
        dash = BASELINE_DASHES.get(arm.mode, "dash")
        made.append(Chip(key=baseline_key(arm.mode), letter="", name=arm.mode, colour=FAINT, ink="", dash=dash))
    return made
