"""Data sets on the device: each distinct one is held once, however many sub-models learn from it."""

from collections.abc import Callable

import torch

from unifiednn_core.intake.datasets import Dataset


class ResidentData:
    """Data sets by content hash, counted by their users; the last one to let go frees the memory."""

    def __init__(self, device: torch.device):
        self._device = device
        self._held: dict[str, Dataset] = {}
        self._users: dict[str, int] = {}

    def hold(self, sha256: str, read: Callable[[], Dataset]) -> Dataset:
        """Return the resident copy, reading it where nobody has yet."""
        if sha256 not in self._held:
            dataset = read()
            self._held[sha256] = Dataset(
                inputs=dataset.inputs.to(self._device), targets=dataset.targets.to(self._device)
            )
        self._users[sha256] = self._users.get(sha256, 0) + 1
        return self._held[sha256]

    def release(self, sha256: str) -> None:
        """Let go of a data set."""
        self._users[sha256] -= 1
        if not self._users[sha256]:
            del self._users[sha256], self._held[sha256]
