"""The drill with shared hybrids: several people submit, orders and faults come from all sides, and all is judged."""

import json
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tools.chaos import pool_audit
from tools.chaos.audit import Promise, StoreAudit, kept_windows
from tools.chaos.fork_server import ForkServerClient
from tools.chaos.judge import (
    CHECK_PATIENCE_S,
    Outcome,
    begin_judging,
    end_judging,
    judge_commands,
    judge_damage,
    judge_training,
    tally,
)
from tools.chaos.plan import CHECKPOINT_STEPS, NEVER_S, Ask, Errand, Exercise
from tools.chaos.pool_plan import BY_NAME, pool_exercise, submitted_in
from tools.chaos.rows import asking, rows
from tools.chaos.runner import PREPARATION_S, ExerciseRunner, ask, await_end
from tools.chaos.scene import ForkRequest, JournalEntry, Scene, scene_of
from tools.machine import ToolFailed
from unifiednn_core.base.paths import DEVICES_SETTING
from unifiednn_core.spec.pooling import Pooling, PoolMode
from unifiednn_core.spec.run import CheckpointSpec, HybridSettings, PolicySpec
from unifiednn_core.store import Store

STUCK_S = 60.0
"""Nothing goes on any more if the history and the steps stay the same for so long."""
_FINAL = ("completed", "failed", "stopped")
_NEWEST = "SELECT (SELECT max(id) FROM events), (SELECT count(*) FROM step_metrics), (SELECT count(*) FROM commands)"
_STEPPED = """
SELECT DISTINCT hybrid_id, run_id, submodel, attempt FROM step_metrics JOIN attempts USING (run_id, submodel, attempt)
"""


class PoolWatch:
    """Watches all runs; notices failed sub-models, which a person then retries, and what contradicts itself."""

    orders, run_id = "people", ""

    def __init__(self, scene: Scene):
        self._scene = scene
        self.state, self.errands = "queued", deque[Errand]()
        self.contradictions: dict[str, None] = {}
        """What was found, in order."""
        self._newest: tuple[int | None, ...] = ()
        self._changed_at_s = time.monotonic()
        self._retried: set[str] = set()
        self._attempts: set[tuple[Any, ...]] = set()
        """Those whose first step was seen."""

    def look(self, workers: Iterable[int]) -> Iterator[JournalEntry]:
        """Notice what is new."""
        with asking(self._scene.url) as ask_store:
            [newest] = ask_store(_NEWEST)
            states = dict(ask_store("SELECT id, state FROM runs"))
            stepped = set(ask_store(_STEPPED)) if newest != self._newest else set()
            failed = ask_store(
                "SELECT runs.name || '/' || submodels.name FROM submodels JOIN runs ON runs.id = run_id"
                " WHERE submodels.state = 'failed' AND runs.state = 'failed'"
            )
        self.contradictions |= dict.fromkeys(pool_audit.contradictions(self._scene.url))
        if newest != self._newest:
            self._newest, self._changed_at_s = newest, time.monotonic()
        for (part,) in failed:
            if part not in self._retried and BY_NAME[part.partition("/")[0]].diverges:
                self._retried.add(part)
                self.errands.append(Errand((Ask("retry", part),), 0.0))
        if time.monotonic() - self._changed_at_s > STUCK_S:
            self.state = "stuck"
        else:
            ended = bool(states) and not self.errands and all(state in _FINAL for state in states.values())
            self.state = "completed" if ended else "running"
        for attempt in stepped - self._attempts:
            yield JournalEntry(what="stepped", role="test", run_id=attempt[0])
        self._attempts |= stepped


class Alone:
    """What each network comes out as when it trains alone without faults, trained as soon as somebody asks."""

    def __init__(self, folder: Path, template: Path):
        self._folder, self._template = folder, template
        self._promises: dict[tuple[str, str, int], Promise] = {}
        self._lock = threading.Lock()

    def promises(self, forks: ForkServerClient, wanted: Iterable[tuple[str, str, int]]) -> Mapping[str, Promise]:
        """Promises for networks of submissions, each of so many epochs, by `submission/network/epochs`."""
        with self._lock:
            missing = [one for one in dict.fromkeys(wanted) if one not in self._promises]
            if missing:
                scene = Scene(self._folder / f"alone-{len(self._promises)}")
                scene.folder.mkdir()
                shutil.copytree(self._template, scene.home.root)
                forks.plan(())
                await_end(forks, scene, ask(forks, "prepare_alone", scene, asks=tuple(missing)))
                self._promises |= _trained(forks, scene, missing)
            return {"/".join(map(str, key)): promise for key, promise in self._promises.items()}


