"""Commands that train with plain PyTorch and compare a hybrid with it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from unifiednn_core.base.errors import IllegalTransition
from unifiednn_core.base.files import apply_user_umask, write_text
from unifiednn_core.cli import terminal
from unifiednn_core.cli.shared import INTERRUPTED, AsJson, SpecPath, bad_option, exit_after, finish, opened
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.run import BASELINES, Baseline, Mode, PolicySpec, RunSpec, load_run

HYBRID: Mode = "hybrid"
ARMS: tuple[Mode, ...] = (*BASELINES, HYBRID)
MODES = "concurrent: all processes at once; sequential: one after another."


def baseline(spec: SpecPath, mode: Annotated[Baseline, typer.Option(help=MODES)], as_json: AsJson = False) -> None:
    """Train the sub-models of a spec with plain PyTorch, one process each, and measure them."""
    with opened(as_json) as service:
        run_id = service.comparisons.submit_arm(load_run(spec), spec.resolve().parent, mode)
        service.start_supervisor()
        finish(service, run_id, as_json)


def compare(
    spec: SpecPath,
    repeats: Annotated[int, typer.Option(help="Train each arm this many times.", min=1, max=100)] = 1,
    policy: Annotated[str | None, typer.Option(help="Use this policy instead of the one in the spec.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Train baselines again even if equal ones exist.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report to this HTML file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a spec as a hybrid and with plain PyTorch, concurrently and sequentially, and report what merging saved.

    One arm trains at a time. With one repeat, a finished baseline of an equal spec on this machine is reused.
    """
    with opened(as_json) as service:
        asked = load_run(spec)
        if policy is not None:
            asked = asked.model_copy(update={"policy": PolicySpec(name=policy)})
        if html is not None and not html.resolve().parent.is_dir():
            raise bad_option("--html", f"{html.parent} is not a folder.", "Create it.")
        base = spec.resolve().parent
        hybrid, interrupted = _train_arms(service, asked, base, repeats, fresh=fresh, quiet=as_json)
        if hybrid is None:  # interrupted before the first hybrid
            raise typer.Exit(INTERRUPTED)
        if html is not None:
            write_text(html, service.comparisons.report(hybrid))
            apply_user_umask(html)
        if as_json:
            terminal.print_json(service.comparisons.comparison_document(hybrid))
        else:
            terminal.print_comparison(service.comparisons.comparison(hybrid))
            if html is not None:
                terminal.say(f"Report: {html}")
        exit_after(service.runs.observe(hybrid).state, interrupted)


def arm_order(repeat: int) -> tuple[Mode, ...]:
    """Order the arms of a repeat. Each goes first in turn, so that none always has the warmer machine."""
    first = repeat % len(ARMS)
    return (*ARMS[first:], *ARMS[:first])


def _train_arms(
    service: Service, asked: RunSpec, base: Path, repeats: int, *, fresh: bool, quiet: bool
) -> tuple[str | None, bool]:
    """Train all arms, one at a time; return the id of the last hybrid and whether Ctrl-C interrupted it."""
    ours: list[str] = []
    hybrid: str | None = None
    waiting: Iterable[str] = _submitted(service, asked, base, repeats, ours)
    if repeats == 1 and not fresh:
        with terminal.checking(quiet=quiet) as tell:
            hybrid = service.runs.submit(asked, base, on_progress=tell)
        before = {run.run_id for run in service.runs.runs()}
        waiting = [hybrid, *(service.comparisons.start_baseline(hybrid, mode) for mode in BASELINES)]
        ours += [run_id for run_id in waiting if run_id == hybrid or run_id not in before]
    service.start_supervisor()
    try:
        for place, run_id in enumerate(waiting, start=1):
            mode = service.runs.observe(run_id).mode
            hybrid = run_id if mode == HYBRID else hybrid
            if not quiet:
                count = repeats * len(ARMS)
                terminal.say(f"Arm {place} of {count}: {mode} ({run_id})", to=terminal.err)
            terminal.follow(service, run_id, quiet=quiet)
    except KeyboardInterrupt:
        terminal.say("Stopping; progress is kept.", to=terminal.err)
        _stop(service, ours)
        return hybrid, True
    return hybrid, False


def _submitted(service: Service, asked: RunSpec, base: Path, repeats: int, ours: list[str]) -> Iterator[str]:
    """Submit each arm after the end of the previous one: a hybrid's turnaround includes its time in the queue."""
    for repeat in range(repeats):
        for mode in arm_order(repeat):
            ours.append(service.comparisons.submit_arm(asked, base, mode))
            yield ours[-1]


def _stop(service: Service, run_ids: Sequence[str]) -> None:
    for run_id in reversed(run_ids):  # the last first, so that no queued run starts in between
        with suppress(IllegalTransition):
            service.runs.stop(run_id)
    for run_id in run_ids:
        terminal.follow(service, run_id, quiet=True)
