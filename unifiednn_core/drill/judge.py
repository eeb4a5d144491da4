"""Holds what is left of an exercise against what was promised."""

import json
import shutil
import time
import zipfile
from collections.abc import Mapping

from unifiednn_core.drill.audit import Promise, StoreAudit, kept_windows, readable, redone, tiling
from unifiednn_core.drill.journal import Entry
from unifiednn_core.drill.outcome import Outcome
from unifiednn_core.drill.plan import Exercise
from unifiednn_core.drill.requests import Request
from unifiednn_core.drill.scene import Scene
from unifiednn_core.drill.tally import tally
from unifiednn_core.drill.zygote_client import Zygote

CHECK_PATIENCE_S = 60.0
Promises = Mapping[tuple[str, int], Promise]
"""By sub-model and number of epochs."""


def judge(zygote: Zygote, scene: Scene, run_id: str, exercise: Exercise, state: str, promises: Promises) -> Outcome:
    """Judge an exercise that was left in `state`; its folder goes where there is nothing to look into."""
    entries = scene.journal.news()
    outcome = tally(entries, exercise)
    outcome.exercises, outcome.stores_checked = 1, 1
    wrong = readable(scene.database)
    if wrong:
        outcome.unreadable_stores = 1
        outcome.problems.append(f"the store cannot be read: {wrong[0]}")
    else:
        audit = StoreAudit(scene.home, run_id)
        _judge_commands(outcome, audit, entries)
        _judge_damage(outcome, audit, entries)
        if state == "completed":
            outcome.recovered = 1
            _judge_training(outcome, audit, promises, check(zygote, scene, run_id))
            _judge_downloads(outcome, scene, run_id, entries)
        else:
            outcome.problems.append(f"the run was left as {state}: {audit.states()}")
    if outcome.problems:
        outcome.problems = [f"exercise {exercise.number}: {problem}" for problem in outcome.problems]
        outcome.kept = [str(scene.folder)]
    else:
        shutil.rmtree(scene.folder)
    return outcome


def check(zygote: Zygote, scene: Scene, run_id: str) -> dict[str, str]:
    """Hash of every trained model, read back from its zip by a process that has torch."""
    pid = zygote.ask(Request(do="check", folder=str(scene.folder), run_id=run_id)) or 0
    deadline_s = time.monotonic() + CHECK_PATIENCE_S
    while (code := zygote.ask(Request(do="code", pid=pid))) is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return dict(json.loads(scene.hashes.read_text(encoding="utf-8"))) if code == 0 else {}


def _judge_commands(outcome: Outcome, audit: StoreAudit, entries: list[Entry]) -> None:
    acknowledged = [entry.command for entry in entries if entry.what == "asked" and entry.command is not None]
    lost = [*audit.open_commands(acknowledged), *audit.values_not_as_asked(), *audit.pauses_without_effect()]
    lost += [f"'{entry.text}' was acknowledged without a trace"
             for entry in entries if entry.what == "asked" and entry.command is None]  # fmt: skip
    twice = audit.applied_otherwise_than_once()
    outcome.lost_commands, outcome.commands_applied_twice = len(lost), len(twice)
    outcome.problems += [*lost, *twice]


def _judge_damage(outcome: Outcome, audit: StoreAudit, entries: list[Entry]) -> None:
    """`point` of such an entry is the sub-model, `text` the file."""
    for entry in entries:
        if entry.what == "damaged":
            step = int(entry.text.removeprefix("step-").partition(".")[0])
            outcome.damaged += 1
            if not audit.tells_of_damage(entry.point, step):
                outcome.damage_untold += 1
                outcome.problems.append(f"nobody tells of the damaged checkpoint {entry.point}/{entry.text}")


def _judge_training(outcome: Outcome, audit: StoreAudit, promises: Promises, hashes: Mapping[str, str]) -> None:
    for name, (epochs, total, done, sha256) in audit.totals().items():
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


def _judge_downloads(outcome: Outcome, scene: Scene, run_id: str, entries: list[Entry]) -> None:
    """What was downloaded is what lies in the run's folder, byte for byte."""
    for name in {entry.text for entry in entries if entry.what == "downloaded"}:
        source, copy = scene.home.run(run_id) / "models" / f"{name}.zip", scene.downloads / f"{name}.zip"
        outcome.downloads += 1
        if not zipfile.is_zipfile(copy) or copy.read_bytes() != source.read_bytes():
            outcome.broken_downloads += 1
            outcome.problems.append(f"the download of {name} is not what was trained")
