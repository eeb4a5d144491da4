"""The labels and ids of all samples: on a GPU one out of range would end the whole process, not the sub-model alone."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import first_line
from unifiednn_core.data.batch import Batch, Transform
from unifiednn_core.data.datasets import Dataset, in_blocks
from unifiednn_core.data.transforms.images import RandomCrop
from unifiednn_core.data.transforms.tokens import IGNORED, TokenMasking, Trim
from unifiednn_core.engine.step import TARGETS, Step
from unifiednn_core.preflight.trial import TORCH_ERRORS, Trial

MOST_COLUMNS = 32
"""Of an input whose columns may each have an embedding of their own, as those of tables."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Every number of a data set, and every one that transforms may put in, for one network."""

    step: Step
    data: Dataset
    training: bool

    def labels(self, like: Tensor) -> Iterator[Tensor]:
        """All integer targets in blocks, in the type of `like`, those of a batch; a batch may leave some out."""
        added, put_in = list[int](), list[int]()
        for one in self._transforms():
            if isinstance(one, RandomCrop) and one.masks and one.padding:
                added.append(one.mask_fill)
            if isinstance(one, TokenMasking) and one.predict:
                added += [IGNORED, *(number for number in put_in if number not in one.special)]
            if isinstance(one, TokenMasking):
                put_in += _put_in(one)
        if added:
            yield like.new_tensor(added)
        if self.step.targets == "stored" and self.data.targets is None and self._predicting() is None:
            yield like
        else:
            yield from self._blocks(TARGETS)

    @torch.no_grad()
    def try_inputs(self, trial: Trial, module: nn.Module, entry: str) -> None:
        """Try the samples with the least and the greatest number of each input that is integer, targets among them.

        They are ids of an embedding, or labels of a loss inside the network. Raises `BadInput` on `entry`.
        """
        size = min(trial.batch_size, self.data.samples)
        like = self._calm(torch.arange(size))
        for name, one in zip(self.step.inputs, self.step.given(like), strict=True):
            if one is None or one.is_floating_point():
                continue
            (least, most), samples = self._bounds(name, MOST_COLUMNS if not trial.slow else 0)
            values: list[int | None] = [None] * len(samples)
            values += dict.fromkeys(self._other_ids(name, least, most))
            bounds = [least, most, *(value for value in values if value is not None)]
            values += [None] * (-len(values) % size)  # some networks take one number of samples only
            places = torch.tensor(samples + samples[:1] * (len(values) - len(samples)))
            try:
                for start in range(0, len(places), size):
                    batch = self._calm(places[start : start + size])
                    for row, value in enumerate(values[start : start + size]):
                        if value is not None:
                            batch.inputs[name][row] = value
                    self.step.forward(module.eval(), batch)
            except TORCH_ERRORS as error:
                kind, remedy = "input", "Number the inputs from 0, and let the network have an entry for each."
                if name == TARGETS:
                    kind, remedy = "target", "Number the targets from 0, and let the network have an output for each."
                message = f"The network does not take all numbers from {min(bounds)} to {max(bounds)} as {kind}"
                message += f": {first_line(error)}."
                raise trial.refusal(f"{kind.capitalize()}s out of range", entry, message, remedy) from None

    def _calm(self, samples: Tensor) -> Batch:
        """Samples as the network gets them, without what is drawn."""
        kept = tuple(one for one in self.step.transforms if not one.draws)
        batch = replace(self.step, transforms=kept).prepare(self.data.batch(samples), training=False)
        predicting = self._predicting()
        if predicting is None:
            return batch
        return replace(batch, targets=_labels(predicting, batch.inputs[self._input(predicting)]))

    def _transforms(self) -> Iterator[Transform]:
        return (one for one in self.step.transforms if self.training or not one.training_only)

    def _predicting(self) -> TokenMasking | None:
        """The transform that makes the targets."""
        found = (one for one in self.step.transforms if isinstance(one, TokenMasking) and one.predict)
        return next(found, None)

    def _input(self, one: TokenMasking | Trim) -> str:
        return one.input or next(name for name in self.step.inputs if name != TARGETS)

    def _blocks(self, name: str) -> Iterator[Tensor]:
        """All that the network gets as this input, or as targets, block by block, before the transforms."""
        first, predicting = self.step.first, self._predicting()
        if name == TARGETS and predicting is not None:
            yield from (_labels(predicting, block) for block in self._blocks(self._input(predicting)))
        elif name == TARGETS and self.step.targets != "stored":
            made = (self.step.targets_of({first: block}, None) for block in in_blocks(self.data, first))
            yield from (one for one in made if one is not None)
        else:
            shifted = self.step.targets == "next" and name != TARGETS
            length = self.data.inputs[first].shape[1] if shifted else 0
            for block in in_blocks(self.data, name):
                yield block[:, :-1] if shifted and block.dim() > 1 and block.shape[1] == length else block

    def _bounds(self, name: str, most_columns: int) -> tuple[tuple[int, int], list[int]]:
        """Least and greatest number, and the samples that have them, of a few columns those of each.

        Of targets also the sample with the least besides `IGNORED`.
        """
        least, most, counted = list[Tensor](), list[Tensor](), list[Tensor]()
        of_columns = list[Tensor]()
        for block in self._blocks(name):
            rows = block.reshape(len(block), -1)
            least.append(rows.amin(1))
            most.append(rows.amax(1))
            if rows.shape[1] <= most_columns:
                start = sum(map(len, least[:-1]))
                of_columns.append(
                    torch.stack(
                        [rows.amin(0).long(), rows.argmin(0) + start, -rows.amax(0).long(), rows.argmax(0) + start]
                    )
                )
            if name == TARGETS:
                counted.append(rows.masked_fill(rows == IGNORED, torch.iinfo(rows.dtype).max).amin(1))
        lows, highs = torch.cat(least), torch.cat(most)
        samples = [int(lows.argmin()), int(highs.argmax()), *(int(torch.cat(counted).argmin()) for _ in counted[:1])]
        if of_columns:
            found = torch.stack(of_columns)  # [blocks, 4, columns]
            for value, place in ((0, 1), (2, 3)):
                samples += found[:, place].gather(0, found[:, value].argmin(0, keepdim=True)).flatten().tolist()
        return (int(lows.min()), int(highs.max())), list(dict.fromkeys(samples))

    def _other_ids(self, name: str, least: int, most: int) -> Iterator[int]:
        """Ids that transforms put in, and padding that they may have cut from the samples at the ends of the range."""
        for one in self._transforms():
            if isinstance(one, TokenMasking) and self._input(one) == name:
                yield from _put_in(one)
            if isinstance(one, Trim) and self._input(one) == name and one.pad in (least, most):
                yield one.pad


def _put_in(one: TokenMasking) -> tuple[int, ...]:
    drawn = (max(one.vocabulary, 1) - 1,) if one.random else ()
    return (*((one.mask,) if one.masked else ()), *drawn) if one.p else ()


def _labels(one: TokenMasking, ids: Tensor) -> Tensor:
    """Ids that it may choose to be predicted."""
    kept = ids.long()
    return kept.masked_fill(torch.isin(kept, kept.new_tensor(one.special)), IGNORED) if one.special else kept
