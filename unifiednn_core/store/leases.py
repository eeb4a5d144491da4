"""When the host of a worker counts as dead, and when a worker has to stop by itself before that. Pure.

All moments are of the database's clock, except a worker's own: it counts by its monotonic clock, from before its last
successful heartbeat. So it takes its last step at least `LOST_S - STOPS_S` before another host may declare it lost.
"""

from typing import Final

RENEW_S: Final = 5.0
"""How often an agent renews the lease of its host; workers renew theirs with each heartbeat."""
GAP_S: Final = 15.0
"""Renewals that lie further apart are no unbroken row: the database may have been away for everybody."""
STOPS_S: Final = 20.0
"""A worker that could not renew for so long takes no more steps."""
LOST_S: Final = 30.0
"""What was not renewed for so long is lost."""


def since(since_s: float | None, renewed_at_s: float | None, now_s: float) -> float:
    """Since when a lease that is renewed now has been renewed without a gap."""
    unbroken = since_s is not None and renewed_at_s is not None and 0.0 <= now_s - renewed_at_s <= GAP_S
    return since_s if unbroken and since_s is not None else now_s


def may_judge(since_s: float, renewed_at_s: float, now_s: float) -> bool:
    """Whether an agent may declare others lost: only one that itself could have renewed all the time.

    After an outage of the database everybody's leases are old, and nobody is to be condemned for that.
    """
    return now_s - renewed_at_s <= GAP_S and now_s - since_s >= LOST_S


def is_stale(renewed_at_s: float, now_s: float, after_s: float = LOST_S) -> bool:
    """Whether a lease has run out. One of the future is from before the clock was set back."""
    return abs(now_s - renewed_at_s) > after_s


def is_lost(heartbeat_at_s: float, host_renewed_at_s: float, now_s: float, after_s: float = LOST_S) -> bool:
    """Whether a worker of another host is lost: neither it nor its agent, which would judge it, has been heard of."""
    return is_stale(heartbeat_at_s, now_s, after_s) and is_stale(host_renewed_at_s, now_s, after_s)


def may_step(renewed_s: float, now_s: float) -> bool:
    """Whether a worker may take another step; both by its own monotonic clock."""
    return now_s - renewed_s < STOPS_S
