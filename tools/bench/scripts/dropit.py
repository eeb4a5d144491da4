"""DropIT without a hybrid: plain PyTorch whose backward gets a tenth of what forward saves, packed once."""

from typing import Literal
from unittest.mock import patch

from torch import Tensor

from unifiednn_core.compare import vanilla
from unifiednn_core.compare.vanilla import Loaded
from unifiednn_core.spec.techniques import DropIT
from unifiednn_core.techniques.build import built

KEEP = 0.1
"""Share of the elements, as in the hybrids of figure 14."""


def train(form: Literal["deduplicated", "published"]) -> None:
    """Train the job named on the command line with one form of DropIT."""
    own = built([DropIT(keep=KEEP, form=form)])

    class DropITScript(vanilla.PlainScript):
        def _learn(self, loaded: Loaded, share: float | None = None) -> tuple[Tensor, Tensor | None, int]:
            batch = self.meaning.prepare(self._batch(loaded))
            with own.part(self.module, batch.tensors):
                outputs = self._forward(self.module, batch)
                loss = self.meaning.loss(self.criterion, outputs, batch)
                loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach(), *self._answers([one.detach() for one in outputs], batch.targets, self.ignored)

    with patch.object(vanilla, "PlainScript", DropITScript):
        vanilla.main()


if __name__ == "__main__":
    train("deduplicated")
