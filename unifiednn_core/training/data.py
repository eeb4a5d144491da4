"""Data sets on the device: each distinct one is held once, however many sub-models learn from it."""

from collections.abc import Callable

import torch

from unifiednn_core.intake.datasets import Dataset

HOST = torch.device("cpu")


class ResidentData:
    """Data sets by content hash. One lies on the device while somebody uses it, on the host while somebody holds it."""

    def __init__(self, device: torch.device):
        self._device = device
        self._sets: dict[str, Dataset] = {}
        self._leases: dict[str, list[Lease]] = {}

    def hold(self, sha256: str, read: Callable[[], Dataset]) -> "Lease":
        """Hold a data set, reading it where nobody has yet."""
        if sha256 not in self._sets:
            self._sets[sha256] = read()
        lease = Lease(self, sha256, self._sets[sha256].samples)
        self._leases.setdefault(sha256, []).append(lease)
        return lease

    def peek(self, sha256: str) -> Dataset | None:
        """Data set that somebody holds; None where nobody does."""
        return self._sets.get(sha256)

    @property
    def placed_bytes(self) -> int:
        """Bytes of the data sets that lie on the device now. To be asked from any thread."""
        placed = [held for held in list(self._sets.values()) if held.inputs.device == self._device]
        return sum(held.inputs.nbytes + held.targets.nbytes for held in placed)

    def use(self, lease: "Lease") -> Dataset:
        """Return the one copy on the device; `Lease.use` is the way here."""
        if not lease.in_use:
            lease.in_use = True
            self._sets[lease.sha256] = _moved(self._sets[lease.sha256], self._device)
        return self._sets[lease.sha256]

    def give_back(self, lease: "Lease", *, for_good: bool) -> None:
        """Free what nobody uses, and forget what nobody holds; `Lease.park` and `Lease.release` are the ways here."""
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
    """One sub-model's hold on a data set."""

    def __init__(self, data: ResidentData, sha256: str, samples: int):
        self._data, self.sha256, self.samples, self.in_use = data, sha256, samples, False

    def use(self) -> Dataset:
        """Return the data set on the device."""
        return self._data.use(self)

    def park(self) -> None:
        """Let go of the device for a while."""
        self._data.give_back(self, for_good=False)

    def release(self) -> None:
        """Let go for good."""
        self._data.give_back(self, for_good=True)


def _moved(dataset: Dataset, device: torch.device) -> Dataset:
    return Dataset(inputs=dataset.inputs.to(device), targets=dataset.targets.to(device))
