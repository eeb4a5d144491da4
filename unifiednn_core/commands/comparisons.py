"""Commands that compare: the same training by plain PyTorch, and the hybrid against it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core.commands import terminal
from unifiednn_core.commands.shared import DONE, FAILED, INTERRUPTED, AsJson, SpecPath, finish, opened
from unifiednn_core.durable import write_text
from unifiednn_core.errors import BadInput, IllegalTransition
from unifiednn_core.lifecycle import State
from unifiednn_core.service import Service
from unifiednn_core.spec import PolicySpec, RunSpec, load_run
from unifiednn_core.views.comparison import BASELINES, Mode

HYBRID: Mode = "hybrid"


def baseline(
    spec: SpecPath,
    mode: Annotated[Mode, typer.Option(help="concurrent: all processes at once; sequential: one after another.")],
    as_json: AsJson = False,
) -> None:
    """Train the sub-models of a spec by plain PyTorch, one process each, and measure that."""
    with opened(as_json) as service:
        if mode not in BASELINES:
            remedy = "Use train for the hybrid."
            raise BadInput.of("Option", field="--mode", message=f"'{mode}' is no baseline.", remedy=remedy)
        run_id = service.submit_arm(load_run(spec), spec.resolve().parent, mode)
        service.start_supervisor()
        finish(service, run_id, as_json)


def compare(
    spec: SpecPath,
    repeats: Annotated[int, typer.Option(help="Train each arm so often.", min=1, max=100)] = 1,
    policy: Annotated[str | None, typer.Option(help="Take this policy instead of the one in the spec.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train equal baselines again that there are.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report, one page that needs no network.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a spec as a hybrid and by plain PyTorch, at once and one after another, and say what merging saved.

    One arm trains at a time. A finished baseline of an equal spec on this machine is taken as it is, unless there are
    to be several repeats.
    """
    with opened(as_json) as service:
        asked = load_run(spec)
        if policy is not None:
            asked = asked.model_copy(update={"policy": PolicySpec(name=policy)})
        if html is not None and not html.resolve().parent.is_dir():
            raise BadInput.of("Option", field="--html", message=f"{html.parent} is no folder.", remedy="Make it first.")
        hybrid, interrupted = _train_arms(service, asked, spec.resolve().parent, repeats, fresh, quiet=as_json)
        if html is not None:
            write_text(html, service.report(hybrid))
        if as_json:
            terminal.print_json(service.comparison_document(hybrid))
        else:
            terminal.print_comparison(service.comparison(hybrid))
            if html is not None:
                terminal.out.print(f"Report: {html}", markup=False, highlight=False, soft_wrap=True)
        failed = service.observe(hybrid).state in (State.FAILED, State.INTERRUPTED)
        raise typer.Exit(INTERRUPTED if interrupted else FAILED if failed else DONE)


COMMANDS: tuple[Callable[..., None], ...] = (baseline, compare)


def arm_order(repeat: int) -> tuple[Mode, ...]:
    """Arms in the order of the given repeat: each goes first in turn, so that none always has the warmer machine."""
    arms: tuple[Mode, ...] = (*BASELINES, HYBRID)
    first = repeat % len(arms)
    return arms[first:] + arms[:first]


def _train_arms(
    service: Service, asked: RunSpec, base: Path, repeats: int, fresh: bool, *, quiet: bool
) -> tuple[str, bool]:
    """Train all arms, one at a time; returns the id of the last hybrid, and whether a person has ended it early."""
    if repeats == 1 and not fresh:
        hybrid = service.submit(asked, base)
        before = {run.run_id for run in service.runs()}
        waiting = [hybrid, *(service.start_baseline(hybrid, mode) for mode in BASELINES)]
        ours = [run_id for run_id in waiting if run_id == hybrid or run_id not in before]
    else:
        queued = [
            (mode, service.submit_arm(asked, base, mode)) for repeat in range(repeats) for mode in arm_order(repeat)
        ]
        waiting = ours = [run_id for _, run_id in queued]
        hybrid = next(run_id for mode, run_id in reversed(queued) if mode == HYBRID)
    service.start_supervisor()
    try:
        for place, run_id in enumerate(waiting, start=1):
            if not quiet:
                arm = service.observe(run_id).mode
                terminal.err.print(f"Arm {place} of {len(waiting)}: {arm} ({run_id})", highlight=False)
            terminal.follow(service, run_id, quiet=quiet)
    except KeyboardInterrupt:
        terminal.err.print("Stopping; what was learnt is kept.")
        _stop(service, ours)
        return hybrid, True
    return hybrid, False


def _stop(service: Service, run_ids: Sequence[str]) -> None:
    for run_id in reversed(run_ids):  # the last ones first, so that none is started in between
        with suppress(IllegalTransition):
            service.stop(run_id)
    for run_id in run_ids:
        terminal.follow(service, run_id, quiet=True)
