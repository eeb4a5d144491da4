"""What this machine does to keep people and networks apart, and how to switch on what is missing."""

import os
from dataclasses import dataclass

from unifiednn_core.base.paths import Home
from unifiednn_core.machine import peers
from unifiednn_core.runtime import confinement

USERS_VARIABLE = "UNIFIEDNN_LOCAL_USERS"


@dataclass(frozen=True, slots=True)
class Protection:
    """One protection of this machine."""

    name: str
    holds: bool
    text: str
    """What it does; if it does not hold, what is open."""
    remedy: str = ""


def all_users_may() -> bool:
    """Whether `UNIFIEDNN_LOCAL_USERS=all` opens a dashboard without sign-in to every user of this machine."""
    return os.environ.get(USERS_VARIABLE, "").strip().lower() == "all"


def protections_of(home: Home) -> tuple[Protection, ...]:
    """The protections, in a fixed order."""
    return _home(home), _dashboard(), _workers(home)


def _home(home: Home) -> Protection:
    if home.is_private:
        return Protection("home", True, f"No other user of this machine, except root, can read {home.root}.")
    remedy = "Give it to the user who runs UnifiedNN, with mode 0700 on a file system that keeps modes."
    return Protection("home", False, f"Other users of this machine can enter {home.root}.", remedy)


def _dashboard() -> Protection:
    opened = "Without sign-in, every user of this machine can use the dashboard"
    if all_users_may():
        return Protection("dashboard", False, f"{opened} ({USERS_VARIABLE}=all).", f"Unset {USERS_VARIABLE}.")
    if not peers.can_tell():
        text = f"{opened}: the system does not tell whose connections are whose."
        return Protection("dashboard", False, text, "Configure sign-in, or keep others off this machine.")
    text = "Without sign-in, the dashboard answers only the user who runs it, and root."
    return Protection("dashboard", True, text)


def _workers(home: Home) -> Protection:
    reason, _, remedy = confinement.trial(home).partition(". ")
    if reason:
        text = f"Workers can use the network and read every file of their user: {reason.rstrip('.')}."
        return Protection("workers", False, text, remedy or "docs/SANDBOX.md lists what it needs.")
    network = "the network, because the database is on it" if confinement.has_network(home) else "no network"
    files = "no files but stored ones, their run's and the database"
    return Protection("workers", True, f"Workers run in bubblewrap: {network}, no privileges, {files}.")
