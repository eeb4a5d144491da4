"""What an admin lets the server delete by itself, and what of it is due. Pure."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unifiednn_core.base.errors import BadInput
from unifiednn_core.spec.findings import finding_of

DAY_S = 86_400.0
GIB = 1024**3
Days = Annotated[float, Field(gt=0, le=3650)]


class Retention(BaseModel):
    """How long ended runs stay. Without a value nothing is deleted for that reason."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    keep_runs_days: Days | None = None
    """Days after its end at which a run is deleted, with models, checkpoints and figures."""
    keep_checkpoints_days: Days | None = None
    """Days after the end of its run at which checkpoints are deleted; models and figures stay."""
    home_limit_gib: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Size of the home folder above which the oldest ended runs lose their checkpoints, then go. No upload exceeds it.
    Files of the library stay: they are people's."""

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever deleted."""
        return self == Retention()

    @property
    def least_age_s(self) -> float:
        """Nothing younger goes because of its age."""
        days = [days for days in (self.keep_runs_days, self.keep_checkpoints_days) if days is not None]
        return min(days, default=inf) * DAY_S

    @property
    def home_limit_bytes(self) -> int | None:
        """The limit of the home folder in bytes."""
        return None if self.home_limit_gib is None else int(self.home_limit_gib * GIB)


class Kept(NamedTuple):
    """An ended run and what it takes on disk."""

    run_id: str
    name: str
    ended_at_s: float
    checkpoint_bytes: int
    size_bytes: int
    """All files, checkpoints included."""


class Due(NamedTuple):
    """Something that the next pass deletes."""

    run: Kept
    what: Literal["run", "checkpoints"]
    why: str

    @property
    def size_bytes(self) -> int:
        """Bytes that this frees."""
        return self.run.size_bytes if self.what == "run" else self.run.checkpoint_bytes


def retention_of(document: Mapping[str, Any]) -> Retention:
    """Settings from a document; raises `BadInput`, one finding per mistake."""
    try:
        return Retention.model_validate(document)
    except ValidationError as error:
        raise BadInput([finding_of(detail, document) for detail in error.errors()]) from None


def due(retention: Retention, runs: Iterable[Kept], home_bytes: int, now_s: float) -> tuple[Due, ...]:
    """What is to be deleted now, the oldest first.

    `runs` are those that have ended, `home_bytes` is the size of the home folder. By age first; what the limit asks for
    beyond that takes checkpoints of the oldest runs, then the oldest runs, none younger than a day. It takes nothing if
    all that could not reach the limit: `shortfall` says so.
    """
    found: dict[str, Due] = {}
    ordered = sorted(runs, key=lambda run: (run.ended_at_s, run.run_id))
    for run in ordered:
        age_days = (now_s - run.ended_at_s) / DAY_S
        if _older(age_days, retention.keep_runs_days):
            found[run.run_id] = Due(run, "run", f"It ended more than {retention.keep_runs_days:g} days ago.")
        elif _older(age_days, retention.keep_checkpoints_days) and run.checkpoint_bytes:
            why = f"Its run ended more than {retention.keep_checkpoints_days:g} days ago."
            found[run.run_id] = Due(run, "checkpoints", why)
    limit_bytes = retention.home_limit_bytes
    if limit_bytes is not None:
        why = f"The home folder exceeds {retention.home_limit_gib:g} GiB."
        over_bytes = home_bytes - limit_bytes - sum(one.size_bytes for one in found.values())
        mature = [run for run in ordered if now_s - run.ended_at_s >= DAY_S]
        most = {run.run_id: run.checkpoint_bytes for run in ordered} | {run.run_id: run.size_bytes for run in mature}
        reach_bytes = sum(most.values()) - sum(min(one.size_bytes, most[key]) for key, one in found.items())
        if reach_bytes < over_bytes:
            over_bytes = 0
        gains = [*(Due(run, "checkpoints", why) for run in ordered), *(Due(run, "run", why) for run in mature)]
        for gain in gains:
            before = found.get(gain.run.run_id)
            more_bytes = gain.size_bytes - (before.size_bytes if before else 0)
            if over_bytes > 0 and more_bytes > 0:
                found[gain.run.run_id], over_bytes = gain, over_bytes - more_bytes
    return tuple(found[run.run_id] for run in ordered if run.run_id in found)


def shortfall(retention: Retention, found: Iterable[Due], home_bytes: int) -> str:
    """Why the home folder stays above its limit after these deletions, as sentences; empty if it does not."""
    limit_bytes = retention.home_limit_bytes
    if limit_bytes is None or home_bytes - sum(one.size_bytes for one in found) <= limit_bytes:
        return ""
    return (
        f"The home folder stays above {retention.home_limit_gib:g} GiB: deleting every run that may go would not reach "
        "it, so no run goes for that. Delete files of the library, or raise the limit."
    )


def _older(age_days: float, limit_days: float | None) -> bool:
    return limit_days is not None and age_days > limit_days
