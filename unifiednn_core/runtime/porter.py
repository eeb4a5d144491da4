"""A worker's side of files that several hosts share: it asks the carrier of its host, and waits."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from unifiednn_core.base.errors import BadInput, BlobsUnreachable, NotFound
from unifiednn_core.base.paths import Home
from unifiednn_core.runtime import spool
from unifiednn_core.runtime.spool import Question
from unifiednn_core.store import Store
from unifiednn_core.store.depot import Depot
from unifiednn_core.store.hybrids import address

BRING_S = 300.0
"""How long a worker that starts tries to reach the store of files. A transfer that goes on may take any time."""
AGAIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Porter:
    """Has files kept and brought for the sub-models of one worker. One instance per worker, safe in any thread."""

    depot: Depot
    hybrid_id: str
    coming: dict[tuple[str, int], Question] = field(default_factory=dict)
    """What was asked for each sub-model that is to join, by key and attempt."""

    @classmethod
    def of(cls, home: Home, store: Store, hybrid_id: str) -> "Porter | None":
        """The porter of a new worker; None on one machine, where all files stay in the home. Raises `OSError`."""
        depot = store.depot(home)
        if not depot.is_shared:
            return None
        spool.empty(home.spool(hybrid_id))
        return cls(depot, hybrid_id)

    def keep(self, key: str, names: Sequence[str]) -> dict[str, str]:
        """Have files of a sub-model kept, by their places in the folder of its run; returns the key of each.

        Raises `BlobsUnreachable`, and `NotFound` if the sub-model has left the hybrid.
        """
        answer = self._ask("keep", key, names=list(names)).wait()
        return dict(_checked(answer)["keys"])

    def bring(self, key: str) -> None:
        """Wait until this host has what a sub-model needs.

        Raises `BadInput` if a file is lost, `NotFound` if the sub-model has left the hybrid, `BlobsUnreachable`.
        """
        end_s = None
        while "again" in (answer := self._ask("bring", key).wait()):
            end_s = end_s or time.monotonic() + BRING_S
            if time.monotonic() > end_s:
                break
            time.sleep(AGAIN_S)
        _checked(answer)

    def has_brought(self, key: str, attempt: int) -> bool:
        """Whether this host has what a sub-model needs after this attempt; False while it comes. Raises as `bring`.

        An answer to an earlier attempt does not count: it may have trained elsewhere since.
        """
        asked = key, attempt
        question = self.coming.get(asked) or self.coming.setdefault(asked, self._ask("bring", key))
        try:
            answer = question.answer()
        except BlobsUnreachable:
            self.coming.pop(asked)
            raise
        if answer is None:
            return False
        self.coming.pop(asked)
        _checked(answer)
        return True

    def begun(self, key: str, attempt: int) -> None:
        """Note that an attempt begins on this host."""
        self.depot.begun(*address(self.hybrid_id, key), attempt)

    def _ask(self, what: str, key: str, **more: object) -> Question:
        run_id, name = address(self.hybrid_id, key)
        return Question(self.depot.home.spool(self.hybrid_id), {"do": what, "run": run_id, "submodel": name, **more})


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "again" in answer:
        raise BlobsUnreachable(str(answer["again"]))
    if "gone" in answer:
        raise NotFound(str(answer["gone"]))
    if "failed" in answer:
        title, place, message, remedy = map(str, answer["failed"])
        raise BadInput.of(title, place, message, remedy)
    return answer
