"""What a store of a cluster notes by itself while an exercise goes on: triggers write down each claim and each mark.

The same on SQLite and PostgreSQL. `tools.chaos.cluster.audit` judges what they wrote.
"""

from tools.chaos.cluster.audit import Claim, Mark
from tools.chaos.rows import change, document, is_sqlite, rows

_TABLES = (
    "CREATE TABLE chaos_claims (id {serial}, at_s {real} DEFAULT {now}, hybrid_id TEXT, device TEXT, also TEXT,"
    " held INTEGER, attempt INTEGER, worker TEXT)",
    "CREATE TABLE chaos_marks (id {serial}, at_s {real} DEFAULT {now}, run_id TEXT, submodel TEXT, what TEXT,"
    " attempt INTEGER, step INTEGER)",
    "CREATE TABLE chaos_found (id {serial}, at_s {real} DEFAULT {now}, what TEXT)",
)
_WORDS = {
    "sqlite": {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "real": "REAL",
        "now": "((julianday('now') - 2440587.5) * 86400.0)",
        "differs": "IS NOT",
        "integer": "",
    },
    "postgres": {
        "serial": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "real": "DOUBLE PRECISION",
        "now": "extract(epoch FROM clock_timestamp())",
        "differs": "IS DISTINCT FROM",
        "integer": "::integer",
    },
}
_CLAIM = (
    "INSERT INTO chaos_claims (hybrid_id, device, also, held, attempt, worker) VALUES (NEW.id, NEW.device, NEW.also,"
    " (NEW.heartbeat_at_s IS NOT NULL){integer}, NEW.attempt, NEW.worker_pid)"
)
_CHECKPOINT = (
    "INSERT INTO chaos_marks (run_id, submodel, what, attempt, step) VALUES (NEW.run_id, NEW.name, 'checkpoint',"
    " NEW.attempt, coalesce(NEW.checkpoint_step, 0))"
)
_ATTEMPT = (
    "INSERT INTO chaos_marks (run_id, submodel, what, attempt, step) VALUES (NEW.run_id, NEW.submodel, 'attempt',"
    " NEW.attempt, NEW.from_step)"
)
_LATE = (
    "INSERT INTO chaos_found (what) VALUES ('step ' || NEW.step || ' of ' || NEW.submodel || ' of ' || NEW.run_id ||"
    " ' is of attempt ' || NEW.attempt || ', which is over')"
)
_STRAY = (
    "INSERT INTO chaos_found (what) VALUES (NEW.submodel || ' of ' || NEW.run_id || ' began in ' || NEW.hybrid_id ||"
    " ', but is placed elsewhere')"
)
_IS_ELSEWHERE = (
    "NOT EXISTS (SELECT 1 FROM submodels WHERE run_id = NEW.run_id AND name = NEW.submodel"
    " AND hybrid_id = NEW.hybrid_id)"
)
_IS_OVER = (
    "NOT EXISTS (SELECT 1 FROM submodels JOIN attempts ON attempts.run_id = submodels.run_id AND submodel = name"
    " AND attempts.attempt = submodels.attempt WHERE submodels.run_id = NEW.run_id AND name = NEW.submodel"
    " AND submodels.attempt = NEW.attempt AND attempts.hybrid_id = submodels.hybrid_id)"
)
_CLAIM_CHANGES = (
    "(NEW.heartbeat_at_s IS NULL) {differs} (OLD.heartbeat_at_s IS NULL) OR NEW.device {differs} OLD.device"
    " OR NEW.attempt {differs} OLD.attempt OR NEW.worker_pid {differs} OLD.worker_pid"
)
_TRIGGERS = (
    ("claimed", "AFTER INSERT ON hybrids", "", _CLAIM),
    ("changed", "AFTER UPDATE ON hybrids", _CLAIM_CHANGES, _CLAIM),
    ("recorded", "AFTER UPDATE ON submodels", "NEW.checkpoint_step {differs} OLD.checkpoint_step", _CHECKPOINT),
    ("begun", "AFTER INSERT ON attempts", "", _ATTEMPT),
    ("strayed", "AFTER INSERT ON attempts", _IS_ELSEWHERE, _STRAY),
    ("stepped", "AFTER INSERT ON step_metrics", _IS_OVER, _LATE),
)
"""Name, moment, condition and what is written down."""


def watch(url: str) -> None:
    """Let a store write down what happens to its rows."""
    words = _WORDS["sqlite" if is_sqlite(url) else "postgres"]
    change(url, *(table.format(**words) for table in _TABLES), *_triggers(url))


def claims(url: str) -> list[Claim]:
    """Who held a device when, in the order of the commits."""
    found = rows(url, "SELECT at_s, hybrid_id, device, also, held, attempt, worker FROM chaos_claims ORDER BY id")
    return [
        Claim(
            at_s, hybrid_id, tuple(filter(None, (device, *document(also or "[]")))), bool(held), attempt, worker or ""
        )
        for at_s, hybrid_id, device, also, held, attempt, worker in found
    ]


def marks(url: str) -> list[Mark]:
    """Checkpoints that were recorded and attempts that began, in order."""
    return [
        Mark(*row)
        for row in rows(url, "SELECT at_s, run_id, submodel, what, attempt, step FROM chaos_marks ORDER BY id")
    ]


def late_writes(url: str) -> list[str]:
    """Steps that an attempt wrote that was over, and attempts where their sub-model is not placed, each once."""
    return [what for (what,) in rows(url, "SELECT DISTINCT what FROM chaos_found ORDER BY what LIMIT 20")]


def _triggers(url: str) -> list[str]:
    of_sqlite = is_sqlite(url)
    words, statements = _WORDS["sqlite" if of_sqlite else "postgres"], []
    for name, moment, condition, deed in _TRIGGERS:
        when, does = condition.format(**words), deed.format(**words)
        if of_sqlite:
            statements.append(f"CREATE TRIGGER chaos_{name} {moment} {f'WHEN {when} ' * bool(when)}BEGIN {does}; END")
            continue
        body = f"IF {when} THEN {does}; END IF;" if when else f"{does};"
        statements += [
            f"CREATE FUNCTION chaos_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$",
            f"CREATE TRIGGER chaos_{name} {moment} FOR EACH ROW EXECUTE FUNCTION chaos_{name}()",
        ]
    return statements
