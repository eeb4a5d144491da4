"""One sub-model in training: everything that the exactness recipe says belongs to it alone.

The recipe (anyone can write the plain loop that gives the same bits): RNG state of `torch.manual_seed(seed)`; data
generator `torch.Generator().manual_seed(seed)`; each epoch `torch.randperm(n, generator=...)` on the CPU; batches are
consecutive slices of it, the last partial one kept unless `drop_last`; a step is `zero_grad(set_to_none=True)`,
forward, criterion, backward, clipping (`clip_grad_norm_` or `clip_grad_value_`), `optimizer.step()`; the LR scheduler
steps once per epoch unless the spec says per step; evaluation runs after each epoch in `eval()` without grad, in file
order, and before a scheduler that goes by its loss. With `accumulation_steps` = a > 1 a step takes the next a batches
of the epoch, or those that are left; with `batch_split` = k > 1 each batch goes through as `batch.chunk(k)`. Each part
goes forward and backward by itself, its loss times its share of the samples of the step. With `warm_up` the i-th step
is taken with min(1, i / steps) times the learning rate that the LR scheduler has set.

All that people and policies ask for happens between two steps, when there are no gradients: so none are kept, neither
in a checkpoint nor in the memory of a sub-model that waits.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from unifiednn_core.checkpoints.checkpoint import Checkpoint
from unifiednn_core.errors import Diverged
from unifiednn_core.hybrid.separator import EpochFigures
from unifiednn_core.hybrid.unifier import Part
from unifiednn_core.intake.datasets import Dataset, to_model_input
from unifiednn_core.memory.strata import Footprint
from unifiednn_core.spec import SubModelSpec
from unifiednn_core.training import optimizer_state, state, stopping
from unifiednn_core.training.data import HOST, Lease
from unifiednn_core.training.events import Stepped
from unifiednn_core.training.footprint import footprints_of
from unifiednn_core.training.progress import Progress
from unifiednn_core.training.recipe import recipe, score_of
from unifiednn_core.training.rng import RngState
from unifiednn_core.training.scoring import Scorer
from unifiednn_core.training.update import share_of_rate, update
from unifiednn_core.training_parts import step_lr_scheduler


class SubModel:
    """Module, optimizer, criterion, LR scheduler, RNG state, data order and cursor of one submitted network."""

    def __init__(
        self,
        part: Part,
        spec: SubModelSpec,
        *,
        seed: int,
        train: Lease,
        test: Lease | None,
        device: torch.device,
    ):
        self.part, self.spec = part, spec
        self.epochs = part.hyperparameters.epochs
        self.steps_per_epoch = part.hyperparameters.steps_per_epoch(train.samples)
        self._train, self._test, self._device = train, test, device
        self._seed, self._hyperparameters = seed, part.hyperparameters
        self._progress, self._scorer = Progress(torch.Generator().manual_seed(seed)), Scorer(part.hyperparameters)
        self._rng = RngState.of_seed(seed, device)
        self._placed = self._in_world = self._measured = self._stopped = False
        self._on_host = device == HOST
        self._trained = [parameter for group in part.optimizer.param_groups for parameter in group["params"]]
        self.footprint: Footprint
        """What it keeps in memory now; a new value at each change, for any thread."""
        self._measure()

    @property
    def name(self) -> str:
        """Name in the run."""
        return self.part.name

    @property
    def epochs_done(self) -> int:
        """Whole epochs done."""
        return self._progress.epochs_done

    @property
    def epochs_begun(self) -> int:
        """Epochs done, and the one that it is in."""
        return self.epochs_done + (self._progress.order is not None)

    @property
    def steps_done(self) -> int:
        """Steps done."""
        return self._progress.steps_done

    @property
    def steps_total(self) -> int:
        """Steps of the whole training, where nothing stops it early."""
        return self.steps_per_epoch * self.epochs

    @property
    def finished(self) -> bool:
        """Whether all epochs are trained, or enough of them as early stopping goes."""
        return self._stopped or self.epochs_done >= self.epochs

    @property
    def figures(self) -> tuple[EpochFigures, ...]:
        """Figures of the finished epochs."""
        return tuple(self._progress.figures)

    @contextmanager
    def world(self) -> Iterator[None]:
        """Swap in this sub-model's RNG and device state; on the way out keep the RNG and drop the gradients."""
        if not self._placed:  # a sub-model that has not started, or is paused, holds no memory on the device
            self._move(self._device)
            self._placed = True
            self._measure()
        self._rng.restore(self._device)
        self._in_world, self.footprint = True, self._working
        try:
            yield
        finally:
            self._in_world = False
            self._rng = RngState.current(self._device)
            self._drop_gradients()
            self.footprint = self._idle

    def step(self) -> Stepped:
        """Train on the next batches that make a step, inside `world`.

        Raises `Diverged` where the loss is no number: at once on a CPU; elsewhere, where reading a loss makes the host
        wait, at the end of the epoch or at the next checkpoint.
        """
        data, hyperparameters, ignored = self._train.use(), self._hyperparameters, self._scorer.ignored_in(self._train)
        batches = self._progress.next_batches(self._train.samples, hyperparameters, self._device)
        samples = sum(len(batch) for batch in batches)
        parts = [part for batch in batches for part in batch.chunk(hyperparameters.batch_split)]
        self._drop_gradients()
        if len(parts) == 1:
            loss, correct, labels = self._learn(data, parts[0], None, ignored)
        else:
            losses, rights, labels = [], [], 0
            for part in parts:
                loss, correct, count = self._learn(data, part, len(part) / samples, ignored)
                losses.append(loss)
                rights += [] if correct is None else [correct]
                labels += count
            loss, correct = torch.stack(losses).sum(), torch.stack(rights).sum() if rights else None
        if self._on_host and not math.isfinite(value := loss.item()):
            raise Diverged(self.name, self.steps_done + 1, value)
        update(self.part.optimizer, self._trained, hyperparameters, self.steps_done + 1)
        if not self._measured:  # the first step makes the state of the optimizer
            self._measure()
            self._measured = True
        step_lr_scheduler(self.part.lr_scheduler, hyperparameters, after="step")
        self._progress.steps_done += 1
        self._count(loss, samples if ignored is None else labels, correct, labels)
        return Stepped(self.name, self.steps_done, loss, correct, labels)

    @property
    def at_epoch_end(self) -> bool:
        """Whether the step just done was the last of its epoch."""
        return self._progress.order is not None and self.steps_done % self.steps_per_epoch == 0

    def end_epoch(self, beat: Callable[[], object] = lambda: None) -> EpochFigures:
        """Evaluate, step the LR scheduler, and close the epoch, inside `world`; `beat` is called after each test batch.

        Raises `Diverged` where a loss of the epoch was no number.
        """
        progress, hyperparameters = self._progress, self._hyperparameters
        rate = float(self.part.optimizer.param_groups[0]["lr"])
        self._require_finite()
        self._measure()
        train_loss, train_accuracy = progress.tally.means()
        test_loss, test_accuracy = self._evaluate(beat) if self._test is not None else (None, None)
        figures = EpochFigures(
            epoch=progress.epochs_done + 1,
            step=progress.steps_done,
            learning_rate=rate * share_of_rate(hyperparameters, progress.steps_done),
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss,
            test_accuracy=test_accuracy,
        )
        judged = train_loss if test_loss is None else test_loss
        step_lr_scheduler(self.part.lr_scheduler, hyperparameters, after="epoch", loss=judged)
        progress.close_epoch(figures)
        self._stopped = stopping.stops_early(hyperparameters.early_stopping, self.figures)
        return figures

    # -- kept, put back, put aside

    def capture(self) -> Checkpoint:
        """Copy the whole state to the host, between two steps; raises `Diverged` where a loss was no number."""
        self._require_finite()
        rng = RngState.current(self._device) if self._in_world else self._rng
        return Checkpoint(
            submodel=self.name,
            step=self.steps_done,
            epoch=self.epochs_done,
            score=score_of(self.figures),
            recipe=recipe(self._hyperparameters, self._seed, self._train.samples, self._device),
            state=state.taken(self.part, rng, self._progress),
        )

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on where `checkpoint` was taken; raises `BadCheckpoint` where it does not fit.

        Another learning rate than the checkpoint's scales everything that it is computed from.
        """
        self._progress = state.put_back(self.part, checkpoint)
        self._stopped = stopping.stops_early(self._hyperparameters.early_stopping, self.figures)
        self._measure()
        rng, cuda = checkpoint.state["rng"]["cpu"], checkpoint.state["rng"]["cuda"]
        if self._device.type == "cuda" and cuda is None:  # taken on a CPU; there is no such stream to go on with
            cuda = RngState.of_seed(self._seed, self._device).cuda
        self._rng = RngState(rng, cuda if self._device.type == "cuda" else None)
        factor = self._hyperparameters.learning_rate / checkpoint.recipe["learning_rate"]
        if factor != 1.0:
            optimizer_state.scale_learning_rates(self.part.optimizer, self.part.lr_scheduler, factor)

    def park(self) -> None:
        """Give the device's memory back until the next `world`."""
        if self._placed:
            self._move(HOST)
            self._placed = False
            self._measure()
            self._train.park()
            if self._test is not None:
                self._test.park()

    def release(self, *, empty: bool = False) -> None:
        """Let go of the data sets, for good; with `empty` also of weights and optimizer state, whoever holds them.

        Networks and optimizers hold themselves in circles (an fx graph its module, an LR scheduler the step of its
        optimizer), so their memory would wait for the garbage collector.
        """
        if empty:
            for tensor in (*self.part.module.parameters(), *self.part.module.buffers()):
                tensor.data = tensor.data.new_empty(0)
            self.part.optimizer.state.clear()
        self._train.release()
        if self._test is not None:
            self._test.release()

    # -- inside

    def _measure(self) -> None:
        """Tell anew what lies where; what is held does not change from step to step."""
        self._idle, self._working = footprints_of(self.part, placed=self._placed)
        self.footprint = self._working if self._in_world else self._idle

    def _drop_gradients(self) -> None:
        """What `zero_grad(set_to_none=True)` of the optimizer does, without its entry in a profile (5 us)."""
        for parameter in self._trained:
            parameter.grad = None

    def _move(self, device: torch.device) -> None:
        self.part.module.to(device).train()
        self.part.criterion.to(device)
        optimizer_state.follow_parameters(self.part.optimizer)
        self._progress.move(device)

    def _learn(
        self, data: Dataset, batch: Tensor, share: float | None, ignored: int | None
    ) -> tuple[Tensor, Tensor | None, int]:
        """Forward and backward; loss (times `share`), right answers and labels of `batch` (indices, int64)."""
        inputs = self._scaled(data.inputs.index_select(0, batch))
        targets = data.targets.index_select(0, batch)
        outputs = self.part.module(inputs)
        loss = self.part.criterion(outputs, targets)
        loss = loss if share is None else loss * share
        loss.backward()
        return loss.detach(), *self._scorer.answers(outputs.detach(), targets, ignored)

    @torch.no_grad()
    def _evaluate(self, beat: Callable[[], object]) -> tuple[float | None, float | None]:
        """Mean loss and accuracy over the test set."""
        if self._test is None:
            return None, None
        test, ignored = self._test.use(), self._scorer.ignored_in(self._test)
        module, size = self.part.module.eval(), self._hyperparameters.batch_size
        for start in range(0, len(test.targets), size):
            inputs = self._scaled(test.inputs[start : start + size])
            targets = test.targets[start : start + size]
            outputs = module(inputs)
            correct, labels = self._scorer.answers(outputs, targets, ignored)
            loss = self.part.criterion(outputs, targets)
            self._count(loss, len(targets) if ignored is None else labels, correct, labels)
            beat()
        module.train()
        return self._progress.tally.means()

    def _count(self, loss: Tensor, weight: int, correct: Tensor | None, labels: int) -> None:
        """Add one batch to the sums; on the host as plain numbers, which the same arithmetic adds faster."""
        if not self._on_host:
            self._progress.tally.add(loss, weight, correct, labels)
            return
        self._progress.tally.add(loss.item(), weight, None if correct is None else int(correct.item()), labels)

    def _require_finite(self) -> None:
        if not self._progress.tally.is_finite():
            raise Diverged(self.name, self.steps_done, float("nan"))

    def _scaled(self, inputs: Tensor) -> Tensor:
        return to_model_input(inputs, self.spec.scale, self.spec.mean, self.spec.std)
