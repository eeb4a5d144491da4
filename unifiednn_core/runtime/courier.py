"""How a worker on another machine gets its files from the server, and gives it those that it makes."""

from collections.abc import Sequence
from typing import Protocol


class Courier(Protocol):
    """Moves files of one worker's sub-models, which are named by their keys. Safe in any thread."""

    def bring(self, key: str) -> None:
        """Wait until this machine has what a sub-model needs.

        Raises `BadInput` if a file is lost, `NotFound` if the sub-model has left the hybrid, and `OSError`.
        """

    def keep(self, key: str, names: Sequence[str]) -> None:
        """Wait until files of a sub-model, by their places in the folder of its run, are whole on the server.

        Checkpoints are all that it has then; without names it has none. Raises `OSError`.
        """
