"""What the workers of a run wrote, as one person may read it. Only the end of each file is read."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from unifiednn_core.base.files import last_lines
from unifiednn_core.base.paths import Home, application
from unifiednn_core.service.ownership import owners_of
from unifiednn_core.service.permissions import Guard, Own, permission
from unifiednn_core.service.reading import RunReader
from unifiednn_core.service.roles import Role
from unifiednn_core.store import Store
from unifiednn_core.store.schema import HYBRID
from unifiednn_core.views.logs import WorkerLog, event_lines, worker_lines
from unifiednn_core.views.runs import RunView

MOST_BYTES = 128 * 1024
"""Of all files of a run together."""
MOST_LINES = 1000
SHARED_WORKER = "This worker trains the networks of several people, so only operators read its log."


class LogService:
    """Reads the logs of runs. All methods raise `NotFound` for an unknown run."""

    def __init__(self, guard: Guard, home: Home, store: Store, reader: RunReader):
        self.guard = guard
        self._home, self._store, self._reader = home, store, reader

    @permission(Role.SUBMITTER, Own.SHARE, audited=False)
    def worker_log(self, run_id: str) -> WorkerLog:
        """The newest lines of all workers of a run.

        A line may tell of any network that the worker trains, so a submitter reads only the log of a worker that
        trains nothing but their own.
        """
        run, rows = self._store.runs.get(run_id)
        actor = self.guard.actor
        if actor.sees_only_own and (run.shared or not owners_of(run, rows).wholly_of(actor.id)):
            return WorkerLog(withheld=SHARED_WORKER)
        attempts = self._store.telemetry.attempts([run_id])[run_id]
        workers = [run_id] if not run.shared else dict.fromkeys(one.hybrid_id for one in attempts if one.hybrid_id)
        logs = [(self._home.run(worker), self._home.log(worker).name) for worker in workers]
        if run.mode != HYBRID:  # each script of a baseline has a log of its own
            folder = self._home.run(run_id)
            logs += [(folder, f"baseline/{file.name}") for file in sorted((folder / "baseline").glob("*.log"))]
        text, is_cut = tail(logs)
        if not actor.here:  # no folders of the server
            text = text.replace(str(self._home.root), "HOME").replace(f"{application()}/", "")
        lines = worker_lines(text, [row.name for row in rows])
        return WorkerLog(lines[-MOST_LINES:], is_cut or len(lines) > MOST_LINES)

    @permission(Role.SUBMITTER, Own.SHARE)
    def log_text(self, run_id: str) -> str:
        """Events, with UTC times, and the newest lines of the workers, as one text."""
        return as_text(self._reader.view(run_id), self.worker_log(run_id))


def as_text(view: RunView, log: WorkerLog) -> str:
    """The history of a run as one text."""
    events = [
        f"{datetime.fromtimestamp(line.at_s or 0.0, UTC):%Y-%m-%dT%H:%M:%SZ} {line.level:<7} "
        f"{','.join(line.who) or 'run'}: {line.text}"
        for line in event_lines(view.events)
    ]
    head = "# Worker" + (", the newest lines" if log.is_cut else "")
    return "\n".join([f"# {view.run_id}", *events, head, log.withheld, *(line.text for line in log.lines), ""])


def tail(logs: Iterable[tuple[Path, str]]) -> tuple[str, bool]:
    """The end of some files, by folder and name, together at most `MOST_BYTES`; and whether something was left out.

    Lines are whole. What is no regular file is passed over: a worker may have put a link there.
    """
    known = [(folder, name) for folder, name in logs if (folder / name).is_file()]
    share, ends = MOST_BYTES // max(1, len(known)), list[tuple[str, int]]()
    for folder, name in known:
        with suppress(OSError):
            ends.append(last_lines(folder, name, share))
    return "".join(text for text, _ in ends), any(size_bytes > share for _, size_bytes in ends)
