"""What must hold of hybrids and their members at any time.

Triggers in the store see each write; `contradictions` looks at what is committed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tools.chaos.rows import change, rows

_ENDED = ("completed", "stopped", "failed", "interrupted")
_FOUND = "INSERT INTO chaos_found (what) VALUES"
_TRACE = "INSERT INTO chaos_trace (what) VALUES"
_HELD_TWICE = """
CREATE TRIGGER chaos_held_{moment} AFTER {moment} ON hybrids
WHEN NEW.heartbeat_at_s IS NOT NULL AND EXISTS (
  SELECT 1 FROM hybrids WHERE id <> NEW.id AND device = NEW.device AND heartbeat_at_s IS NOT NULL)
BEGIN {found} ('two hybrids hold ' || NEW.device || ', one is ' || NEW.id); END
"""
_WATCHES = (
    "CREATE TABLE chaos_found (what TEXT)",
    "CREATE TABLE chaos_trace (at_s REAL DEFAULT (julianday('now') * 86400 - 210866760000), what TEXT)",
    _HELD_TWICE.format(moment="INSERT", found=_FOUND),
    _HELD_TWICE.format(moment="UPDATE", found=_FOUND),
    f"""CREATE TRIGGER chaos_attempt AFTER INSERT ON attempts WHEN NOT EXISTS (
      SELECT 1 FROM submodels WHERE run_id = NEW.run_id AND name = NEW.submodel AND hybrid_id = NEW.hybrid_id)
    BEGIN {_FOUND} (NEW.submodel || ' of ' || NEW.run_id || ' began in ' || NEW.hybrid_id || ', but is not there');
    END""",
    f"""CREATE TRIGGER chaos_step AFTER INSERT ON step_metrics WHEN NOT EXISTS (
      SELECT 1 FROM submodels JOIN attempts USING (run_id, attempt)
      WHERE run_id = NEW.run_id AND name = NEW.submodel AND attempts.submodel = name AND attempt = NEW.attempt
        AND attempts.hybrid_id = submodels.hybrid_id)
    BEGIN {_FOUND} ('step ' || NEW.step || ' of ' || NEW.submodel || ' of ' || NEW.run_id || ' is of attempt '
      || NEW.attempt || ', which is over'); END""",
    f"""CREATE TRIGGER chaos_trace_part AFTER UPDATE OF state, hybrid_id, leaving ON submodels
    WHEN (NEW.state, NEW.hybrid_id, NEW.leaving) IS NOT (OLD.state, OLD.hybrid_id, OLD.leaving)
    BEGIN {_TRACE} (NEW.run_id || '/' || NEW.name || ': ' || OLD.state || ' in ' || coalesce(OLD.hybrid_id, '-')
      || ' -> ' || NEW.state || ' in ' || coalesce(NEW.hybrid_id, '-') || coalesce(', to leave: ' || NEW.leaving, ''));
    END""",
    f"""CREATE TRIGGER chaos_trace_run AFTER UPDATE OF state ON runs WHEN NEW.state <> OLD.state
    BEGIN {_TRACE} (NEW.id || ': ' || OLD.state || ' -> ' || NEW.state); END""",
    f"""CREATE TRIGGER chaos_trace_hybrid AFTER UPDATE ON hybrids
    WHEN (NEW.heartbeat_at_s IS NULL, NEW.worker_pid, NEW.ended_at_s IS NULL)
      IS NOT (OLD.heartbeat_at_s IS NULL, OLD.worker_pid, OLD.ended_at_s IS NULL)
    BEGIN {_TRACE} (NEW.id || ' on ' || NEW.device || ': ' || iif(NEW.heartbeat_at_s IS NULL, 'free', 'held')
      || ' by ' || coalesce(NEW.worker_pid, 'nobody') || iif(NEW.ended_at_s IS NULL, '', ', ended')); END""",
)


@dataclass(frozen=True, slots=True)
class Part:
    """A sub-model, its run and its hybrid, as committed."""

    run_id: str
    run: str
    """State of the run."""
    name: str
    state: str
    hybrid_id: str | None
    leaving: bool
    shared: bool | None
    """Of its hybrid; None if there is none."""
    held: bool
    """Whether its hybrid has a worker, or one starts."""
    hybrid_ended: bool

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state not in _ENDED


def watch(url: str) -> None:
    """Let a SQLite store note each write that must not be, and how states and places change."""
    change(url, *_WATCHES)


def found(url: str) -> list[str]:
    """What the triggers noted, each once."""
    return [what for (what,) in rows(url, "SELECT DISTINCT what FROM chaos_found LIMIT 20")]


def contradictions(url: str) -> list[str]:
    """What does not fit together in the committed rows of shared runs and hybrids."""
    query = """
        SELECT run_id, runs.state, submodels.name, submodels.state, hybrid_id, submodels.leaving IS NOT NULL,
               hybrids.shared, hybrids.heartbeat_at_s IS NOT NULL, hybrids.ended_at_s IS NOT NULL
        FROM submodels JOIN runs ON runs.id = run_id LEFT JOIN hybrids ON hybrids.id = hybrid_id WHERE runs.shared"""
    parts = [
        Part(run_id, run, name, state, hybrid_id, bool(leaving), shared, bool(held), bool(ended))
        for run_id, run, name, state, hybrid_id, leaving, shared, held, ended in rows(url, query)
    ]
    runs: dict[str, list[Part]] = {}
    for part in parts:
        runs.setdefault(part.run_id, []).append(part)
    wrong = [f"{part.name} of {part.run_id} {what}: {part}" for part in parts for what in _of_part(part)]
    return wrong + [f"{run_id} {what}: {its}" for run_id, its in runs.items() for what in _of_run(its)]


def _of_part(part: Part) -> Iterator[str]:
    if not part.open:
        if part.state == "interrupted":
            yield "is interrupted, though all recover"
        return
    if part.hybrid_id is not None and part.shared is None:
        yield "is in a hybrid that does not exist"
    if part.hybrid_id is not None and part.hybrid_ended:
        yield "was left behind in a hybrid that has ended"
    if part.state == "running" and not part.held:
        yield "runs without a worker"
    if part.leaving and part.hybrid_id is None:
        yield "is to leave, and is nowhere"


def _of_run(parts: list[Part]) -> Iterator[str]:
    state, live = parts[0].run, any(part.open and part.held for part in parts)
    if state in _ENDED and any(part.open for part in parts):
        yield "has ended, a sub-model has not"
    if state not in _ENDED and not any(part.open for part in parts):
        yield "has not ended, all sub-models have"
    if state in ("running", "starting") and not live:
        yield "trains without a worker"
    if state == "queued" and live:
        yield "waits in line while a worker has it"
    if state == "paused" and any(part.open and part.hybrid_id for part in parts):
        yield "is paused, a sub-model is still placed"
    if state == "completed" and any(part.state in ("failed", "interrupted") for part in parts):
        yield "is completed, a sub-model is not"
    if state == "interrupted":
        yield "is interrupted, though all recover"


def still_held(url: str) -> list[str]:
    """Hybrids that hold a device, or have not ended, though nothing is left to train."""
    query = "SELECT id, device FROM hybrids WHERE heartbeat_at_s IS NOT NULL OR (shared AND ended_at_s IS NULL)"
    return [f"hybrid {hybrid_id} still has {device}" for hybrid_id, device in rows(url, query)]
