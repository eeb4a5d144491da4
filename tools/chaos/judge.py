"""Compares what an exercise left behind with what was promised, and counts faults and recoveries."""

import json
import shutil
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from tools.chaos.audit import Promise, StoreAudit, kept_windows, readable, redone, tiling
from tools.chaos.fork_server import ForkServerClient
from tools.chaos.plan import EPOCHS, STRETCHED, Exercise
from tools.chaos.scene import ForkRequest, JournalEntry, Scene

KILLS = ("sigkill", "sigterm")


@dataclass(slots=True)
class Outcome:
    """Counts of one exercise or of many."""

    exercises: int = 0
    recovered: int = 0
    """Exercises that came to their end by themselves."""
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Faults that struck, by place and action."""
    unplanned_deaths: int = 0
    recovery_s: list[float] = field(default_factory=list)
    """From the death of a worker to the first recorded step of the next; forked workers."""
    fresh_recovery_s: list[float] = field(default_factory=list)
    """The same where the next worker was a new interpreter."""
    redone_steps: list[int] = field(default_factory=list)
    """Recorded steps that were trained again, for each attempt after the first."""
    acknowledged: int = 0
    refused: int = 0
    lost_commands: int = 0
    commands_applied_twice: int = 0
    steps: int = 0
    steps_twice: int = 0
    steps_missing: int = 0
    other_losses: int = 0
    """Steps with another loss than in the uninterrupted training."""
    stores_checked: int = 0
    unreadable_stores: int = 0
    submodels: int = 0
    other_bits: int = 0
    """Sub-models that did not come out as without faults."""
    damaged: int = 0
    damage_untold: int = 0
    """Damaged checkpoints that no event of the run speaks of."""
    clock_jumps: int = 0
    submissions: int = 0
    """Shared runs that people submitted."""
    hybrids: int = 0
    """Hybrids that trained them."""
    shared_hybrids: int = 0
    """Those of them that trained submissions of several people."""
    moves: int = 0
    """Times that a sub-model left a hybrid before its end."""
    contradictions: int = 0
    """Rows of hybrids, runs and sub-models that did not fit together."""
    left_behind: int = 0
    """Submissions that did not end as they should."""
    downloads: int = 0
    broken_downloads: int = 0
    lasting: Counter[str] = field(default_factory=Counter)
    """Faults of a cluster that killed nobody, by kind."""
    gave_up: int = 0
    """Processes that ended by themselves, because they had lost their hybrid or the store."""
    claims: int = 0
    """Commits of a cluster in which a hybrid held a device."""
    double_claims: int = 0
    lost_checkpoints: int = 0
    """Recorded checkpoints from which the next attempt did not go on."""
    late_writes: int = 0
    """Steps that were recorded by an attempt that was over."""
    left_over: int = 0
    """Processes, claims and blobs that remained when all had ended."""
    unreadable_pages: int = 0
    strange_errors: int = 0
    """Errors in logs of a cluster that no fault explains."""
    unsaved_s: list[float] = field(default_factory=list)
    """Seconds since the last recorded checkpoint, at each death of a sub-model's worker."""
    problems: list[str] = field(default_factory=list)
    """What was not as promised, in words."""
    kept: list[str] = field(default_factory=list)
    """Folders to look into."""

    @property
    def kills(self) -> int:
        """Processes that were killed; a worker and a server at once count as one."""
        return sum(count for (_, action), count in self.struck.items() if action in KILLS)

    @property
    def passed(self) -> bool:
        """Whether everything was as promised."""
        return not self.problems and self.recovered == self.exercises

    def add(self, other: "Outcome") -> None:
        """Add the counts of another."""
        for part in fields(self):
            own, more = getattr(self, part.name), getattr(other, part.name)
            setattr(self, part.name, own + more)


TOGETHER_S = 0.25
GRACEFUL = 128 + 15
ANY_MOMENT = "any moment: "
_NAMES = {"worker": "worker", "server": "server", "commands": "process that asks"}


