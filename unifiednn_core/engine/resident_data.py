"""Data sets on the device: one copy of each, however many sub-models use it."""

from collections.abc import Callable

import torch

from unifiednn_core.data.datasets import Dataset

HOST = torch.device("cpu")


class ResidentData:
    """Data sets by content hash: on the device while a lease is in use, on the host while one exists."""

    def __init__(self, device: torch.device):
        self._device = device
        self._sets: dict[str, Dataset] = {}
        self._leases: dict[str, list[Lease]] = {}

    def hold(self, sha256: str, read: Callable[[], Dataset]) -> "Lease":
        """Lease a data set, and read it first if this is the only lease."""
        if sha256 not in self._sets:
            self._sets[sha256] = read()
        lease = Lease(self, sha256, self._sets[sha256].samples)
        self._leases.setdefault(sha256, []).append(lease)
        return lease

    def peek(self, sha256: str) -> Dataset | None:
        """Return a data set without leasing it; None if no lease exists."""
        return self._sets.get(sha256)

    @property
    def placed_bytes(self) -> int:
        """Bytes of the data sets on the device now; for any thread."""
        placed = [held for held in list(self._sets.values()) if held.inputs.device == self._device]
        return sum(held.inputs.nbytes + held.targets.nbytes for held in placed)

    def use(self, lease: "Lease") -> Dataset:
        """Return the copy on the device; called by `Lease.use`."""
        if not lease.in_use:
            lease.in_use = True
            self._sets[lease.sha256] = _moved(self._sets[lease.sha256], self._device)
        return self._sets[lease.sha256]

    def give_back(self, lease: "Lease", *, for_good: bool) -> None:
        """Free unused copies and forget data sets without a lease; called by `Lease.park` and `Lease.release`."""
        lease.in_use = False
        leases = self._leases.get(lease.sha256, [])
        if for_good and lease in leases:
            leases.remove(lease)
        if not leases:
            self._leases.pop(lease.sha256, None)
            self._sets.pop(lease.sha256, None)
        elif not any(other.in_use for other in leases):
            self._sets[lease.sha256] = _moved(self._sets[lease.sha256], HOST)


class Lease:
    """The right of one sub-model to a data set."""

    def __init__(self, data: ResidentData, sha256: str, samples: int):
        self._data, self.sha256, self.samples, self.in_use = data, sha256, samples, False

    def use(self) -> Dataset:
        """Return the data set on the device."""
        return self._data.use(self)

    def park(self) -> None:
        """Stop using it for a while, so that the device can free it."""
        self._data.give_back(self, for_good=False)

    def release(self) -> None:
        """End the lease."""
        self._data.give_back(self, for_good=True)


def _moved(dataset: Dataset, device: torch.device) -> Dataset:
    return Dataset(inputs=dataset.inputs.to(device), targets=dataset.targets.to(device))
