"""The steps of several sub-models as one: one after the other, or as branches of one CUDA graph.

Each sub-model runs the operators that it runs alone, so the bits are those of its own steps. In a recording each goes
on one of several streams, and the device overlaps them: small networks leave most of a GPU idle.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine.learning import EagerLearner, Learned

MOST_STREAMS = 16
"""Each stream keeps a set of activations and a workspace of cuBLAS in the memory of the recording."""


class Branches:
    """Forward and backward of several sub-models with one training set."""

    def __init__(self, learners: Sequence[EagerLearner], device: torch.device):
        """Take the learner of each sub-model."""
        self._learners, self._device = list(learners), device
        self.module: nn.Module = nn.ModuleList([learner.module for learner in learners])
        self.trained = [parameter for learner in learners for parameter in learner.trained]
        self._streams: list[torch.cuda.Stream] = []

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Learn from one batch that holds those of all sub-models, equally long, one after another.

        Returns losses and correct predictions as tensors with one entry for each.
        """
        [together] = batches
        work = list(zip(self._learners, together.chunk(len(self._learners)), strict=True))
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            learned = self._on_streams(work)
        else:
            learned = [learner([batch]) for learner, batch in work]
        rights = [one.correct for one in learned if one.correct is not None]
        return Learned(torch.stack([one.loss for one in learned]), torch.stack(rights) if rights else None)

    def data(self) -> DataSource:
        """Return the training set on the device."""
        return self._learners[0].data()

    def drop_gradients(self) -> None:
        """Leave no gradients."""
        for learner in self._learners:
            learner.drop_gradients()

    def _on_streams(self, work: Sequence[tuple[EagerLearner, Tensor]]) -> list[Learned]:
        """Fork from the current stream, and join it again.

        Memory that one stream has freed is not used by another one within a recording.
        """
        here = torch.cuda.current_stream(self._device)
        while len(self._streams) < min(MOST_STREAMS, len(work)):
            self._streams.append(torch.cuda.Stream(self._device))  # type: ignore[no-untyped-call]
        for stream in self._streams:
            stream.wait_stream(here)
        learned = []
        for place, (learner, batch) in enumerate(work):
            with torch.cuda.stream(self._streams[place % len(self._streams)]):
                learned.append(learner([batch]))
        for stream in self._streams:
            here.wait_stream(stream)
        return learned