def tally(entries: Sequence[JournalEntry], exercise: Exercise) -> Outcome:
    """Count what a journal tells, up to the end of the exercise."""
    outcome = Outcome()
    over = next((place for place, entry in enumerate(entries) if entry.what == "over"), len(entries))
    entries = entries[:over]
    _count_faults(outcome, entries)
    _count_deaths(outcome, entries, exercise)
    time_recoveries(outcome, entries)
    outcome.acknowledged = sum(entry.what == "asked" for entry in entries)
    outcome.refused = sum(entry.what == "refused" for entry in entries)
    outcome.clock_jumps = sum(entry.what == "jumped" for entry in entries)
    return outcome


def _count_faults(outcome: Outcome, entries: Sequence[JournalEntry]) -> None:
    """Faults that do not kill; one that lasts for several hits counts once."""
    struck = {(entry.pid, entry.point, entry.action) for entry in entries if entry.what == "struck"}
    outcome.struck.update((point, action) for _, point, action in struck if action not in KILLS)


def _count_deaths(outcome: Outcome, entries: Sequence[JournalEntry], exercise: Exercise) -> None:
    struck = {entry.pid: entry for entry in entries if entry.what == "struck" and entry.action in KILLS}
    shot = {entry.pid: entry for entry in entries if entry.what == "shot"}
    locked = {(entry.pid, 1) for entry in entries if entry.what == "struck" and entry.action == "locked"}
    """Who cannot take a run up, because the store is locked, ends and leaves it to the next."""
    fresh = {entry.pid for entry in entries if entry.what == "started" and entry.fresh}
    for entry in entries:
        if entry.what != "ended" or entry.role == "check" or entry.code == 0:
            continue
        if entry.pid in struck and entry.code in (-9, -15, GRACEFUL):
            outcome.struck[struck[entry.pid].point, struck[entry.pid].action] += 1
        elif entry.pid in shot and entry.code == -9:
            whom = _shot_with(entry.pid, shot)
            if whom is not None:
                outcome.struck[ANY_MOMENT + whom, "sigkill"] += 1
        elif (
            entry.pid in fresh and (fault := exercise.rounds[entry.number].fault) and entry.code in (-9, -15, GRACEFUL)
        ):
            outcome.struck[fault.point, fault.action] += 1
        elif (entry.pid, entry.code) not in locked and not _came_too_late(entry, entries):
            outcome.unplanned_deaths += 1
            outcome.problems.append(f"{entry.role} {entry.pid} of round {entry.number} ended with code {entry.code}")


def _came_too_late(ended: JournalEntry, entries: Sequence[JournalEntry]) -> bool:
    """Whether a worker found that another one had been started in its place, because its server died meanwhile."""
    if ended.role != "worker" or ended.code != 1:
        return False
    workers = [entry for entry in entries if entry.what == "started" and entry.role == "worker"]
    began_at_s = next((entry.at_s for entry in workers if entry.pid == ended.pid), ended.at_s)
    return any(entry.run_id == ended.run_id and began_at_s < entry.at_s < ended.at_s for entry in workers)


def _shot_with(pid: int, shot: dict[int, JournalEntry]) -> str | None:
    """Who was killed; a worker and a server at once are one kill, counted with the worker."""
    own = shot[pid]
    others = {"worker": "server", "server": "worker"}
    together = any(
        other.role == others.get(own.role) and abs(other.at_s - own.at_s) < TOGETHER_S for other in shot.values()
    )
    if together:
        return "worker and server" if own.role == "worker" else None
    return _NAMES.get(own.role, own.role)


def time_recoveries(outcome: Outcome, entries: Sequence[JournalEntry]) -> None:
    """From a worker's death to the first step of the next one of that run or hybrid.

    Not timed: a next one that died before, or a pause.
    """
    died_at_s: dict[str, float] = {}
    fresh: dict[str, bool] = {}
    for entry in entries:
        key = entry.run_id
        if entry.what == "ended" and entry.role == "worker":
            died_at_s.pop(key, None)
            if entry.code:
                died_at_s[key] = entry.at_s
        elif entry.what == "started" and entry.role == "worker":
            fresh[key] = entry.fresh
        elif entry.what == "paused":
            died_at_s.pop(key, None)
        elif entry.what == "stepped" and key in died_at_s:
            times_s = outcome.fresh_recovery_s if fresh.get(key) else outcome.recovery_s
            times_s.append(entry.at_s - died_at_s.pop(key))


