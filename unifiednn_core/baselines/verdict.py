"""The hybrid against its baselines: arms from runs, ratios from arms, and why a verdict is withheld. Pure functions."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from unifiednn_core.lifecycle import ENDED, State
from unifiednn_core.views.comparison import BASELINES, Arm, ArmSubModel, Comparison, Mode, Spread, Verdict
from unifiednn_core.views.runs import RunView, SubModelView

# Repeats that differ by more than this share of their median are said to differ.
WIDE = 0.25
HYBRID: Mode = "hybrid"


def compare(
    runs: Sequence[RunView], of: RunView, steered: Callable[[RunView], bool], environment: dict[str, object]
) -> Comparison:
    """Compare `of`, a hybrid, with all baselines among `runs`, which have its fingerprint, oldest first.

    Its arm are all hybrids that train in the same way; `steered` tells whether somebody changed a run while it trained.
    Of arms with several repeats equally many are taken, the last ones, so that each ratio has its pair.
    """
    peers = [run for run in runs if run.mode == HYBRID and _way(run) == _way(of)]
    by_mode = {HYBRID: _repeats(peers, steered)}
    if of not in by_mode[HYBRID]:  # not clean: it stands alone, with its problem
        by_mode[HYBRID] = [of]
    for mode in BASELINES:
        found = [run for run in runs if run.mode == mode]
        if found:
            by_mode[mode] = _repeats(found, steered) or found[-1:]
    count = min((len(repeats) for repeats in by_mode.values() if len(repeats) > 1), default=1)
    if of in by_mode[HYBRID][:-count]:
        by_mode[HYBRID].remove(of)
        by_mode[HYBRID].append(of)
    arms = {mode: _arm(mode, repeats[-count:], steered) for mode, repeats in by_mode.items()}
    hybrid, baselines = arms[HYBRID], {mode: arms[mode] for mode in BASELINES if mode in arms}
    verdicts = {}
    for mode in BASELINES:
        repeats = [*peers, *(run for run in runs if run.mode == mode)]
        left_out = _left_out(repeats, hybrid, baselines.get(mode))
        verdicts[mode] = _verdict(mode, hybrid, baselines.get(mode), left_out, environment)
    return Comparison(
        run_id=of.run_id,
        name=of.name,
        fingerprint=of.fingerprint,
        hybrid=hybrid,
        baselines=baselines,
        verdicts=verdicts,
        environment=environment,
    )


def _way(run: RunView) -> tuple[object, ...]:
    """What steers a hybrid beside what it trains."""
    return run.policy_text, run.checkpoint_text, tuple((part.name, part.priority) for part in run.submodels)


def _repeats(runs: Sequence[RunView], steered: Callable[[RunView], bool]) -> list[RunView]:
    """Runs whose figures can be compared."""
    return [run for run in runs if _problem(run, steered) is None]


def _problem(run: RunView, steered: Callable[[RunView], bool]) -> str | None:
    """Why the figures of a run cannot be compared."""
    if run.state not in ENDED:
        return f"{run.mode} run {run.run_id} is {run.state.value}; its figures are there when it has ended"
    failed = [part for part in run.submodels if part.state is State.FAILED]
    if failed:
        causes = "; ".join(f"{part.name}: {part.cause or 'no cause was recorded'}" for part in failed)
        return f"{run.mode} run {run.run_id} failed ({causes})"
    if run.state is not State.COMPLETED or any(part.state is not State.COMPLETED for part in run.submodels):
        return f"{run.mode} run {run.run_id} was {run.state.value} before all sub-models were trained"
    if run.mode == HYBRID and run.attempt > 1:
        return f"hybrid run {run.run_id} was paused or interrupted; its times are not those of one piece"
    if any(part.paused_s > 0 for part in run.submodels):
        return f"a sub-model of {run.mode} run {run.run_id} was paused; its times are not those of one piece"
    if any(part.redone_steps or part.attempt > 1 for part in run.submodels):
        return f"a sub-model of {run.mode} run {run.run_id} was retried; its times are not those of one piece"
    if steered(run):
        return f"{run.mode} run {run.run_id} was changed while it trained; submit it again to compare it"
    return None


def _arm(mode: Mode, runs: Sequence[RunView], steered: Callable[[RunView], bool]) -> Arm:
    problem = next((found for run in runs if (found := _problem(run, steered)) is not None), None)
    parts = tuple(_arm_submodel(name, runs) for name in (part.name for part in runs[0].submodels))
    differing = [part.name for part in parts if len(set(part.state_sha256)) > 1]
    if problem is None and differing:
        problem = f"repeats disagree: the weights of {', '.join(differing)} differ between equal {mode} runs"
    sources = {run.memory_source for run in runs}
    return Arm(
        mode=mode,
        run_ids=tuple(run.run_id for run in runs),
        threads=runs[-1].threads,
        memory_bytes=_spread(run.peak_memory_bytes for run in runs) if len(sources) == 1 else None,
        memory_source=sources.pop() if len(sources) == 1 else None,
        makespan_s=_spread(makespan_s(run) for run in runs),
        mean_turnaround_s=_spread(_mean_turnaround_s(run) for run in runs),
        cpu_s=_spread(run.cpu_s for run in runs),
        gpu_s=_spread(run.gpu_s for run in runs),
        submodels=parts,
        problem=problem,
    )


def _arm_submodel(name: str, runs: Sequence[RunView]) -> ArmSubModel:
    parts = [(run, part) for run in runs for part in run.submodels if part.name == name]
    last = parts[-1][1]
    return ArmSubModel(
        name=name,
        number=last.number,
        wait_s=_spread(_wait_s(run, part) for run, part in parts),
        service_s=_spread(part.service_s for _, part in parts),
        turnaround_s=_spread(turnaround_s(run, part) for run, part in parts),
        cpu_s=_spread(part.cpu_s for _, part in parts),
        peak_memory_bytes=_spread(part.peak_memory_bytes for _, part in parts),
        test_accuracy=last.test_accuracy,
        train_loss=last.train_loss,
        state_sha256=tuple(part.state_sha256 for _, part in parts),
        cause=next((part.cause for _, part in parts if part.cause and part.state is not State.COMPLETED), None),
    )


def turnaround_s(run: RunView, part: SubModelView) -> float | None:
    """From the launch of the arm until this sub-model's model was handed back."""
    if run.launched_at_s is None or part.ended_at_s is None:
        return None
    return max(0.0, part.ended_at_s - run.launched_at_s)


