"""Many exercises, some at a time, until enough processes were killed."""

import itertools
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from unifiednn_core.drill.audit import Promise, StoreAudit, kept_windows
from unifiednn_core.drill.demo import EPOCHS, STRETCHED
from unifiednn_core.drill.judge import Promises, check, judge
from unifiednn_core.drill.outcome import Outcome
from unifiednn_core.drill.plan import Exercise, exercise
from unifiednn_core.drill.requests import Request
from unifiednn_core.drill.runner import Runner
from unifiednn_core.drill.scene import Scene
from unifiednn_core.drill.zygote_client import Zygote, zygote
from unifiednn_core.errors import DrillFailed

PREPARATION_S = 180.0
LIMIT_S_PER_KILL, LEAST_LIMIT_S = 10.0, 900.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What all exercises begin with: a home in which the demo waits, and what it comes out as without faults."""

    template: Path
    run_id: str
    promises: Promises


def carry_out(folder: Path, *, seed: int, kills: int, lanes: int, told: Callable[[Outcome], None]) -> Outcome:
    """Kill at least `kills` processes; `told` is called with the sums after each exercise. Raises `DrillFailed`."""
    with zygote(folder / "preparation.log") as forks:
        setting = prepare(forks, folder)
    total, lock, numbers = Outcome(), threading.Lock(), itertools.count()
    enough, abandoned = threading.Event(), threading.Event()
    deadline_s = time.monotonic() + max(LEAST_LIMIT_S, LIMIT_S_PER_KILL * kills)

    def lane(place: int) -> None:
        with zygote(folder / f"zygote-{place}.log") as forks:
            while not enough.is_set() and not abandoned.is_set():
                outcome = _one(forks, folder, setting, exercise(seed, next(numbers)), abandoned)
                with lock:
                    if abandoned.is_set():
                        return
                    total.add(outcome)
                    told(total)
                    if total.kills >= kills or time.monotonic() > deadline_s:
                        enough.set()

    with ThreadPoolExecutor(lanes, thread_name_prefix="lane") as pool:
        try:
            for done in as_completed([pool.submit(lane, place) for place in range(lanes)]):
                done.result()
        except BaseException:  # one lane broke down, or somebody pressed Ctrl-C: none goes on
            abandoned.set()
            raise
    if total.kills < kills:
        total.problems.append(f"time ran out after {total.kills} of {kills} kills")
    return total


def prepare(forks: Zygote, folder: Path) -> Setting:
    """Hand the demo in, keep that as a template, then train it without faults; once more for an epoch longer."""
    promises: dict[tuple[str, int], Promise] = {}
    template = folder / "template"
    for name, epochs in (("reference", EPOCHS), ("reference-longer", STRETCHED)):
        scene = Scene(folder / name)
        scene.folder.mkdir(parents=True)
        _await(forks, scene, _ask(forks, "prepare", scene, epochs=dict(epochs)))
        if name == "reference":
            shutil.copytree(scene.home.root, template)
        promises |= _promises(forks, scene, epochs)
    return Setting(template, _run_id(template / "unifiednn.sqlite3"), promises)


def _one(forks: Zygote, folder: Path, setting: Setting, planned: Exercise, abandoned: threading.Event) -> Outcome:
    scene = Scene(folder / f"exercise-{planned.number:05d}")
    scene.folder.mkdir()
    shutil.copytree(setting.template, scene.home.root)
    state = Runner(forks, scene, setting.run_id, planned, abandoned.is_set).run()
    return judge(forks, scene, setting.run_id, planned, state, setting.promises)


def _promises(forks: Zygote, scene: Scene, epochs: Mapping[str, int]) -> dict[tuple[str, int], Promise]:
    """Train uninterrupted, by the local launcher as an operator does, and note what comes out."""
    run_id = _run_id(scene.database)
    server = _ask(forks, "baseline", scene, run_id=run_id)
    audit, deadline_s = StoreAudit(scene.home, run_id), time.monotonic() + PREPARATION_S
    while (state := audit.states()[None]) not in ("completed", "failed") and time.monotonic() < deadline_s:
        time.sleep(0.1)
    forks.ask(Request(do="kill", pid=server, signal=9))
    hashes = check(forks, scene, run_id)
    if state != "completed" or set(hashes) != set(epochs):
        raise DrillFailed(f"The uninterrupted training was left as {state}; {scene.folder} has its logs.")
    losses = {
        name: {window.step: window.loss for window in kept_windows(audit.windows(name), audit.begun_at(name))}
        for name in epochs
    }
    return {(name, epochs[name]): Promise(hashes[name], losses[name]) for name in epochs}


def _ask(forks: Zygote, do: str, scene: Scene, **fields: object) -> int:
    return forks.ask(Request(do=do, folder=str(scene.folder), **fields)) or 0  # type: ignore[arg-type]


def _await(forks: Zygote, scene: Scene, pid: int) -> None:
    deadline_s = time.monotonic() + PREPARATION_S
    while (code := forks.ask(Request(do="code", pid=pid))) is None:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.05)
    if code != 0:
        raise DrillFailed(f"The demo could not be handed in; {scene.log('prepare')} says why.")


def _run_id(database: Path) -> str:
    with closing(sqlite3.connect(database)) as connection:
        [(run_id,)] = connection.execute("SELECT id FROM runs")
    return str(run_id)
