"""One sub-model in training: everything that belongs to it alone by the exactness recipe.

The recipe, from which anyone can write the plain loop that gives the same bits: RNG state of
`torch.manual_seed(seed)`; data generator `torch.Generator().manual_seed(seed)`; each epoch
`torch.randperm(n, generator=...)` on the CPU; batches are consecutive slices of it, the last partial one kept unless
`drop_last`; a step is `zero_grad(set_to_none=True)`, forward, criterion, backward, clipping (`clip_grad_norm_` or
`clip_grad_value_`), `optimizer.step()`; the LR scheduler steps once per epoch unless the spec says per step; evaluation
runs after each epoch in `eval()` without grad, in file order, and before an LR scheduler that depends on its loss.
Every batch, in training and in evaluation, is a contiguous copy of its inputs and targets, because a network may write
into its input. What happens to it until the loss is said in `engine.step`: scaling, targets that follow from the
inputs, and the transforms in the order of the spec, which draw from the sub-model's RNG right before forward does.

The sampler `balanced` draws an epoch with `torch.multinomial(weights, n, replacement=True, generator=...)`, where the
weight of a sample is 1 / samples of its class in float64. `by_length` cuts the permutation into windows of so many
batches and sorts each (`argsort(stable=True)`) by length: the place of the last id that is not `pad`, from 1. Balanced
class weights are labels / (classes * labels of the class), in float64, then float32.

Parameter groups go to the optimizer in this order: those that no group of the spec names, then the groups as the spec
lists them, each with its parameters in the order of the network; frozen ones have `requires_grad` off and are left out.
Clipping takes all parameters in the order of the network. A sequence of LR schedulers is torch's `SequentialLR`, and
one whose name begins with `warmup_` is `LambdaLR` with the function of the library transformers. With `ema` each step
ends with `update_parameters` of torch's `AveragedModel` with `get_ema_multi_avg_fn(decay)`, without `use_buffers`, and
evaluation takes its module.

With `accumulation_steps` = a > 1 a step takes the next a batches of the epoch, or those that are left; with
`batch_split` = k > 1 each batch goes through as `batch.chunk(k)`. Each part goes forward and backward by itself, its
loss times its share of the samples of the step. The parts of virtual nodes are those of
`techniques.virtual_nodes.lengths`. Right before one is taken the RNG gets the state of
`torch.manual_seed(seed_of(seed, step, part))`, and after its backward the state from before. With `warm_up` the i-th
step uses min(1, i / steps) times the learning rate that the LR scheduler has set.

Orders and policies act between two steps, when no gradients exist. So neither a checkpoint nor a waiting sub-model
holds any.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from unifiednn_core.base.errors import BadInput, Diverged
from unifiednn_core.data.balance import data_order
from unifiednn_core.data.datasets import targets_in_blocks
from unifiednn_core.engine import checkpoint_check, optimizers, placed, probes, progress
from unifiednn_core.engine import kinds as device_kinds
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.checkpoint import Checkpoint, fill, transient_buffers
from unifiednn_core.engine.computing import Computing
from unifiednn_core.engine.device import RngState, launched, preserved, require_profile
from unifiednn_core.engine.events import Stepped, StepsRecorded
from unifiednn_core.engine.graphs import CudaRecorder, RecordedLearner
from unifiednn_core.engine.kinds import Kind
from unifiednn_core.engine.learning import EagerLearner, Learned, Learner
from unifiednn_core.engine.probes import Probes
from unifiednn_core.engine.progress import (
    ConstantAnswer,
    EpochFigures,
    NotLearning,
    Progress,
    score_of,
    stops_early,
    used_samples,
)
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import HOST, Lease
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import tree_to_cpu
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.spec.choices import NO_CRITERION
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques import build as techniques


def send_to_host(tensors: Iterable[Tensor]) -> None:
    """Move the content of tensors from a GPU to pinned memory, all copies in one go; those on the host stay."""
    streams = set[torch.cuda.Stream]()
    for tensor in tensors:
        if tensor.device.type != "cuda":
            continue
        streams.add(torch.cuda.current_stream(tensor.device))
        host = torch.empty_like(tensor, device="cpu", pin_memory=True, requires_grad=False)
        tensor.data = host.copy_(tensor.detach(), non_blocking=True)
    for stream in streams:
        stream.synchronize()


class SubModel:
    """Module, optimizer, criterion, LR scheduler, RNG state, data order and cursor of one submitted network."""

    def __init__(
        self,
        spec: SubModelSpec,
        definition: Definition,
        *,
        seed: int,
        train: Lease,
        test: Lease | None,
        device: torch.device,
        name: str | None = None,
        fast: bool = False,
    ):
        """Build the network and everything that trains it. May draw from the default generators.

        Raises `BadInput` for virtual nodes that no check has fixed.

        `name` is its key in the hybrid, where that is not the name of the spec: `RUN_ID/NAME`. `fast` is the profile of
        its run.
        """
        if (nodes := spec.hyperparameters.nodes) is not None and nodes.is_open:
            message = f"{spec.name} has virtual nodes whose number or shares are open; they fix what is trained."
            remedy = "Submit it, so that the check fixes them, or give numbers."
            raise BadInput.of("Virtual nodes", "techniques", message, remedy)
        self.spec, self.name, self.parameters = spec, spec.name if name is None else name, definition.parameters
        self.module = definition.build()
        self.computing = Computing.of(spec.hyperparameters, device, fast=fast)
        self.optimizer = optimizers.build_optimizer(
            self.module.named_parameters(), spec.hyperparameters, fused=self.computing.fused
        )
        self.criterion = optimizers.build_criterion(spec.hyperparameters, targets_in_blocks(train.held))
        self.lr_scheduler = optimizers.build_lr_scheduler(self.optimizer, spec.hyperparameters)
        self.epochs = spec.epochs
        self.steps_per_epoch = spec.hyperparameters.steps_per_epoch(train.samples)
        self._train, self._test, self.device = train, test, device
        self._seed, self._hyperparameters = seed, spec.hyperparameters
        self._order = data_order(spec.hyperparameters, train.held)
        self._progress = Progress(torch.Generator().manual_seed(seed))
        self.training_step = training_step(spec, definition, train.names)
        self.outputs = len(definition.outputs)
        self._randomness = Randomness(self.module, seed, device, transforms_draw=self.training_step.draws)
        self.averaged = optimizers.build_average(self.module, spec.hyperparameters)
        """Moving average of the weights; it draws from where the network does."""
        self._placed = self._away = self._in_world = self._measured = self._stopped = self._laid_out = False
        self._on_host = device == HOST
        self._threads = torch.get_num_threads()
        self._earlier_kinds: tuple[Kind, ...] = ()
        self._trained = list(self.module.parameters())  # a norm over them depends on their order
        hyper = spec.hyperparameters
        self._eager = EagerLearner(
            self.training_step,
            hyper,
            self.module,
            self.criterion,
            self._trained,
            train,
            self._randomness,
            self.computing,
            techniques.built(hyper.techniques),
        )
        self.techniques = self._eager.techniques
        self._recorded = RecordedLearner(self._eager, [hyper.batch_size] * hyper.accumulation_steps, self._randomness)
        self.learner: Learner = self._eager
        """Does forward and backward of its steps."""
        self.is_fast = not self.computing.exact
        """Whether any step was one of the profile `fast`, so that its bits are not those of the recipe."""
        self._epochs: list[EpochFigures] = []
        """Of this attempt: the first, the last but one, and the last."""
        self.doubt: NotLearning | None = None
        """Why it seems not to learn, as of the last epoch."""
        self._answers: tuple[ConstantAnswer | None, ConstantAnswer | None] | None = None
        """What constant answers get on training and test data; None before they are counted."""
        self._norms: tuple[float, ...] = ()
        self._same_output = False
        self.footprint: Footprint
        """Memory that it holds now; a new value after each change, for any thread."""
        self._measure()

    @property
    def eager(self) -> EagerLearner:
        """The learner that does what the recipe says."""
        return self._eager

    @property
    def devices(self) -> int | None:
        """Logical devices that compute its virtual nodes; None if it has none."""
        return self._eager.devices

    @devices.setter
    def devices(self, count: int) -> None:
        """Change their number between two steps, which changes no bits."""
        self._eager.devices = count

    @property
    def leases(self) -> tuple[Lease, ...]:
        """Leases of its data sets."""
        return (self._train,) if self._test is None else (self._train, self._test)

    @property
    def epochs_done(self) -> int:
        """Whole epochs done."""
        return self._progress.epochs_done

    @property
    def epochs_begun(self) -> int:
        """Epochs done, plus the current one."""
        return self.epochs_done + (self._progress.order is not None)

    @property
    def steps_done(self) -> int:
        """Steps done."""
        return self._progress.steps_done

    @property
    def shares_randomness(self) -> bool:
        """Whether its steps may draw from the default generators; then no other such sub-model may step meanwhile."""
        return self._randomness.shared

    @property
    def draws(self) -> bool:
        """Whether its steps may draw random numbers at all."""
        return self._randomness.draws

    @property
    def finished(self) -> bool:
        """Whether all epochs are done, or early stopping has ended the training."""
        return self._stopped or self.epochs_done >= self.epochs

    @property
    def last(self) -> EpochFigures | None:
        """Figures of the last finished epoch; None before the first."""
        return self._progress.last

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds of device that it was trained on, this one last; several may give other bits than one."""
        return device_kinds.joined(self._earlier_kinds, device_kinds.current_kind(self.device, self._threads))

    @property
    def placed(self) -> bool:
        """Whether it is on its device, at least for its turns; one that is paused is not."""
        return self._placed or self._away

    @contextmanager
    def world(self) -> Iterator[None]:
        """Swap in this sub-model's RNG and device state; on exit save the RNG state and drop the gradients.

        The caller applies the profile: raises `RuntimeError` on a GPU outside `exact_profile`.
        """
        require_profile(self.device)
        if not self._placed:  # before its start, and while it is paused, it holds no memory on the device
            self._move(self.device)
            self._placed = True
            self._measure()
        for lease in self.leases:  # here, where no other lane moves the same data
            lease.use()
        if self.computing.channels_last and not self._laid_out:
            self._lay_out()
        self._threads = torch.get_num_threads()  # those of this lane
        self._randomness.begin()
        self._in_world, self.footprint = True, self._working
        try:
            yield
        finally:
            self._randomness.end()
            self._in_world = False
            self._eager.drop_gradients()
            if self.techniques.leaves:
                self._leave()
            self.footprint = self._idle

    def step(self) -> Stepped:
        """Train on the batches of the next step, inside `world`; raises as `finish` does."""
        return self.finish(self.learner(self.next_batches()))

    def next_batches(self) -> list[Tensor]:
        """Begin a step: take its batches, each as indices of samples, int64 [at most batch_size].

        They are on the device; on the host if the data are streamed, and then those of the next step are read ahead.
        """
        progress, samples, asked = self._progress, self._train.samples, self._hyperparameters
        self._eager.steps_done = self.steps_done
        if not self._train.streamed:
            return progress.next_batches(samples, asked, self.device, self._order)
        batches = progress.next_batches(samples, asked, HOST, self._order)
        self._eager.expect(progress.upcoming(samples, asked))
        return batches

    def finish(self, learned: Learned, *, updated: bool = False) -> Stepped:
        """End a step, once its gradients are in `.grad`: clip, update the weights unless they are, and count.

        Raises `Diverged` for a NaN or infinite loss: at once on a CPU; on a GPU, to avoid a wait of the host, only at
        the end of the epoch or at the next checkpoint.
        """
        loss, correct, labels_known = learned
        if self._on_host and not math.isfinite(value := loss.item()):
            raise Diverged(self.spec.name, self.steps_done + 1, value)
        if not updated:
            optimizers.update(
                self.optimizer, self._trained, self._hyperparameters, self.steps_done + 1, self._eager.scaler
            )
        if self.averaged is not None:
            self.averaged.update_parameters(self.module)
        if not self._measured:  # the first step creates the optimizer's state
            self._measure()
            self._measured = True
        optimizers.step_lr_scheduler(self.lr_scheduler, self._hyperparameters, after="step")
        self._progress.steps_done += 1
        progress = self._progress
        labels = self._count(loss, correct, self._train, progress.used, progress.order, labels_known)
        ready = None if self._on_host else launched(self.device)
        return Stepped(self.name, self.steps_done, loss, correct if labels else None, labels, ready)

    def prepare_recording(self, recorder: CudaRecorder) -> bool:
        """Step in the lane of this recorder from now on; returns whether `record_step` is due before the next step.

        Steps before the first call are never replayed.
        """
        if self._eager.scaler is not None or self.techniques.active or self.spec.placement is not None:
            # a scale changes between steps, and so may sizes; a graph is of one device
            return False
        self.learner = self._recorded
        return self._recorded.prepare(recorder)

    def record_step(self, recorder: CudaRecorder) -> StepsRecorded | None:
        """Record a full step, inside `world`, while nothing else computes; tells whether steps are replayed now.

        Does nothing between two epochs.
        """
        samples = self._progress.placed_order
        if samples is None or not self._recorded.record(recorder, samples):
            return None
        self._measure()
        return StepsRecorded(self.name, self._recorded.gain, self._recorded.refused)

    @property
    def at_epoch_end(self) -> bool:
        """Whether the step just done was the last of its epoch."""
        progress, used = self._progress, used_samples(self._train.samples, self._hyperparameters)
        return progress.order is not None and progress.cursor >= used

    def end_epoch(self, heartbeat: Callable[[], object] = lambda: None) -> EpochFigures:
        """Evaluate, step the LR scheduler and close the epoch, inside `world`; `heartbeat` runs after each test batch.

        Raises `Diverged` if a loss of the epoch was NaN or infinite.
        """
        progress, hyperparameters = self._progress, self._hyperparameters
        rate = float(self.optimizer.param_groups[0]["lr"])
        self._require_finite()
        self._measure()
        train_loss, train_accuracy = progress.tally.means()
        test_loss, test_accuracy = self._evaluate(heartbeat)
        figures = EpochFigures(
            epoch=progress.epochs_done + 1,
            step=progress.steps_done,
            learning_rate=rate * optimizers.share_of_rate(hyperparameters, progress.steps_done),
            train_loss=train_loss,
            train_accuracy=train_accuracy,
            test_loss=test_loss,
            test_accuracy=test_accuracy,
        )
        judged = train_loss if test_loss is None else test_loss
        optimizers.step_lr_scheduler(self.lr_scheduler, hyperparameters, after="epoch", loss=judged)
        progress.close_epoch(figures, hyperparameters.early_stopping)
        self._judge(figures)
        self._stopped = stops_early(hyperparameters.early_stopping, progress.improvement)
        return figures

    def evaluate_joined(self) -> EpochFigures:
        """Evaluate a network that was joined of its parts and does not train, inside `world`; its epoch is 0."""
        test_loss, test_accuracy = self._evaluate(lambda: None)
        figures = EpochFigures(0, 0, self._hyperparameters.learning_rate, None, None, test_loss, test_accuracy)
        self._progress.last = figures
        return figures

    def probe(self) -> Probes:
        """What it makes of a few samples, inside `world`, once it has ended; its weights become contiguous."""
        if self.spec.part is not None:
            return Probes(missing="it is a part of a network, which is certified as a whole")
        if not self.computing.exact:
            return Probes(missing="it was trained in the profile fast, whose steps round in another way")
        held = self._train if self._test is None else self._test
        module = self.module if self.averaged is None else self.averaged.module
        kind = device_kinds.current_kind(self.device, torch.get_num_threads()).row
        samples = min(held.samples, self._hyperparameters.batch_size)
        with torch.no_grad():
            return probes.take(
                module,
                self.training_step,
                lambda count: self._eager.batch(held.use(), slice(0, count), training=False),
                samples,
                data="training" if self._test is None else "test",
                kind=kind,
            )

    # -- capture, restore, park

    def capture(self) -> Checkpoint:
        """Copy the whole state to the host, between two steps; raises `Diverged` for a NaN or infinite loss."""
        self._require_finite()
        rng, progress = self._randomness.state, self._progress
        excluded = {"epochs", "seed", "early_stopping"}
        recipe = self._hyperparameters.model_dump(mode="json", exclude=excluded)
        recipe |= {"seed": self._seed, "samples": self._train.samples, "device_type": self.device.type}
        state = {
            "model": tree_to_cpu(dict(self.module.state_dict())),
            "buffers": tree_to_cpu(transient_buffers(self.module)),
            "optimizer": optimizers.captured(self.optimizer),
            "lr_scheduler": None if self.lr_scheduler is None else tree_to_cpu(self.lr_scheduler.state_dict()),
            "rng": {"cpu": rng.cpu, "cuda": rng.cuda},
            "data": progress.data_state(),
            "metrics": progress.metrics_state(),
        }
        if self.averaged is not None:
            state["ema"] = tree_to_cpu(dict(self.averaged.module.state_dict()))
        if self._eager.scaler is not None:
            state["scaler"] = self._eager.scaler.state_dict()
        recipe |= {"profile": "fast"} if self.is_fast else {}
        return Checkpoint(
            submodel=self.name,
            step=self.steps_done,
            epoch=self.epochs_done,
            score=score_of(self.last),
            recipe=recipe | {"torch": torch.__version__, "kinds": [kind.row for kind in self.kinds]},
            state=state,
        )

    def restore(self, checkpoint: Checkpoint, *, moves: Literal["same", "any"] = "any") -> None:
        """Resume from `checkpoint`; raises `BadCheckpoint`, and changes nothing, for one that it cannot have written.

        With `moves` = "same" raises `OtherKind` for one that was written on another kind of device.
        A learning rate other than the checkpoint's scales everything that the rate is computed from.
        """
        written = checkpoint_check.recipe_of(checkpoint)
        checkpoint_check.check(checkpoint, self.module, self._hyperparameters, self._train.samples)
        device_kinds.require(written.kinds, device_kinds.current_kind(self.device, torch.get_num_threads()), moves)
        state = checkpoint.state
        fill(self.module, state["model"], state["buffers"])
        if self.averaged is not None:
            fill(self.averaged.module, state["ema"], state["buffers"])
            self.averaged.n_averaged.fill_(checkpoint.step)
        optimizers.restore_state(self.optimizer, state["optimizer"])
        if self.lr_scheduler is not None:
            optimizers.restore_lr_scheduler(self.lr_scheduler, state["lr_scheduler"])
        self._progress = Progress.of_state(checkpoint.step, checkpoint.epoch, state["data"], state["metrics"])
        self._stopped = stops_early(self._hyperparameters.early_stopping, self._progress.improvement)
        if self._eager.scaler is not None and "scaler" in state:
            self._eager.scaler.load_state_dict(state["scaler"])
        self.is_fast, self._earlier_kinds = written.fast or self.is_fast, written.kinds
        self._measure()
        cuda = None
        if self.device.type == "cuda":  # a checkpoint of a CPU has no such stream
            saved = state["rng"]["cuda"]
            cuda = RngState.of_seed(self._seed, self.device).cuda if saved is None else saved
        self._randomness.state = RngState(state["rng"]["cpu"], cuda)
        factor = self._hyperparameters.learning_rate / written.hyperparameters.learning_rate
        if factor != 1.0:
            optimizers.scale_learning_rates(self.optimizer, self.lr_scheduler, factor)

    def park(self) -> None:
        """Move to the host and free the device's memory until the next `world`."""
        if self.placed:
            self._recorded.free()
            self._move(HOST)
            self._placed = self._away = False
            self._measure()
            for lease in self.leases:
                lease.park()

    def release(self, *, empty: bool = False) -> None:
        """Release the data sets for good; with `empty` also free weights and optimizer state despite references.

        Networks and optimizers are part of reference cycles (an fx graph holds its module, an LR scheduler its
        optimizer's step), so their memory would wait for the garbage collector.
        """
        self._eager.close()
        self._recorded.free()
        if empty:
            for tensor in self._tensors():
                tensor.data = tensor.data.new_empty(0)
            self.optimizer.state.clear()
        for lease in self.leases:
            lease.release()

    # -- inside

    def _judge(self, figures: EpochFigures) -> None:
        """Find out whether it learns at all, once there are figures enough."""
        first, previous = self._epochs[:1], self._epochs[1:][-1:]
        self._epochs = [*first, *previous, figures]
        before, self._norms = self._norms, progress.norms(self._trained)
        if not progress.may_be_judged(self._epochs, self._hyperparameters):
            return
        if self._answers is None:
            train, test = (
                None if lease is None else ConstantAnswer.on(lease.held, self._hyperparameters, self.criterion)
                for lease in (self._train, self._test)
            )
            self._answers = train, test
        same_weights, same_output = before == self._norms != (), self._same_output
        self.doubt = progress.judged(
            self._epochs, *self._answers, same_weights=same_weights, same_output=same_output, before=self.doubt
        )

    def _measure(self) -> None:
        """Measure the footprint again; it does not change from step to step."""
        parameters = list(self.module.parameters())
        weights_bytes = stored_bytes(self._tensors())
        optimizer_bytes = stored_bytes(
            value
            for parameter, entries in self.optimizer.state.items()
            for value in entries.values()
            if isinstance(value, Tensor) and value.device == parameter.device  # counters stay on the host
        )
        gradients_bytes = sum(parameter.nbytes for parameter in parameters if parameter.requires_grad)
        kept_bytes = gradients_bytes if self._recorded.holds_gradients else 0
        self._idle = Footprint(weights_bytes, kept_bytes, optimizer_bytes, self._placed)
        self._working = Footprint(weights_bytes, gradients_bytes, optimizer_bytes, self._placed)
        self.footprint = self._working if self._in_world else self._idle

    def _lay_out(self) -> None:
        """Change the memory format of the weights, if the network takes a batch so; once, on the device."""
        data, step = self._train.use(), self.training_step
        with preserved(self.device):
            batch = self._eager.batch(data, slice(0, self._hyperparameters.batch_size), training=False)
            self.computing = self._eager.computing = self.computing.laid_out(self.module, step, batch)
            if self.averaged is not None:
                self.computing.laid_out(self.averaged.module, step, batch)
        optimizers.follow_layout(self.optimizer)
        self._laid_out = True
        self._measure()

    def _tensors(self) -> list[Tensor]:
        """Parameters and buffers, also the averaged ones."""
        modules = [self.module] if self.averaged is None else [self.module, self.averaged.module]
        return [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]

    def _leave(self) -> None:
        """Free the device's memory until the next turn; the data sets stay."""
        state = (value for entries in self.optimizer.state.values() for value in entries.values())
        send_to_host([*self._tensors(), *(value for value in state if isinstance(value, Tensor))])
        self._placed, self._away = False, True
        self._measure()

    def _move(self, device: torch.device) -> None:
        self.module.to(device).train(True)
        placed.follow(self.module, away=device != self.device)
        if self.averaged is not None:
            self.averaged.module.to(device)
        self.criterion.to(device)
        optimizers.follow_parameters(self.optimizer)
        self._progress.move(device)

    @torch.no_grad()
    def _evaluate(self, heartbeat: Callable[[], object]) -> tuple[float | None, float | None]:
        """Mean loss and accuracy over the test set, if there is one."""
        if self._test is None:
            return None, None
        test, ignored = self._test.use(), self._eager.scorer.ignored_in(self._test)
        size = self._hyperparameters.batch_size
        module = self.module if self.averaged is None else self.averaged.module
        module.train(False)
        for start in range(0, test.samples, size):
            samples = slice(start, start + size)
            if start + size < test.samples:
                test.expect([slice(start + size, start + 2 * size)])
            batch = self._eager.batch(test, samples, training=False)
            outputs = self.computing.forward(self.training_step, module, batch)
            correct = self._eager.scorer.answers(outputs, batch.targets, ignored)
            if not start and self._hyperparameters.criterion != NO_CRITERION:
                raw = test.rows(self.training_step.first, samples)
                self._same_output = progress.is_constant(outputs[self.training_step.output], raw)
            loss = self.training_step.loss(self.criterion, outputs, batch, training=False)
            labels = self._eager.scorer.labels(batch.targets, ignored)
            self._count(loss, correct, self._test, samples, labels=labels)
            heartbeat()
        self.module.train(True)
        return self._progress.tally.means()

    def _count(
        self,
        loss: Tensor,
        correct: Tensor | None,
        data: Lease,
        places: slice,
        order: Tensor | None = None,
        labels: int | Tensor | None = None,
    ) -> int:
        """Add samples to the sums, as `Scorer.counted` names them, and return their number of labels.

        On the host the sums are plain numbers: the same arithmetic, but faster.
        """
        weight, count = self._eager.scorer.counted(data, places, order, labels)
        if self._on_host:
            right = None if correct is None else int(correct.item())
            self._progress.tally.add(loss.item(), weight, right, count)
        else:
            self._progress.tally.add(loss, weight, correct, count)
        return count

    def _require_finite(self) -> None:
        if not self._progress.tally.is_finite():
            raise Diverged(self.spec.name, self.steps_done, float("nan"))


def stored_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all tensors; those that share storage count once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