def makespan_s(run: RunView) -> float | None:
    """From the launch of the arm until the last model was handed back."""
    ends = [turnaround_s(run, part) for part in run.submodels]
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None


def _mean_turnaround_s(run: RunView) -> float | None:
    ends = [turnaround_s(run, part) for part in run.submodels]
    known = [end for end in ends if end is not None]
    return sum(known) / len(known) if known and len(known) == len(ends) else None


def _wait_s(run: RunView, part: SubModelView) -> float | None:
    """What is left of its turnaround after its service."""
    turnaround = turnaround_s(run, part)
    return None if turnaround is None else max(0.0, turnaround - part.service_s)


def _verdict(
    mode: Mode, hybrid: Arm, baseline: Arm | None, notes: tuple[str, ...], environment: Mapping[str, object]
) -> Verdict:
    withheld = _withheld(mode, hybrid, baseline)
    same = None if baseline is None else _identical(hybrid, baseline)
    if withheld is None and same is False:
        withheld = "the trained weights differ, so the arms did not do the same work"
    if withheld is not None or baseline is None:
        return Verdict(
            mode=mode,
            memory_ratio=None,
            makespan_ratio=None,
            mean_turnaround_ratio=None,
            cpu_seconds_ratio=None,
            gpu_seconds_ratio=None,
            identical_weights=same,
            withheld_because=withheld,
            notes=notes,
        )
    ratios = {
        "memory": _ratio(hybrid.memory_bytes, baseline.memory_bytes),
        "makespan": _ratio(hybrid.makespan_s, baseline.makespan_s),
        "mean turnaround": _ratio(hybrid.mean_turnaround_s, baseline.mean_turnaround_s),
        "CPU seconds": _ratio(hybrid.cpu_s, baseline.cpu_s),
        "GPU seconds": _ratio(hybrid.gpu_s, baseline.gpu_s),
    }
    return Verdict(
        mode=mode,
        memory_ratio=ratios["memory"],
        makespan_ratio=ratios["makespan"],
        mean_turnaround_ratio=ratios["mean turnaround"],
        cpu_seconds_ratio=ratios["CPU seconds"],
        gpu_seconds_ratio=ratios["GPU seconds"],
        identical_weights=same,
        withheld_because=None,
        notes=(*notes, *_cautions(ratios, hybrid, baseline, environment)),
    )