CHECK_PATIENCE_S = 60.0
Promises = Mapping[tuple[str, int], Promise]
"""By sub-model and number of epochs."""
PROMISED = {(name, epochs) for part in (EPOCHS, STRETCHED) for name, epochs in part.items()}
"""What a run may come to; any other number of epochs was asked for by nobody."""


def judge(
    forks: ForkServerClient,
    scene: Scene,
    run_id: str,
    exercise: Exercise,
    state: str,
    promised: Callable[[Mapping[str, int]], Promises],
) -> Outcome:
    """Judge an exercise that was left in `state`; deletes its folder if nothing went wrong.

    `promised` says what an uninterrupted training of so many epochs gives.
    """
    entries, outcome, can_be_read = begin_judging(scene, lambda entries: tally(entries, exercise))
    if can_be_read:
        audit = StoreAudit(scene.url, run_id)
        judge_commands(outcome, audit, entries)
        judge_damage(outcome, audit, entries)
        if state == "completed":
            outcome.recovered = 1
            epochs = {name: count for name, (count, *_) in audit.totals().items()}
            promises = promised(epochs) if epochs.items() <= PROMISED else {}
            judge_training(outcome, audit, promises, check(forks, scene, run_id))
            _judge_downloads(outcome, scene, run_id, entries)
        else:
            outcome.problems.append(f"the run was left as {state}: {audit.states()}")
    return end_judging(scene, exercise.number, outcome)


def begin_judging(
    scene: Scene, count: Callable[[Sequence[JournalEntry]], Outcome]
) -> tuple[list[JournalEntry], Outcome, bool]:
    """The journal of an exercise, what `count` finds in it, and whether its store can be read."""
    entries = scene.journal.news()
    outcome = count(entries)
    outcome.exercises, outcome.stores_checked = 1, 1
    wrong = readable(scene.url)
    if wrong:
        outcome.unreadable_stores = 1
        outcome.problems.append(f"the store cannot be read: {wrong[0]}")
    return entries, outcome, not wrong


def end_judging(scene: Scene, number: int, outcome: Outcome) -> Outcome:
    """Delete the folder of an exercise in which nothing went wrong; otherwise leave its problems there."""
    if outcome.problems:
        outcome.problems = [f"exercise {number}: {problem}" for problem in outcome.problems]
        outcome.kept = [str(scene.folder)]
        (scene.folder / "problems.txt").write_text("\n".join(outcome.problems) + "\n", encoding="utf-8")
    else:
        shutil.rmtree(scene.folder)
    return outcome


def check(forks: ForkServerClient, scene: Scene, run_id: str) -> dict[str, str]:
    """Hash of every trained model, read back from its zip by a process that has torch."""
    pid = forks.ask(ForkRequest(do="check", folder=str(scene.folder), run_id=run_id)) or 0
    deadline_s = time.monotonic() + CHECK_PATIENCE_S
    while (code := forks.ask(ForkRequest(do="code", pid=pid))) is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return dict(json.loads(scene.hashes.read_text(encoding="utf-8"))) if code == 0 else {}


def judge_commands(outcome: Outcome, audit: StoreAudit, entries: list[JournalEntry]) -> None:
    """Commands of one run, whose entries these are."""
    acknowledged = [entry.command for entry in entries if entry.what == "asked" and entry.command is not None]
    lost = [*audit.open_commands(acknowledged), *audit.values_not_as_asked(), *audit.pauses_without_effect()]
    lost += [
        f"'{entry.text}' was acknowledged without a trace"
        for entry in entries
        if entry.what == "asked" and entry.command is None
    ]
    twice = audit.applied_otherwise_than_once()
    outcome.lost_commands += len(lost)
    outcome.commands_applied_twice += len(twice)
    outcome.problems += [*lost, *twice]


