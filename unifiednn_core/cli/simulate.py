"""`unifiednn simulate`: what each policy would do to a spec. Nothing is trained."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Column

from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.units import memory_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import AsJson, opened
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.run import load_run
from unifiednn_core.views.estimates import Basis
from unifiednn_core.views.figures.forecast import gantt_text, seconds_text
from unifiednn_core.views.forecast import PolicyForecast, best

BASES: dict[Basis, str] = {
    "measured": "Seconds are as measured in earlier trainings here.",
    "timed": "Seconds are as the check timed a few steps of each.",
    "relative": "Not measured: times are percent of all work, by weights and batch size.",
}


def simulate_policies(
    spec: Annotated[Path, typer.Argument(help="Run spec (JSON).")],
    policy: Annotated[list[str] | None, typer.Option(help="A policy, repeatable; by default all.")] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate what each policy would do to the sub-models of a spec, with the seconds that are known here."""
    names = policy or []
    with opened(as_json) as service:
        asked, base = load_run(spec), spec.resolve().parent
        for name in names:
            policy_named(name, {})
        with terminal.checking(quiet=as_json) as tell:
            report = service.runs.check(asked, base, on_progress=tell)
        if report.has_errors:
            raise BadInput([finding for finding in report.findings if finding.severity == "error"])
        whole = service.runs.forecast(asked, report)
    made = [one for one in whole if not names or one.policy in names]
    if as_json:
        terminal.print_json({"basis": made[0].basis, "policies": {one.policy: one.document for one in made}})
        return
    told, least = seconds_text(made[0]), best(whole)

    def marked(one: PolicyForecast, figure: str, words: str) -> str:
        return f"{words}*" if one.policy in least[figure] else words

    parts = list(made[0].finish_s)
    heads: tuple[Column | str, ...] = (Column("policy", no_wrap=True), *parts, "mean", "all", "fair", "peak")
    rows = [
        (
            one.policy,
            *(told(one.finish_s[part]) for part in parts),
            marked(one, "mean_turnaround_s", told(one.mean_turnaround_s)),
            marked(one, "makespan_s", told(one.makespan_s)),
            marked(one, "fairness", f"{one.fairness:.2f}"),
            marked(one, "peak_bytes", memory_text(one.peak_bytes)),
        )
        for one in made
    ]
    terminal.print_table(heads, rows)
    terminal.say(f"To the finish of each, on average, and of all; * is best. {BASES[made[0].basis]}")
    terminal.say("Fair is Jain's index of the speed that each gets: 1 if all are slowed down alike.")
    for one in made if names else made[:1]:
        terminal.say(f"{one.policy_text} (# holds the device, + steps beside, . waits):")
        for line in gantt_text(one):
            terminal.say(line)
