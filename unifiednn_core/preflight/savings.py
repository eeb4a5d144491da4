"""What techniques save: a step of a sub-model measured again without them, and a warning where that is nothing."""

from collections.abc import Callable
from dataclasses import replace

from unifiednn_core.base.errors import Finding, Fix
from unifiednn_core.base.units import memory_text, percent_text
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.report import WithoutTechniques
from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.spec.techniques import Technique, VirtualNodes, name_of
from unifiednn_core.techniques.build import built

LEAST_SHARE = 0.02
"""A technique that saves less of the temporary memory of a step gets a warning."""


def without(trial: Trial, tried: Tried, measured: Callable[[Trial, Tried], MemoryNeed]) -> WithoutTechniques:
    """Measure a step without all techniques, and without each of several."""
    asked = trial.spec.hyperparameters.techniques
    plain = measured(*left_out(trial, tried))
    if len(asked) == 1:
        return WithoutTechniques(memory=plain, without_one={_name(asked[0]): plain.transient_bytes})
    each = {_name(one): measured(*left_out(trial, tried, one)).transient_bytes for one in asked}
    return WithoutTechniques(memory=plain, without_one=each)


def left_out(trial: Trial, tried: Tried, technique: Technique | None = None) -> tuple[Trial, Tried]:
    """The same sub-model without one technique, or without any."""
    hyper = trial.spec.hyperparameters
    kept = [one for one in hyper.techniques if technique is not None and one != technique]
    spec = trial.spec.model_copy(update={"hyperparameters": hyper.model_copy(update={"techniques": kept})})
    return replace(trial, spec=spec), replace(tried, techniques=built(kept))


def useless(trial: Trial, memory: MemoryNeed, found: WithoutTechniques | None) -> list[Finding]:
    """A warning for each technique that should save memory of a step and does not."""
    if found is None:
        return []
    asked = [one for one in trial.spec.hyperparameters.techniques if one.saves == "step" and not _is_open(one)]
    pairs = [(one, memory.transient_bytes, found.without_one[_name(one)]) for one in asked]
    return [
        trial.warning(
            "Technique saves nothing",
            "hyperparameters.techniques",
            _message(trial, one, with_bytes, without_bytes),
            one.remedy,
            Fix(label="Remove it", value=_name(one), verb="remove"),
        )
        for one, with_bytes, without_bytes in pairs
        if with_bytes > (1 - LEAST_SHARE) * without_bytes
    ]


def _message(trial: Trial, technique: Technique, with_bytes: int, without_bytes: int) -> str:
    of_what = f"the temporary memory of a step of {trial.spec.name}"
    sizes = f"{memory_text(with_bytes)} instead of {memory_text(without_bytes)}"
    if with_bytes > without_bytes:
        return f"{technique.title} makes {of_what} larger ({sizes})."
    saved = percent_text(1 - with_bytes / without_bytes) if without_bytes else percent_text(0.0)
    return f"{technique.title} saves {saved} of {of_what} ({sizes})."


def _is_open(technique: Technique) -> bool:
    """Whether it saves as much as is left to it."""
    return isinstance(technique, VirtualNodes) and technique.is_open


def _name(technique: Technique) -> str:
    return name_of(type(technique))
