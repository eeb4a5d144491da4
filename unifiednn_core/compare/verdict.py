"""Compares a hybrid with its baselines: arms from runs, ratios from arms, reasons to withhold. Pure functions."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from unifiednn_core.base.units import percent_text
from unifiednn_core.compare.oracle import PT2
from unifiednn_core.preflight.report import OracleReport
from unifiednn_core.spec.devices import host_of, own_name
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import BASELINES, Mode
from unifiednn_core.spec.split import split_in
from unifiednn_core.views.comparison import Arm, ArmSubModel, Comparison, Spread, Verdict
from unifiednn_core.views.report.cards import QUANTITIES
from unifiednn_core.views.runs import RunView, SubModelView
from unifiednn_core.views.techniques import lossy_of
from unifiednn_core.views.times import mean_turnaround_s

WIDE = 0.25  # spread of repeats, as a share of their median, above which a note names it
QUEUED_SHARE = 0.1
"""Longest time in the queue, as a share of the mean turnaround, with which a hybrid's turnaround is compared.

A baseline counts from its launch, a hybrid from its submission."""
OTHER_WORK = 0.1
"""Difference of the arms in the share of processors that other work used, above which a note names it."""
HYBRID: Mode = "hybrid"
_ROUNDED = "weights are not compared: under the profile fast, hybrid and baseline may round differently"
_SPLIT = "the split"
_OF_EACH = ("service_s", "turnaround_s", "cpu_s")


def compare(
    runs: Sequence[RunView], of: RunView, steered: Callable[[RunView], bool], environment: dict[str, object]
) -> Comparison:
    """Compare the hybrid `of` with all baselines among `runs`, which share its fingerprint, oldest first.

    Its arm holds all hybrids with the same policy, checkpoints, start, lanes and priorities. `steered` says whether a
    person changed a run while it trained. All arms with repeats keep the same number of them, the newest, so that
    ratios are of pairs.
    """
    peers = [run for run in runs if run.mode == HYBRID and _way(run) == _way(of)]
    by_mode = {HYBRID: _comparable(peers, steered)}
    if of not in by_mode[HYBRID]:
        by_mode[HYBRID] = [of]
    for mode in BASELINES:
        found = [run for run in runs if run.mode == mode]
        if found:
            by_mode[mode] = _comparable(found, steered) or found[-1:]
    count = min((len(repeats) for repeats in by_mode.values() if len(repeats) > 1), default=1)
    if of in by_mode[HYBRID][:-count]:
        by_mode[HYBRID].remove(of)
        by_mode[HYBRID].append(of)
    arms = {mode: _arm(mode, repeats[-count:], steered) for mode, repeats in by_mode.items()}
    hybrid = arms[HYBRID]
    baselines: dict[Mode, Arm] = {mode: arms[mode] for mode in BASELINES if mode in arms}
    verdicts: dict[Mode, Verdict] = {}
    for mode in BASELINES:
        repeats = [*peers, *(run for run in runs if run.mode == mode)]
        left_out = _left_out(repeats, hybrid, baselines.get(mode))
        apart = _apart(mode, by_mode[HYBRID][-count:], by_mode.get(mode, [])[-count:])
        verdicts[mode] = _verdict(mode, hybrid, baselines.get(mode), left_out, environment, of, apart)
    names = {"run_id": of.run_id, "name": of.name, "fingerprint": of.fingerprint}
    return Comparison(**names, hybrid=hybrid, baselines=baselines, verdicts=verdicts, environment=environment)


def _is_fast(run: RunView) -> bool:
    return run.spec.get("profile") == "fast"


def _way(run: RunView) -> tuple[object, ...]:
    own = run.policy_text, run.checkpoint_text, run.start, run.lanes, run.shared
    return *own, tuple((part.name, part.priority, part.deadline_s) for part in run.submodels)


def _comparable(runs: Sequence[RunView], steered: Callable[[RunView], bool]) -> list[RunView]:
    return [run for run in runs if _problem(run, steered) is None]


def _problem(run: RunView, steered: Callable[[RunView], bool]) -> str | None:
    """Why the figures of a run cannot be compared; None if they can."""
    if run.state not in ENDED:
        return f"{run.mode} run {run.run_id} is {run.state.value}; its figures come when it ends"
    failed = [part for part in run.submodels if part.state is State.FAILED]
    if failed:
        causes = "; ".join(f"{part.name}: {part.cause or 'no cause was recorded'}" for part in failed)
        return f"{run.mode} run {run.run_id} failed ({causes})"
    if run.state is not State.COMPLETED or any(part.state is not State.COMPLETED for part in run.submodels):
        return f"{run.mode} run {run.run_id} was {run.state.value} before all sub-models were trained"
    doubted = [part for part in run.submodels if part.in_doubt]
    if doubted:
        causes = " ".join(part.cause or "" for part in doubted)
        return f"the results of {run.mode} run {run.run_id} cannot be trusted: {causes}"
    each = _process_threads(run)
    if max(each) > 1 and sum(each) > (run.threads or 1):
        return f"{run.mode} run {run.run_id} had {sum(each)} threads, the hybrid {run.threads}; run the baseline again"
    if run.shared:
        return f"hybrid run {run.run_id} trained in a shared hybrid; its times and its memory are not its own"
    if run.mode == HYBRID and run.attempt > 1:
        return f"hybrid run {run.run_id} was paused or interrupted; its times cannot be compared"
    if any(part.paused_s > 0 for part in run.submodels):
        return f"a sub-model of {run.mode} run {run.run_id} was paused; its times cannot be compared"
    if any(part.redone_steps or part.attempt > 1 for part in run.submodels):
        return f"a sub-model of {run.mode} run {run.run_id} was retried; its times cannot be compared"
    if steered(run):
        return f"{run.mode} run {run.run_id} was changed while it trained; submit it again to compare it"
    return None


def _process_threads(run: RunView) -> tuple[int, ...]:
    """Threads of each process that trains at once."""
    names = [part.name for part in run.submodels]
    each = tuple(int(run.processes.get(name, {}).get("threads", run.threads or 1)) for name in names)
    return each if run.mode == "concurrent" else (max(each),)


def _arm(mode: Mode, runs: Sequence[RunView], steered: Callable[[RunView], bool]) -> Arm:
    problem = next((found for run in runs if (found := _problem(run, steered)) is not None), None)
    parts = tuple(_arm_submodel(name, runs) for name in (part.name for part in runs[0].submodels))
    differing = [part.name for part in parts if len(set(part.state_sha256)) > 1]
    moved = any(run.kinds for run in runs)
    may_differ = moved or (mode == HYBRID and _is_fast(runs[0]))
    if problem is None and differing and not may_differ:
        problem = f"repeats disagree: the weights of {', '.join(differing)} differ between equal {mode} runs"
    sources = {run.memory_source for run in runs}
    queued_s = [max(0.0, (run.launched_at_s or 0.0) - run.created_at_s) for run in runs]
    return Arm(
        mode=mode,
        run_ids=tuple(run.run_id for run in runs),
        threads=_process_threads(runs[-1]),
        memory_bytes=_spread(run.peak_memory_bytes for run in runs) if len(sources) == 1 else None,
        memory_source=sources.pop() if len(sources) == 1 else None,
        others_share=_spread(run.others_share for run in runs),
        **{kind: _spread(run.pages.get(kind) for run in runs) for kind in ("anonymous_bytes", "file_bytes")},
        allocator=runs[-1].allocator,
        lanes=runs[-1].lanes or 1,
        mean_turnaround_s=_spread(_mean_turnaround_s(run) for run in runs),
        queued_s=_spread(queued_s) if mode == HYBRID else None,
        starts=tuple(sorted({run.start for run in runs if run.start is not None})),
        **{
            name: _spread(getattr(run, name) for run in runs)
            for name in ("makespan_s", "cpu_s", "gpu_s", "energy_j", "start_s")
        },
        **{name: _spread(_loader(run, name) for run in runs) for name in ("loader_s", "loader_cpu_s")},
        kinds=next((run.kinds for run in runs if run.kinds), ()),
        submodels=parts,
        problem=problem,
    )


def _mean_turnaround_s(run: RunView) -> float | None:
    """Over all networks; the parts of a split one count with it."""
    place = split_in(run.spec)
    return mean_turnaround_s(part.turnaround_s for part in run.submodels if place.get(part.name) is None)


def _loader(run: RunView, figure: str) -> float | None:
    """Seconds that all processes of a baseline spent on fetching and collating batches."""
    each = _spread(run.processes.get(part.name, {}).get(figure) for part in run.submodels)
    return None if each is None else sum(each.values)


def _arm_submodel(name: str, runs: Sequence[RunView]) -> ArmSubModel:
    parts = [part for run in runs for part in run.submodels if part.name == name]
    last = parts[-1]
    return ArmSubModel(
        name=name,
        number=last.number,
        wait_s=_spread(None if part.turnaround_s is None else part.wait_s for part in parts),
        **{name: _spread(getattr(part, name) for part in parts) for name in _OF_EACH},
        test_accuracy=last.test_accuracy,
        test_loss=last.test_loss,
        train_loss=last.train_loss,
        techniques=last.techniques,
        state_sha256=tuple(part.state_sha256 for part in parts),
        oracle=None if runs[-1].mode == HYBRID else _oracle(runs[-1], last),
        cause=next((part.cause for part in parts if part.cause and part.state is not State.COMPLETED), None),
    )


def _oracle(run: RunView, part: SubModelView) -> OracleReport | None:
    """What torch says about a network of a baseline; without a recorded answer nothing is known."""
    unasked = OracleReport(answer="none", text=f"run {run.run_id} did not ask; run the baseline again")
    return run.oracle.get(part.name, unasked if part.model_format == PT2 else None)


def _queued(hybrid: Arm) -> bool:
    """Whether a hybrid waited for the device too long for its turnaround to be compared."""
    queued, turnaround = hybrid.queued_s, hybrid.mean_turnaround_s
    return queued is not None and turnaround is not None and queued.high > QUEUED_SHARE * turnaround.low


def _verdict(
    mode: Mode,
    hybrid: Arm,
    baseline: Arm | None,
    notes: Sequence[str],
    environment: Mapping[str, object],
    of: RunView,
    apart: str | None = None,
) -> Verdict:
    """`apart` says that the arms trained on different hosts."""
    withheld, lossy = _withheld(mode, hybrid, baseline) or apart, _lossy(of)
    same = None if baseline is None else _identical(hybrid, baseline, lossy)
    if baseline is not None:
        notes = (*notes, *_judged(lossy, hybrid, baseline))
    if same is not None and _is_fast(of):
        same, notes = None, (*notes, _ROUNDED)
    if same is not None and hybrid.kinds:
        kinds = f"it trained on {len(hybrid.kinds)} kinds of device ({'; '.join(hybrid.kinds)})"
        same, notes = None, (*notes, f"weights are not compared: {kinds}, which round differently")
    if (
        same is False
        and own_name(of.device).startswith("cpu")
        and baseline is not None
        and {*baseline.threads} != {*hybrid.threads}
    ):
        same = None  # on a CPU the number of threads decides how sums are rounded
        ours, theirs = (", ".join(map(str, sorted({*arm.threads}, reverse=True))) for arm in (hybrid, baseline))
        counts = f"{ours} threads in the hybrid, {theirs} in the {mode} processes"
        notes = (*notes, f"weights are not compared: rounding depends on threads ({counts})")
    if withheld is None and same is False:
        withheld = "the trained weights differ, so the arms did not do the same work"
    ratios: dict[str, Spread | None] = {one.ratio: None for one in QUANTITIES}
    if withheld is None and baseline is not None:
        ratios = {one.ratio: _ratio(getattr(hybrid, one.figure), getattr(baseline, one.figure)) for one in QUANTITIES}
        if _queued(hybrid):
            ratios["mean_turnaround_ratio"] = None
        notes = (*notes, *_cautions(ratios, hybrid, baseline, environment))
    return Verdict(
        mode=mode,
        **ratios,
        identical_weights=same,
        withheld_because=withheld,
        lossy=() if baseline is None else tuple(part.name for part in baseline.submodels if part.name in lossy),
        notes=tuple(notes),
    )


def _apart(mode: Mode, ours: Sequence[RunView], theirs: Sequence[RunView]) -> str | None:
    """Why times and memory of two arms say nothing about each other: other machines. None if they do."""
    hosts, others = (sorted({host_of(stay.device) for run in runs for stay in run.stays}) for runs in (ours, theirs))
    if not (hosts and others) or hosts == others:
        return None
    where = f"the hybrid trained on {' and '.join(hosts)}, the {mode} baseline on {' and '.join(others)}"
    return f"{where}; run the baseline again, which goes to the host of the hybrid"


def _lossy(of: RunView) -> dict[str, tuple[str, ...]]:
    """What keeps the weights of which sub-models from having the same bits in both arms."""
    lossy = lossy_of(of.spec)
    # A baseline trains a split network in one piece.
    return lossy | {name: (_SPLIT, *lossy.get(name, ())) for name in split_in(of.spec)}


def _judged(lossy: Mapping[str, Sequence[str]], hybrid: Arm, baseline: Arm) -> Iterable[str]:
    """Say of each sub-model with a lossy technique how good it became in both arms."""
    theirs = {part.name: part for part in baseline.submodels}
    for part in hybrid.submodels:
        if part.name in lossy and part.name in theirs:
            yield f"weights are not compared: {' and '.join(lossy[part.name])} of {part.name} is lossy"
            if metrics := _metrics(part, theirs[part.name], baseline.mode):
                yield f"{part.name} ends with {metrics}"


def _metrics(ours: ArmSubModel, theirs: ArmSubModel, mode: Mode) -> str:
    """Test accuracy and loss of both arms and their difference, as far as both have them."""
    told = []
    if ours.test_accuracy is not None and theirs.test_accuracy is not None:
        points = 100 * (ours.test_accuracy - theirs.test_accuracy)
        both = f"{percent_text(ours.test_accuracy)}, {mode} {percent_text(theirs.test_accuracy)}"
        told.append(f"a test accuracy of {both} ({points:+.1f} points)")
    if ours.test_loss is not None and theirs.test_loss is not None:
        told.append(
            f"a test loss of {ours.test_loss:.4g}, {mode} {theirs.test_loss:.4g} "
            f"({ours.test_loss - theirs.test_loss:+.2g})"
        )
    return "; ".join(told)


def _withheld(mode: Mode, hybrid: Arm, baseline: Arm | None) -> str | None:
    if baseline is None:
        return f"there is no {mode} baseline of this run yet"
    if hybrid.problem or baseline.problem:
        return hybrid.problem or baseline.problem
    for part in baseline.submodels:
        if part.oracle is not None and part.oracle.answer == "differs":
            return f"torch itself reads another network from the file of {part.name}: {part.oracle.text}"
        if part.oracle is not None and part.oracle.answer == "none":
            return f"it is not known whether torch itself reads the same network of {part.name}: {part.oracle.text}"
    if hybrid.memory_source != baseline.memory_source:
        sources = f"{hybrid.memory_source or 'no source'} and {baseline.memory_source or 'no source'}"
        return f"memory was measured in different ways ({sources})"
    return None


def _identical(hybrid: Arm, baseline: Arm, lossy: Container[str]) -> bool | None:
    """Whether the weights of all repeats have the same bits, but for lossy ones; None if some are missing."""
    theirs = {part.name: part.state_sha256 for part in baseline.submodels}
    exact = [part for part in hybrid.submodels if part.name not in lossy]
    hashes = [{*part.state_sha256, *theirs.get(part.name, (None,))} for part in exact]
    unknown = not hashes or any(None in found for found in hashes)
    return None if unknown else all(len(found) == 1 for found in hashes)


def _cautions(
    ratios: Mapping[str, Spread | None], hybrid: Arm, baseline: Arm, environment: Mapping[str, object]
) -> Iterable[str]:
    if _queued(hybrid):
        waited = f"the hybrid waited for the device for more than {100 * QUEUED_SHARE:.0f} % of its turnaround"
        yield f"mean turnaround is not compared: {waited}, which counts for it alone"
    for one in QUANTITIES:
        ratio = ratios[one.ratio]
        if ratio is not None and len(ratio.values) > 1 and ratio.low < 1 < ratio.high:
            yield f"{one.title}: some repeats are above 1 and some below, so there is no clear difference"
    for arm in (hybrid, baseline):
        for name, spread in (("memory", arm.memory_bytes), ("makespan", arm.makespan_s), ("CPU seconds", arm.cpu_s)):
            if spread is not None and spread.high - spread.low > WIDE * spread.median:
                wide = (spread.high - spread.low) / spread.median
                yield f"{name} of the {arm.mode} repeats differs by {100 * wide:.0f} % of its median"
    if hybrid.others_share and baseline.others_share:
        ours, theirs = hybrid.others_share.median, baseline.others_share.median
        if abs(ours - theirs) > OTHER_WORK:
            used = f"{100 * ours:.0f} % of the processors during the hybrid and {100 * theirs:.0f} %"
            yield f"other work used {used} during {baseline.mode}, so the times cannot be compared"
    yield from _unfair(hybrid, baseline, environment)


def _unfair(hybrid: Arm, baseline: Arm, environment: Mapping[str, object]) -> Iterable[str]:
    """Name what favours one side although both had the same budget for a process."""
    cores = environment.get("cores")
    most = cores if isinstance(cores, int) else 0
    used, ours = min(sum(baseline.threads), most), min(sum(hybrid.threads) * hybrid.lanes, most)
    if used > ours and max(baseline.threads) == 1:
        yield f"{len(baseline.threads)} processes of one thread used up to {used} cores, the hybrid {ours}"
    elif used < ours and baseline.threads:
        yield f"{hybrid.lanes} lanes of the hybrid used up to {ours} cores, the {baseline.mode} baseline {used}"
    if hybrid.memory_source == "process RSS" and baseline.mode == "concurrent":
        yield "memory is the resident size: libraries that processes share count once for each of them"


def _left_out(repeats: Iterable[RunView], hybrid: Arm, baseline: Arm | None) -> tuple[str, ...]:
    """List the ended runs of the same spec that no arm counts."""
    counted = {*hybrid.run_ids, *(baseline.run_ids if baseline is not None else ())}
    return tuple(
        f"{run.mode} run {run.run_id} ({run.state.value}) is left out"
        for run in repeats
        if run.run_id not in counted and run.state in ENDED
    )


def _ratio(ours: Spread | None, theirs: Spread | None) -> Spread | None:
    """Divide repeat by repeat; a single value is paired with all repeats of the other."""
    if ours is None or theirs is None or min(theirs.values) <= 0:
        return None
    count = max(len(ours.values), len(theirs.values))
    a, b = (spread.values * count if len(spread.values) == 1 else spread.values for spread in (ours, theirs))
    return Spread(tuple(x / y for x, y in zip(a, b, strict=True)))


def _spread(values: Iterable[float | int | None]) -> Spread | None:
    known = tuple(values)
    numbers = tuple(float(value) for value in known if value is not None)
    return Spread(numbers) if numbers and len(numbers) == len(known) else None