def judge_damage(outcome: Outcome, audit: StoreAudit, entries: list[JournalEntry]) -> None:
    """`point` of such an entry is the sub-model, `text` the file."""
    for entry in entries:
        if entry.what == "damaged":
            step = int(entry.text.removeprefix("step-").partition(".")[0])
            outcome.damaged += 1
            if not audit.tells_of_damage(entry.point, step):
                outcome.damage_untold += 1
                outcome.problems.append(f"no event reports the damaged checkpoint {entry.point}/{entry.text}")


def judge_training(outcome: Outcome, audit: StoreAudit, promises: Promises, hashes: Mapping[str, str]) -> None:
    """Steps, epochs, losses and weights of the sub-models of one run; of one that was stopped, up to there."""
    states = audit.states()
    for name, (epochs, total, done, sha256) in audit.totals().items():
        if states[name] == "stopped":
            _judge_stopped(outcome, audit, name, done, promises.get((name, epochs)))
            continue
        windows, begun_at = audit.windows(name), audit.begun_at(name)
        kept, promise = kept_windows(windows, begun_at), promises.get((name, epochs))
        counted = tiling(kept, total)
        outcome.submodels, outcome.steps = outcome.submodels + 1, outcome.steps + total
        outcome.steps_twice += counted.twice
        outcome.steps_missing += counted.missing
        outcome.redone_steps += redone(windows, begun_at)
        if counted.twice or counted.missing or done != total:
            outcome.problems.append(
                f"{name}: {counted.twice} steps count twice, {counted.missing} are missing, {done} of {total} are done"
            )
        if audit.kept_epochs(name) != list(range(1, epochs + 1)):
            outcome.problems.append(f"{name}: figures of the epochs {audit.kept_epochs(name)} count")
        if promise is None or not promise.state_sha256 == sha256 == hashes.get(name):
            outcome.other_bits += 1
            said = f"recorded {sha256}, read back {hashes.get(name)}, promised {promise and promise.state_sha256}"
            outcome.problems.append(f"{name}: other weights after {epochs} epochs: {said}")
        elif others := [w.step for w in kept if w.steps == 1 and promise.losses.get(w.step) != w.loss]:
            outcome.other_losses += len(others)
            outcome.problems.append(f"{name}: other losses at the steps {others[:5]}")


def _judge_stopped(outcome: Outcome, audit: StoreAudit, name: str, done: int, promise: Promise | None) -> None:
    kept = kept_windows(audit.windows(name), audit.begun_at(name))
    counted = tiling(kept, done)
    outcome.submodels, outcome.steps = outcome.submodels + 1, outcome.steps + done
    outcome.steps_twice, outcome.steps_missing = (
        outcome.steps_twice + counted.twice,
        outcome.steps_missing + counted.missing,
    )
    if counted.twice or counted.missing:
        outcome.problems.append(f"{name}, stopped: {counted.twice} steps count twice, {counted.missing} are missing")
    if others := [w.step for w in kept if w.steps == 1 and (promise is None or promise.losses.get(w.step) != w.loss)]:
        outcome.other_losses += len(others)
        outcome.problems.append(f"{name}, stopped: other losses at the steps {others[:5]}")


def _judge_downloads(outcome: Outcome, scene: Scene, run_id: str, entries: list[JournalEntry]) -> None:
    """What was downloaded is what lies in the run's folder, byte for byte."""
    for name in {entry.text for entry in entries if entry.what == "downloaded"}:
        source, copy = scene.home.run(run_id) / "models" / f"{name}.zip", scene.downloads / f"{name}.zip"
        outcome.downloads += 1
        if not zipfile.is_zipfile(copy) or copy.read_bytes() != source.read_bytes():
            outcome.broken_downloads += 1
            outcome.problems.append(f"the download of {name} is not what was trained")
