"""Migrations of older databases, run in one transaction when the database is opened."""

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from unifiednn_core.spec.lifecycle import State

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
}  # fmt: skip
"""Statements that lead from each version to the next one."""


def migrate(connection: Connection, version: int, target: int) -> None:
    """Run the steps from `version` to `target` in order. Raises `KeyError` if a step is missing."""
    for at in range(version, target):
        for statement in STEPS[at]:
            connection.exec_driver_sql(statement)