def _trained(
    forks: ForkServerClient, scene: Scene, wanted: Iterable[tuple[str, str, int]]
) -> dict[tuple[str, str, int], Promise]:
    server, deadline_s = ask(forks, "server", scene), time.monotonic() + PREPARATION_S
    while (runs := _runs(scene)) and any(run.state not in _FINAL for run in runs) and time.monotonic() < deadline_s:
        time.sleep(0.1)
    forks.ask(ForkRequest(do="kill", pid=server, signal=9))
    hashes, found = check(forks, scene), {}
    ids = {run.name: run.id for run in runs if run.state == "completed"}
    for name, part, epochs in wanted:
        run_id = ids.get(f"{name}/{part}/{epochs}", "")
        if f"{run_id}/{part}" not in hashes:
            raise ToolFailed(f"{name} did not train alone; {scene.folder} has its logs.")
        audit = StoreAudit(scene.url, run_id)
        windows = kept_windows(audit.windows(part), audit.begun_at(part))
        losses = {window.step: window.loss for window in windows}
        found[name, part, epochs] = Promise(hashes[f"{run_id}/{part}"], losses)
    return found


def check(forks: ForkServerClient, scene: Scene) -> dict[str, str]:
    """Hash of every trained model by `run/name`, read back from its zip by a process that has torch."""
    pid, deadline_s = ask(forks, "check_pool", scene), time.monotonic() + CHECK_PATIENCE_S
    while (code := forks.ask(ForkRequest(do="code", pid=pid))) is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return dict(json.loads(scene.hashes.read_text(encoding="utf-8"))) if code == 0 else {}


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    name: str
    state: str


def _runs(scene: Scene) -> list[_Run]:
    return [_Run(*row) for row in rows(scene.url, "SELECT id, name, state FROM runs")]


class OfManyPeople:
    """The drill with shared hybrids, on two logical devices."""

    settings: Mapping[str, str] = MappingProxyType({DEVICES_SETTING: "cpu:0,cpu:1"})

    def __init__(self, rounds: int):
        self._rounds = rounds

    def plan(self, seed: int, number: int, rounds: int) -> Exercise:
        """Plan an exercise."""
        return pool_exercise(seed, number, rounds)

    def prepare(self, forks: ForkServerClient, folder: Path) -> "SettingOfManyPeople":
        """Make the home with which all exercises begin."""
        scene = Scene(folder / "template")
        scene.folder.mkdir(parents=True)
        asks = tuple((one.name, None, None) for one in submitted_in(self._rounds))
        await_end(forks, scene, ask(forks, "prepare_pool", scene, asks=asks))
        return SettingOfManyPeople(folder, scene.home.root, Alone(folder, scene.home.root))


@dataclass(frozen=True, slots=True)
class SettingOfManyPeople:
    """A home with people, and what their networks come out as alone."""

    folder: Path
    template: Path
    alone: Alone

    def one(self, forks: ForkServerClient, planned: Exercise, abandoned: Callable[[], bool]) -> Outcome:
        """Carry out an exercise, and judge it."""
        scene = scene_of(self.folder, self.template, planned.number)
        set_pooling(scene, planned.mode)
        pool_audit.watch(scene.url)
        watch = PoolWatch(scene)
        state = ExerciseRunner(forks, scene, watch, planned, abandoned).run()
        return _judge(forks, scene, planned, state, watch, self.alone)


def set_pooling(scene: Scene, mode: PoolMode) -> None:
    """Say what the server does with shared submissions."""
    checkpoint = CheckpointSpec(every_s=NEVER_S, every_steps=CHECKPOINT_STEPS)
    hybrid = HybridSettings(policy=PolicySpec.model_validate({"name": "fair", "turn_s": 0.1}), checkpoint=checkpoint)
    pooling = Pooling.model_validate({"mode": mode, "gather_s": 1.5, "gather_n": 2, "hybrid": hybrid})
    store = Store(scene.url)
    store.hybrids.set_pooling(pooling, by="")
    store.close()


