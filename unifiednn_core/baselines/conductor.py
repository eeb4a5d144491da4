"""The worker of a baseline: starts plain scripts as processes, listens to them, and writes down how they fare.

It has no torch, which would be counted and shared with what it measures. `concurrent` starts all scripts at once,
`sequential` one after the other in order of arrival. A measurement is whole or nothing: when this process dies, the
scripts die with it, and the next one begins anew.
"""

import os
import queue
import sys
import time
import traceback
from pathlib import Path

from sqlalchemy.exc import OperationalError

from unifiednn_core import failpoints
from unifiednn_core.baselines.plan import Places, job_of
from unifiednn_core.baselines.processes import Ended, Message, Said
from unifiednn_core.baselines.scripts import Scripts
from unifiednn_core.clock import Clock, RealClock
from unifiednn_core.home import Home
from unifiednn_core.lifecycle import ENDED, Event, State
from unifiednn_core.runtime import liveness
from unifiednn_core.runtime.giving_up import give_up
from unifiednn_core.spec import RunSpec
from unifiednn_core.store import Store
from unifiednn_core.store.commands import Verb

LISTEN_S = 0.1
WRITE_S = 0.5
DONE, FAILED = 0, 1
ENDS = frozenset({Verb.STOP, Verb.DISCARD})
BEFORE = {"steps_done": 0, "epochs_done": 0}


class Conductor:
    """Everything between the store and the scripts of one baseline."""

    def __init__(self, home: Home, store: Store, run_id: str, attempt: int, clock: Clock | None = None):
        self._store, self._run_id, self._clock = store, run_id, clock or RealClock()
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        store.commands.adopt(run_id)
        stopping = State(store.runs.get(run_id)[0].state) is State.STOPPING
        if attempt > 1 and not stopping:
            store.workers.begin_anew(run_id)
        run, rows = store.runs.get(run_id)
        spec, threads = RunSpec.model_validate(run.spec), run.threads or 1
        alive = [row for row in rows if State(row.state) not in ENDED]
        places = Places(home, run_id)
        places.create()
        parts = {part.name: part for part in spec.submodels}
        for row in alive:
            job_of(places, spec, parts[row.name], row, threads=threads, peers=len(alive)).write(places.job(row.name))
        names = [row.name for row in alive]
        attempts = dict.fromkeys(names, 0) if stopping else store.workers.begin(run_id, dict.fromkeys(names, BEFORE))
        self._scripts = Scripts(places, store, run, attempts, self._inbox, self._clock)
        for command in store.commands.open(run_id):
            if command.verb is Verb.RESUME:  # this very process is what was asked for
                store.commands.carry_out(command.id)

    def run(self) -> int:
        """Train to the end and write down how it went; returns the exit code."""
        scripts = self._scripts
        self._store.runs.transition(self._run_id, None, Event.BEGIN)
        self._obey()  # what was asked in the meantime holds before the first script
        next_write_s = 0.0
        while True:
            scripts.launch()
            try:
                message = self._inbox.get(timeout=LISTEN_S)
            except queue.Empty:
                message = None
            match message:
                case Said():
                    scripts.hear(message)
                case Ended():
                    scripts.end(message)
                    next_write_s = 0.0
                    continue  # who is next starts before anything else is done
            scripts.look()
            if time.monotonic() < next_write_s or not self._inbox.empty():
                continue
            next_write_s = time.monotonic() + WRITE_S
            try:
                self._obey()
                scripts.journal.write_down()
                if scripts.over and self._store.runs.conclude(self._run_id):
                    return DONE
            except OperationalError:  # a full disk or a locked store: nothing is dropped, the next turn tries again
                traceback.print_exc()

    def _obey(self) -> None:
        """Stop what people want to be stopped; the store takes no other orders for a measurement."""
        for command in self._store.commands.open(self._run_id):
            if command.verb in ENDS:
                self._scripts.stop(command.submodel, discard=command.verb is Verb.DISCARD)


def conduct(home: Home, run_id: str, clock: Clock | None = None) -> int:
    """Be the worker of a baseline, in the main thread of a process that does nothing else; returns its exit code."""
    store = Store.open(home, clock)
    attempt = store.workers.register(run_id, liveness.current())
    if attempt is None:
        return FAILED  # it came up so late that the run was given up
    try:
        return Conductor(home, store, run_id, attempt, clock).run()
    except (OperationalError, OSError):  # a store or disk that cannot be written now is no fault of the run
        traceback.print_exc()
        return FAILED
    except Exception as error:
        traceback.print_exc()
        give_up(store, run_id, error)
        return FAILED


def main() -> None:
    """Run the baseline named on the command line: `python -m unifiednn_core.baselines.conductor HOME RUN_ID`."""
    failpoints.arm_from_environment()
    code = conduct(Home(Path(sys.argv[1])), sys.argv[2])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # scripts that still run end with this process


if __name__ == "__main__":
    main()