def _withheld(mode: Mode, hybrid: Arm, baseline: Arm | None) -> str | None:
    if baseline is None:
        return f"there is no {mode} baseline of this run yet"
    if hybrid.problem or baseline.problem:
        return hybrid.problem or baseline.problem
    if hybrid.memory_source != baseline.memory_source:
        sources = f"{hybrid.memory_source or 'no source'} and {baseline.memory_source or 'no source'}"
        return f"memory was measured in different ways ({sources})"
    return None


def _identical(hybrid: Arm, baseline: Arm) -> bool | None:
    """Whether all weights of all repeats are the same bits; None where some were never handed back."""
    theirs = {part.name: set(part.state_sha256) for part in baseline.submodels}
    ours = {part.name: set(part.state_sha256) for part in hybrid.submodels}
    hashes = [ours[name] | theirs.get(name, {None}) for name in ours]
    return None if any(None in found for found in hashes) else all(len(found) == 1 for found in hashes)


def _cautions(
    ratios: Mapping[str, Spread | None], hybrid: Arm, baseline: Arm, environment: Mapping[str, object]
) -> Iterable[str]:
    for name, ratio in ratios.items():
        if ratio is not None and len(ratio.values) > 1 and ratio.low < 1 < ratio.high:
            yield f"{name}: some repeats are above 1 and some below, so there is no clear difference"
    for arm in (hybrid, baseline):
        for name, spread in (("memory", arm.memory_bytes), ("makespan", arm.makespan_s), ("CPU seconds", arm.cpu_s)):
            if spread is not None and spread.high - spread.low > WIDE * spread.median:
                wide = (spread.high - spread.low) / spread.median
                yield f"{name} of the {arm.mode} repeats differs by {100 * wide:.0f} % of its median"
    if baseline.mode == "concurrent":
        yield from _unfair(hybrid, environment)


def _unfair(hybrid: Arm, environment: Mapping[str, object]) -> Iterable[str]:
    """What makes a concurrent baseline look worse than it has to."""
    count, threads, cores = len(hybrid.submodels), hybrid.threads, environment.get("cores")
    if isinstance(cores, int) and threads is not None and count > 1 and threads > max(1, cores // count):
        even = max(1, cores // count)
        yield f"{count} processes of {threads} threads share {cores} cores: an even fight has {even} a process"
    if hybrid.memory_source == "process RSS":
        yield "memory is the resident size: libraries that processes share count once for each of them"


def _left_out(repeats: Iterable[RunView], hybrid: Arm, baseline: Arm | None) -> tuple[str, ...]:
    """Ended runs of the same spec that count nowhere."""
    counted = {*hybrid.run_ids, *(baseline.run_ids if baseline is not None else ())}
    return tuple(
        f"{run.mode} run {run.run_id} ({run.state.value}) is left out"
        for run in repeats
        if run.run_id not in counted and run.state in ENDED
    )


def _ratio(ours: Spread | None, theirs: Spread | None) -> Spread | None:
    """Repeat by repeat; a single value stands against all repeats of the other."""
    if ours is None or theirs is None or min(theirs.values) <= 0:
        return None
    count = max(len(ours.values), len(theirs.values))
    a, b = (spread.values * count if len(spread.values) == 1 else spread.values for spread in (ours, theirs))
    return Spread(tuple(x / y for x, y in zip(a, b, strict=True)))


def _spread(values: Iterable[float | int | None]) -> Spread | None:
    known = tuple(values)
    numbers = tuple(float(value) for value in known if value is not None)
    return Spread(numbers) if numbers and len(numbers) == len(known) else None