def _judge(
    forks: ForkServerClient, scene: Scene, planned: Exercise, state: str, watch: PoolWatch, alone: Alone
) -> Outcome:
    """Judge an exercise that was left in `state`; deletes its folder if nothing went wrong."""
    entries, outcome, can_be_read = begin_judging(scene, lambda entries: tally(entries, planned))
    if can_be_read:
        judge_rows(outcome, scene, state, watch)
        judge_runs(outcome, forks, scene, entries, alone)
    return end_judging(scene, planned.number, outcome)


def judge_rows(outcome: Outcome, scene: Scene, state: str, watch: PoolWatch) -> None:
    """Hybrids, runs and sub-models that contradict each other, and what has not ended."""
    found = [*pool_audit.found(scene.url), *watch.contradictions, *pool_audit.contradictions(scene.url)]
    held = pool_audit.still_held(scene.url)
    found = list(dict.fromkeys([*found, *held]))
    outcome.contradictions += len(found)
    outcome.problems += found
    if state == "completed":
        outcome.recovered = 1
    else:
        outcome.problems.append(f"nothing went on; it was left as {state}")
    with asking(scene.url) as ask_store:
        [(outcome.hybrids,)] = ask_store("SELECT count(*) FROM hybrids WHERE shared AND attempt > 0")
        several = (
            "SELECT attempts.hybrid_id FROM attempts JOIN submodels ON (submodels.run_id, name) = (attempts.run_id,"
            " submodel) GROUP BY attempts.hybrid_id HAVING count(DISTINCT owner) > 1"
        )
        [(outcome.shared_hybrids,)] = ask_store(f"SELECT count(*) FROM ({several}) AS several")
        [(outcome.moves,)] = ask_store("SELECT count(*) FROM events WHERE code = 'left'")


def judge_runs(
    outcome: Outcome, forks: ForkServerClient, scene: Scene, entries: list[JournalEntry], alone: Alone
) -> None:
    """What people submitted and ordered, and what came of it."""
    runs, hashes = {run.id: run for run in _runs(scene)}, check(forks, scene)
    submitted = {entry.run_id for entry in entries if entry.what == "done" and entry.text.startswith("submit")}
    lost = submitted - runs.keys()
    outcome.lost_commands += len(lost)
    outcome.problems += [f"the submission {run_id} is gone" for run_id in sorted(lost)]
    outcome.acknowledged += len(submitted)
    promises = alone.promises(forks, (one for run in runs.values() for one in _wanted(scene, run)))
    for run in runs.values():
        audit, about = StoreAudit(scene.url, run.id), [entry for entry in entries if entry.run_id == run.id]
        outcome.submissions += 1
        before = len(outcome.problems)
        judge_commands(outcome, audit, [entry for entry in about if entry.what == "asked"])
        judge_damage(outcome, audit, about)
        ended = any(entry.what == "asked" and entry.text.startswith(("stop", "discard")) for entry in about)
        if run.state not in ("completed", "stopped" if ended else "completed"):
            outcome.left_behind += 1
            outcome.problems.append(f"was left as {run.state}: {audit.states()}")
        else:
            own = {(name, count): promises[f"{run.name}/{name}/{count}"] for _, name, count in _wanted(scene, run)}
            trained = {name: hashes.get(f"{run.id}/{name}", "") for name in audit.totals()}
            judge_training(outcome, audit, own, trained)
        outcome.problems[before:] = [f"{run.name} ({run.id}): {one}" for one in outcome.problems[before:]]


def _wanted(scene: Scene, run: _Run) -> list[tuple[str, str, int]]:
    """What the networks of a run are held against; of one epoch more, if a person asked for it."""
    totals, asked = StoreAudit(scene.url, run.id).totals(), BY_NAME[run.name].epochs
    return [(run.name, name, count) for name, (count, *_) in totals.items() if count - asked[name] in (0, 1)]
