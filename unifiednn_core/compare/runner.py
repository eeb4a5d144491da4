"""The worker of a baseline: starts plain scripts as processes, reads their rows, and writes them to the store.

It imports no torch: it would share that memory with the scripts that it measures. Before the first script, torch itself
reads the networks in another process, which is not measured. `concurrent` starts all scripts at once, `sequential` one
after another in order of arrival. A measurement is all or nothing: the scripts die with this process, and the next
worker starts over.
"""

import logging
import os
import queue
import sys
import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from sqlalchemy.exc import OperationalError

from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import Fenced, cause_of
from unifiednn_core.base.files import set_private_umask
from unifiednn_core.base.paths import Home
from unifiednn_core.base.trouble import log_error
from unifiednn_core.base.visible import keep_log_visible
from unifiednn_core.compare.arms import BaselineFiles, job_of, share_threads
from unifiednn_core.compare.oracle import ask_torch
from unifiednn_core.compare.processes import ScriptEnd
from unifiednn_core.compare.scripts import Scripts
from unifiednn_core.machine.cores import keep_to
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import OracleReport
from unifiednn_core.runtime.confinement import die_with_parent, forgo_privileges
from unifiednn_core.runtime.launchers import own_identity
from unifiednn_core.runtime.remote_store import RemoteStore
from unifiednn_core.spec.devices import torch_name
from unifiednn_core.spec.lifecycle import ENDED, Event, State
from unifiednn_core.spec.run import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb
from unifiednn_core.store.database import Fence

READING = "Torch itself reads the networks before anything is measured."
LISTEN_S = 0.1
WRITE_S = 0.5
DONE, FAILED = 0, 1
ENDS = frozenset({Verb.STOP, Verb.DISCARD})
_log = logging.getLogger(__name__)
BEFORE = {"steps_done": 0, "epochs_done": 0}


class BaselineRunner:
    """Connects the store and the scripts of one baseline."""

    def __init__(self, home: Home, store: Store, run_id: str, attempt: int, courier: RemoteStore | None = None):
        """`courier` is None on the server's machine."""
        self._store, self._run_id, self._courier = store, run_id, courier
        self._trained: list[str] = []
        store.commands.adopt(run_id)
        stopping = State(store.runs.get(run_id)[0].state) is State.STOPPING
        if attempt > 1 and not stopping:
            store.workers.begin_anew(run_id)
        run, rows = store.runs.get(run_id)
        device = store.hybrids.get(run_id)[0].device or "cpu"
        spec = RunSpec.model_validate({**run.spec, "device": torch_name(device)})
        alive = [row for row in rows if State(row.state) not in ENDED]
        names = [row.name for row in alive]
        threads = share_threads(run.mode, run.threads or 1, names)
        files = BaselineFiles(home, run_id)
        files.create()
        parts = {part.name: part for part in spec.submodels}
        for row in alive:
            if courier is not None:
                courier.bring(row.name)
            job = job_of(files, spec, parts[row.name], row, threads=threads[row.name], peers=len(alive))
            job.write(files.job(row.name))
        attempts = dict.fromkeys(names, 0) if stopping else store.workers.begin(run_id, dict.fromkeys(names, BEFORE))
        formats = {row.name: row.model_format for row in alive}
        asking = ThreadPoolExecutor(1).submit(ask_torch, home, spec, formats)
        self._answers: Future[dict[str, OracleReport]] | None = asking
        self._scripts = Scripts(files, store, run, device, attempts, threads, store.clock)
        for command in store.commands.open(run_id):
            if command.verb == Verb.RESUME:  # this process is the resumed run
                store.commands.carry_out(command.id)

    def run(self) -> int:
        """Train to the end and record it; returns the exit code."""
        scripts = self._scripts
        scripts.writer.batch.hybrid |= {"now_reason": READING}
        self._store.runs.transition(self._run_id, None, Event.BEGIN)
        self._obey()  # orders given before the start apply before the first script
        next_write_s = 0.0
        while True:
            if self._answered():
                scripts.launch()
            with suppress(queue.Empty):
                message = scripts.inbox.get(timeout=LISTEN_S)
                if isinstance(message, ScriptEnd):
                    scripts.end(message)
                    if message.code == 0:
                        self._trained.append(message.name)
                    next_write_s = 0.0
                    continue  # the next script starts before anything else
                scripts.hear(message)
            scripts.look()
            if time.monotonic() < next_write_s or not scripts.inbox.empty():
                continue
            next_write_s = time.monotonic() + WRITE_S
            try:
                self._obey()
                scripts.writer.flush()
                if scripts.over:
                    self._give_models()
                if scripts.over and self._store.runs.conclude(self._run_id):
                    return DONE
            except OperationalError:  # full disk or locked store: nothing is lost, the next turn tries again
                log_error(_log, "Measurements could not be written; it is tried again.")

    def _give_models(self) -> None:
        """Let the server have what was trained on another machine, now that nothing is measured any more."""
        while self._courier is not None and self._trained:
            self._courier.keep(self._trained[-1], [f"models/{self._trained[-1]}.safetensors"])
            self._trained.pop()

    def _answered(self) -> bool:
        """Whether torch has read the networks; its answers are recorded, and the process that read is ended."""
        if self._answers is not None and self._answers.done():
            answers = {name: report.model_dump() for name, report in self._answers.result().items()}
            self._scripts.writer.batch.hybrid |= {"now_reason": None}
            self._scripts.record_environment({"oracle": answers})
            client.stop()
            self._answers = None
        return self._answers is None

    def _obey(self) -> None:
        """Carry out orders to stop; the store accepts no others for a baseline."""
        for command in self._store.commands.open(self._run_id):
            if command.verb in ENDS:
                self._scripts.stop(command.submodel, discard=command.verb == Verb.DISCARD)


def run_baseline(home: Home, run_id: str, remote: RemoteStore | None = None) -> int:
    """Run a baseline in the main thread of its own process; returns the exit code.

    `remote` is the store of one on another machine than the server's.
    """
    store, me = Store(home.database) if remote is None else remote.store, own_identity()
    attempt = store.workers.register(run_id, me, None)
    if attempt is None:
        return FAILED  # it started too late, and the supervisor gave up on it
    store.raise_fence(Fence(run_id, attempt, (me.pid, me.started_at_s)))
    keep_to(store.devices.cpus_of(store.hybrids.get(run_id)[0].device))  # and so its scripts
    try:
        return BaselineRunner(home, store, run_id, attempt, remote).run()
    except (OperationalError, OSError, Fenced):  # an unwritable store or disk is not the fault of the run
        traceback.print_exc()
        return FAILED
    except Exception as error:
        traceback.print_exc()
        store.runs.fail_run(run_id, cause_of(error))
        return FAILED


def main() -> None:
    """Run the baseline named on the command line: `python -m unifiednn_core.compare.runner HOME RUN_ID`.

    With `--relayed` its store is elsewhere.
    """
    root, run_id, *relayed = sys.argv[1:]
    if relayed:
        die_with_parent()
    set_private_umask()
    forgo_privileges()
    failpoints.arm_from_environment()
    keep_log_visible()
    home = Home(Path(root))
    code = run_baseline(home, run_id, RemoteStore.of(home, run_id) if relayed else None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # running scripts end with this process


if __name__ == "__main__":
    main()
