"""Data sets on the device: one copy of each, however many sub-models use it."""

from collections.abc import Callable, Iterable

import torch

from unifiednn_core.data.datasets import Dataset, DataSource
from unifiednn_core.data.streamed import Streamed

HOST = torch.device("cpu")


class ResidentData:
    """Data sets by content hash: on the device while a lease is in use, on the host while one exists."""

    def __init__(self, device: torch.device):
        self._device = device
        self.sets: dict[str, DataSource] = {}
        self.leases: set[Lease] = set()

    def hold(self, sha256: str, read: Callable[[], DataSource], name: str | None = None) -> "Lease":
        """Lease a data set, and read it first if this is the only lease; `name` is what its user calls it."""
        if sha256 not in self.sets:
            held = read()
            self.sets[sha256] = held.checksummed() if isinstance(held, Dataset) else held
        lease = Lease(self, sha256, self.sets[sha256], name or sha256)
        self.leases.add(lease)
        return lease

    def peek(self, sha256: str) -> DataSource | None:
        """Return a data set without leasing it; None if no lease exists."""
        return self.sets.get(sha256)

    @property
    def placed_bytes(self) -> int:
        """Bytes of the data sets on the device now; for any thread."""
        placed = [held for held in list(self.sets.values()) if held.device == self._device]
        return sum(held.resident_bytes for held in placed)

    def settle(self, sha256: str) -> None:
        """Move a data set to where its leases need it, and forget it without a lease; called by `Lease`."""
        leases = [lease for lease in self.leases if lease.sha256 == sha256]
        if leases:
            device = self._device if any(lease.in_use for lease in leases) else HOST
            self.sets[sha256] = self.sets[sha256].to(device)
        else:
            self.sets.pop(sha256, None)


class Lease:
    """The right of one sub-model to a data set."""

    def __init__(self, data: ResidentData, sha256: str, held: DataSource, name: str):
        self._data, self.sha256, self.name, self.in_use = data, sha256, name, False
        self.samples, self.names = held.samples, tuple(held.inputs)
        self.streamed = isinstance(held, Streamed)

    def use(self) -> DataSource:
        """Return the data set on the device."""
        if not self.in_use:
            self.in_use = True
            self._data.settle(self.sha256)
        return self._data.sets[self.sha256]

    @property
    def held(self) -> DataSource:
        """The data set where it is now, on the device or on the host."""
        return self._data.sets[self.sha256]

    @property
    def intact(self) -> bool:
        """Whether the data set has the bytes that it was read with. May read all of them: see `Dataset.sha256`."""
        return self._data.sets[self.sha256].intact

    def park(self) -> None:
        """Stop using it for a while, so that the device can free it."""
        self.in_use = False
        self._data.settle(self.sha256)

    def release(self) -> None:
        """End the lease."""
        self._data.leases.discard(self)
        self.park()


class DataUsers:
    """The sub-models that have used each data set since it was read, also those that have ended."""

    def __init__(self) -> None:
        self._users: dict[str, dict[str, str]] = {}
        """By content hash: each sub-model with its name for the data set."""

    def add(self, submodel: str, leases: Iterable[Lease]) -> None:
        """Note that a sub-model uses its data sets."""
        for lease in leases:
            self._users.setdefault(lease.sha256, {})[submodel] = lease.name

    def remove(self, submodel: str) -> None:
        """Forget a sub-model whose data sets were intact when it left."""
        for users in self._users.values():
            users.pop(submodel, None)

    def forget(self, leases: Iterable[Lease]) -> None:
        """Forget data sets that nobody uses any more."""
        for lease in leases:
            self._users.pop(lease.sha256, None)

    def of_damaged(self, leases: Iterable[Lease]) -> dict[str, str]:
        """Users of the data sets that have changed, each with its name for one of them; forgets those data sets."""
        known = {lease.sha256: lease for lease in leases if lease.sha256 in self._users}
        damaged = [sha256 for sha256, lease in known.items() if not lease.intact]
        return {name: data for sha256 in damaged for name, data in self._users.pop(sha256).items()}
