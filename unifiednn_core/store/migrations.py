"""Migrations of older databases, run in one transaction when the database is opened."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from unifiednn_core.spec.lifecycle import State

_OF_A_WORKER = ("worker_pid", "worker_started_at_s", "worker_boot_id", "heartbeat_at_s", "claimer")
_NAMING = ("model", "train_data", "test_data", "start_from.file")
"""Entries of a sub-model that name a file."""
_KEPT = ("mode", "environment", "prediction")
_MOVED = (
    *_KEPT, *_OF_A_WORKER, "attempt", "died_at", "recoveries", "deaths_there", "deaths", "resume_at_s", "cpu_s",
    "gpu_s", "energy_j", "memory_source", "peak_memory_bytes", "memory_notes", "now_reason", "graph",
)  # fmt: skip
STEPS: Final[Mapping[int, Sequence[str]]] = {
    # Events get a code, a state and fields; runs get a back-off; slices know the step at which they begin.
    4: (
        "ALTER TABLE events ADD COLUMN code VARCHAR NOT NULL DEFAULT 'legacy'",
        "ALTER TABLE events ADD COLUMN state VARCHAR",
        "ALTER TABLE events ADD COLUMN fields JSON NOT NULL DEFAULT '{}'",
        "UPDATE events SET fields = json_object('text', message)",
        *(f"UPDATE events SET state = '{state}' WHERE kind = 'state' AND message LIKE '% is {state}.%'"
          for state in State),
        "ALTER TABLE events DROP COLUMN message",
        "UPDATE commands SET outcome = CASE WHEN outcome LIKE verb || '%' AND outcome NOT LIKE '%: %' THEN 'applied' "
        "WHEN outcome = 'done' THEN 'done' ELSE 'declined' END WHERE outcome IS NOT NULL",
        "CREATE INDEX ix_runs_fingerprint ON runs (fingerprint)",
        "ALTER TABLE runs ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE runs ADD COLUMN resume_at_s FLOAT",
        "ALTER TABLE submodels ADD COLUMN joined_at_s FLOAT",
        "ALTER TABLE slices ADD COLUMN from_step INTEGER NOT NULL DEFAULT 0",
        """UPDATE slices SET from_step = found.before + coalesce((SELECT a.from_step FROM attempts a
           WHERE a.run_id = slices.run_id AND a.submodel = slices.submodel AND a.attempt = slices.attempt), 0)
           FROM (SELECT id, sum(steps) OVER (PARTITION BY run_id, submodel, attempt ORDER BY id) - steps AS before
                 FROM slices) AS found WHERE found.id = slices.id""",
    ),
    # People get a team, sub-models know whose files they use.
    5: (
        "ALTER TABLE people ADD COLUMN team VARCHAR",
        "ALTER TABLE submodels ADD COLUMN lenders JSON NOT NULL DEFAULT '[]'",
    ),
    # People get tickets, sub-models a deadline.
    6: (
        "ALTER TABLE people ADD COLUMN tickets INTEGER",
        "ALTER TABLE submodels ADD COLUMN deadline_s FLOAT",
    ),
    # Several sub-models can be at work: each row has its own turn.
    7: (
        "ALTER TABLE submodels ADD COLUMN lane INTEGER",
        "ALTER TABLE submodels ADD COLUMN turn_since_s FLOAT",
        "ALTER TABLE submodels ADD COLUMN turn_reason VARCHAR",
        "ALTER TABLE slices ADD COLUMN lane INTEGER NOT NULL DEFAULT 1",
        """UPDATE submodels SET lane = 1, turn_since_s = run.now_since_s, turn_reason = run.now_reason
           FROM (SELECT * FROM runs) AS run WHERE run.id = submodels.run_id AND run.now_submodel = submodels.name""",
        "ALTER TABLE runs DROP COLUMN now_submodel",
        "ALTER TABLE runs DROP COLUMN now_since_s",
    ),
    # Hybrids, which hold devices, are apart from runs, which belong to people.
    8: (
        "ALTER TABLE hybrids DROP COLUMN also",  # the table is new, as of today; a later step adds it
        f"INSERT INTO hybrids (id, shared, open, device, device_kind, settings, threads, {', '.join(_MOVED)}) SELECT "
        f"id, 0, 0, device, '', '{{}}', coalesce(threads, 1), {', '.join(_MOVED)} FROM runs",
        """UPDATE hybrids SET started_at_s = (SELECT started_at_s FROM runs AS r
           WHERE r.id = hybrids.id), launched_at_s = (SELECT launched_at_s FROM runs AS r WHERE r.id = hybrids.id),
           settings = (SELECT json_object('policy', json(coalesce(json_extract(spec, '$.policy'), '{}')),
                                          'profile', coalesce(json_extract(spec, '$.profile'), 'exact'),
                                          'lanes', coalesce(json_extract(spec, '$.lanes'), 'auto'),
                                          'checkpoint', json(coalesce(json_extract(spec, '$.checkpoint'), '{}')),
                                          'recovery', coalesce(json_extract(spec, '$.recovery'), 'auto'),
                                          'step_limit_s', coalesce(json_extract(spec, '$.step_limit_s'), 600.0))
                       FROM runs AS r WHERE r.id = hybrids.id)""",
        *(f"UPDATE hybrids SET {name} = NULL WHERE id IN (SELECT id FROM runs WHERE state IN ('completed', 'stopped', "
          "'failed', 'interrupted', 'paused'))" for name in _OF_A_WORKER),
        *(f"ALTER TABLE runs DROP COLUMN {name}" for name in _MOVED if name not in _KEPT),
        "ALTER TABLE runs ADD COLUMN shared BOOLEAN NOT NULL DEFAULT 0",
        "ALTER TABLE submodels ADD COLUMN hybrid_id VARCHAR",
        "ALTER TABLE submodels ADD COLUMN device_kind VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE submodels ADD COLUMN placed_at_s FLOAT",
        "ALTER TABLE submodels ADD COLUMN leaving VARCHAR",
        "UPDATE submodels SET hybrid_id = run_id",
        "CREATE INDEX ix_submodels_hybrid_id ON submodels (hybrid_id)",
        "ALTER TABLE attempts ADD COLUMN hybrid_id VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE attempts ADD COLUMN device VARCHAR NOT NULL DEFAULT ''",
        "ALTER TABLE attempts ADD COLUMN device_kind VARCHAR NOT NULL DEFAULT ''",
        "UPDATE attempts SET hybrid_id = run_id, device = (SELECT device FROM runs WHERE runs.id = attempts.run_id)",
        "CREATE INDEX ix_attempts_hybrid_id ON attempts (hybrid_id)",
        *(statement for table, index in (("memory_samples", "memory"), ("memory_strata", "strata")) for statement in (
            f"DROP INDEX {index}_of_run",
            f"ALTER TABLE {table} RENAME COLUMN run_id TO hybrid_id",
        )),
        "CREATE INDEX memory_of_hybrid ON memory_samples (hybrid_id, source, at_s)",
        "CREATE INDEX strata_of_hybrid ON memory_strata (hybrid_id, at_s)",
    ),
    # The cockpit: operators order the line; certificates of separated models; runs and files can be deleted, files know
    # who uses them and where they are from; people have a quota; drafts know the run that they became.
    9: (
        "ALTER TABLE runs ADD COLUMN line_at_s FLOAT NOT NULL DEFAULT 0",
        "UPDATE runs SET line_at_s = created_at_s",
        "ALTER TABLE submodels ADD COLUMN certificate JSON",
        "ALTER TABLE submodels ADD COLUMN certify_at_s FLOAT",
        "ALTER TABLE submodels ADD COLUMN step_s FLOAT",
        "CREATE INDEX ix_submodels_certify_at_s ON submodels (certify_at_s)",
        "ALTER TABLE runs ADD COLUMN removed_at_s FLOAT",
        "ALTER TABLE files ADD COLUMN removed_at_s FLOAT",
        "ALTER TABLE file_owners ADD COLUMN origin JSON NOT NULL DEFAULT '{}'",
        "ALTER TABLE people ADD COLUMN quota_bytes BIGINT",
        "ALTER TABLE drafts ADD COLUMN run_id VARCHAR",
        *(f"""INSERT OR IGNORE INTO file_uses (sha256, run_id, submodel, entry)
              SELECT substr(json_extract(part.value, '$.{entry}'), 8), runs.id, json_extract(part.value, '$.name'),
                     '{entry}'
              FROM runs, json_each(runs.spec, '$.submodels') AS part
              WHERE json_extract(part.value, '$.{entry}') LIKE 'sha256:%'""" for entry in _NAMING),
    ),
    # Forecasts look up how fast the same sub-model was before.
    10: ("CREATE INDEX ix_submodels_memory_key ON submodels (memory_key)",),
    # One run on several devices.
    11: ("ALTER TABLE hybrids ADD COLUMN also JSON NOT NULL DEFAULT '[]'",),
    # Many hosts. Nothing that is asked again and again reads runs that have ended.
    12: (
        "CREATE INDEX IF NOT EXISTS hybrids_claimed ON hybrids (id) WHERE heartbeat_at_s IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS hybrids_going ON hybrids (shared, ended_at_s)",
        "CREATE INDEX IF NOT EXISTS hybrids_by_launch ON hybrids (launched_at_s)",
        "DROP INDEX IF EXISTS ix_runs_state",
        "CREATE INDEX IF NOT EXISTS runs_by_state ON runs (state, ended_at_s)",
        "CREATE INDEX IF NOT EXISTS runs_removed ON runs (id) WHERE removed_at_s IS NOT NULL",
        "CREATE INDEX IF NOT EXISTS runs_listed ON runs "
        "(created_at_s, id, name, submitter, state, mode, launched_at_s, ended_at_s, removed_at_s)",
        "DROP INDEX IF EXISTS ix_submodels_memory_key",
        "CREATE INDEX IF NOT EXISTS submodels_by_key ON submodels (memory_key, ended_at_s)",
        "CREATE INDEX IF NOT EXISTS submodels_by_owner ON submodels (owner, run_id, artifact_bytes, checkpoint_bytes)",
        "CREATE INDEX IF NOT EXISTS submodels_by_state ON submodels (state, ended_at_s)",
        "CREATE INDEX IF NOT EXISTS submodels_exported ON submodels (artifact_at_s, run_id, owner, artifact_bytes)",
        "CREATE INDEX IF NOT EXISTS submodels_saved ON submodels (checkpoint_at_s, run_id, owner, checkpoint_bytes)",
        "CREATE INDEX IF NOT EXISTS commands_waiting ON commands (id) WHERE applied_at_s IS NULL",
        "CREATE INDEX IF NOT EXISTS drafts_unfinished ON drafts (owner) WHERE run_id IS NULL",
        *(f"CREATE INDEX IF NOT EXISTS ix_ledger_{name} ON ledger ({name})" for name in ("person", "action")),
        "CREATE INDEX IF NOT EXISTS ix_requests_at_s ON requests (at_s)",
        "CREATE INDEX IF NOT EXISTS ix_seen_failures_run_id ON seen_failures (run_id)",
    ),
    # Sub-models that do not learn.
    13: ("ALTER TABLE submodels ADD COLUMN not_learning JSON",),
}  # fmt: skip
"""Statements that lead from each version to the next one. From 13 on both kinds of database have to understand them."""
FIRST_ON_A_SERVER: Final = 13
"""Version with which databases on PostgreSQL begin; the steps to it are SQLite's alone."""


def oldest_of(dialect: str) -> int:
    """Oldest version that this program can migrate on SQLite or on PostgreSQL."""
    return min(STEPS) if dialect == "sqlite" else FIRST_ON_A_SERVER


def migrate(connection: Connection, version: int, target: int) -> None:
    """Run the steps from `version` to `target` in order. Raises `KeyError` if a step is missing."""
    for at in range(version, target):
        for statement in STEPS[at]:
            connection.exec_driver_sql(statement)
