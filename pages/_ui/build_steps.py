"""The steps of Build: which are done, which is next, and what it lacks. Each leads to its part of the page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pages._ui import drafts, launch, run_form
from unifiednn_core.base.errors import Finding
from unifiednn_core.preflight.report import CheckReport
from unifiednn_core.views import markup, wording

SUBMODELS = "part-submodels"
"""Id of the heading of the sub-models."""
OPEN_FORM = "Save or cancel the sub-model that is open."


class BuildStep(NamedTuple):
    """One step; `words` say what it has, or what it lacks."""

    name: str
    place: str | None
    done: bool
    words: str


def steps(
    draft: Mapping[str, Any], findings: Sequence[Finding], report: CheckReport | None, *, editing: bool
) -> tuple[BuildStep, ...]:
    """The steps of a draft, with what its spec lacks and the report of its check."""
    listed = drafts.submodels(draft)
    of_submodels = [one for one in findings if one.field.partition(".")[0] == "submodels"]
    of_run = [one for one in findings if one not in of_submodels]
    lacks = "Add the first network." if not listed else of_submodels[0].message if of_submodels else ""
    lacks = OPEN_FORM if editing else lacks
    ready = not lacks and not of_run
    checked = ready and report is not None and not any(one.severity == "error" for one in report.findings)
    policy = wording.title(str((draft.get("policy") or {}).get("name", "")))
    start = "" if not ready else "ready" if checked else "ready, checks first"
    return (
        BuildStep("Sub-models", SUBMODELS, not lacks, lacks or wording.count_text(len(listed), "sub-model")),
        BuildStep("Run", run_form.SECTION, not of_run, of_run[0].message if of_run else policy),
        BuildStep("Check", launch.SECTION, checked, launch.check_words(report)),
        BuildStep("Start training", None, False, start),
    )


def as_html(found: Sequence[BuildStep]) -> str:
    """The steps side by side; the first that is not done is the present one."""
    now = next((place for place, step in enumerate(found) if not step.done), None)
    items = "".join(_item(place, step, is_now=place == now) for place, step in enumerate(found))
    return f'<ol class="u-steps" aria-label="{markup.text("Steps")}">{items}</ol>'


def _item(place: int, step: BuildStep, *, is_now: bool) -> str:
    mark = (
        f'<span role="img" aria-label="{markup.text("done")}">{markup.icon("check")}</span>'
        if step.done
        else str(place + 1)
    )
    body = (
        f'<span class="u-step-mark">{mark}</span><span class="u-step-words"><b>{markup.text(step.name)}</b>'
        f'<small title="{markup.text(step.words)}">{markup.text(step.words)}</small></span>'
    )
    inner = f"<span>{body}</span>" if step.place is None else f'<a href="#{step.place}">{body}</a>'
    current = ' aria-current="step"' if is_now else ""
    return f'<li class="{"u-step-done" if step.done else ""}"{current}>{inner}</li>'
