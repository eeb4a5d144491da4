"""Learners: forward and backward of a step, between taking its batches and its update.

`EagerLearner` does what the recipe says, one part after the other. Others may take its place if they leave the same
bits in the gradients, the buffers and the default generators.

Logical devices compute several virtual nodes of a step at once, one thread each. Each has the threads of the caller for
its operators, and on CUDA a stream of its own. So a node has the same bits whichever device computes it.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from unifiednn_core.base.errors import NoBatchedForm
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import DataSource, places_of_blocks
from unifiednn_core.engine.computing import EXACT, Computing
from unifiednn_core.engine.device import own_stream
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import Lease
from unifiednn_core.engine.step import TARGETS, Step
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.spec.run import Hyperparameters
from unifiednn_core.techniques import virtual_nodes
from unifiednn_core.techniques.build import NONE, Techniques

Result = TypeVar("Result")


class LogicalDevices:
    """Some logical devices; their threads begin with the first work and end with `close`, or with this object."""

    def __init__(self, count: int):
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="logical-device")

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()

    def compute(self, work: Sequence[Callable[[], Result]], device_type: str = "cpu") -> Iterator[Result]:
        """Do at most one piece of work per device at once; the results are in its order, as soon as all are done.

        On CUDA the work waits for the stream of the caller, which then waits for the work. Raises what the first piece
        raises, once all have ended. Where a mode of torch looks at each operator of the caller, the caller does all the
        work.
        """
        if torch._C._len_torch_dispatch_stack():  # of this thread; torch's flag in Python is one for all threads
            yield from [one() for one in work]
            return
        stream = torch.cuda.current_stream() if device_type == "cuda" else None
        run = partial(_run, threads=torch.get_num_threads(), caller=stream)
        futures = [self._pool.submit(run, one, place) for place, one in enumerate(work)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        for future in futures:
            yield _arrived(future.result(), stream)


def may_compute_at_once(module: nn.Module, techniques: Techniques) -> bool:
    """Whether several threads may run a network at once: nothing of it changes when it runs forward."""
    if techniques.in_steps:  # one gives layers another forward for the time of a part, another has one budget
        return False
    hooked = any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    return not hooked and next(module.buffers(), None) is None


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Add the gradients of one node to those before, as `backward` does."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is not None:
            parameter.grad += gradient
        elif gradient.layout is torch.strided:  # a copy, for several parameters may have one gradient
            parameter.grad = torch.empty_like(parameter, requires_grad=False).copy_(gradient)
        else:
            parameter.grad = gradient.clone()


def _run(work: Callable[[], Result], place: int, *, threads: int, caller: "torch.cuda.Stream | None") -> Result:
    torch.set_num_threads(threads)
    if caller is None:
        return work()
    with own_stream(caller.device, -1 - place):  # lanes count from 0
        own = torch.cuda.current_stream()
        own.wait_stream(caller)
        try:
            return work()
        finally:
            caller.wait_stream(own)


def _arrived(result: Result, stream: "torch.cuda.Stream | None") -> Result:
    """Keep the memory of a result until the caller's stream has used it."""
    if stream is not None:
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                one.record_stream(stream)
    return result


class Scorer:
    """Counts correct predictions and labels the way the criterion of one sub-model does."""

    def __init__(self, hyperparameters: Hyperparameters, step: Step):
        self._classes, self._label = hyperparameters.criterion in CLASSIFICATION, hyperparameters.ignored_label
        self._step, self._moves = step, step.moves_targets
        self._counting: dict[str, Tensor | None] = {}
        self._of_sample: dict[str, int] = {}

    def ignored_in(self, data: Lease) -> int | None:
        """Label that does not count, if there are any; the host waits for the device only at the first call."""
        may_be = self._moves or self._counts(data) is not None
        return self._label if may_be else None

    def labels(self, targets: Tensor | None, ignored: int | None) -> int | Tensor | None:
        """Labels of a batch that count, where transforms change targets; a scalar on the device if some may not."""
        if not self._moves or targets is None:
            return None
        return targets.numel() if ignored is None else torch.count_nonzero(targets != ignored)

    def counted(
        self, data: Lease, places: slice, order: Tensor | None = None, labels: int | Tensor | None = None
    ) -> tuple[int, int]:
        """Weight of the mean loss of some samples, and their number of labels, which may be known as `labels`.

        The samples are those at `places` in `order` (indices on the host), or in the file. Some labels may not count:
        then the mean is that over the others.
        """
        if labels is not None:  # on a GPU the host waits for it
            count = int(labels)
            return (min(places.stop, data.samples) - places.start if self._label is None else count), count
        counts = self._counts(data)
        if counts is not None:
            count = int(counts[places if order is None else order[places]].sum())
            return count, count
        samples = min(places.stop, data.samples) - places.start
        if data.sha256 not in self._of_sample:
            first = self._targets(data.use(), slice(0, 1))
            self._of_sample[data.sha256] = 0 if first is None else first.numel()
        return samples, samples * self._of_sample[data.sha256]

    def answers(self, outputs: Sequence[Tensor], targets: Tensor | None, ignored: int | None) -> Tensor | None:
        """Correct predictions, a scalar on the device; None if there are no classes."""
        if not self._classes or targets is None:
            return None
        right = self._step.scores(outputs).argmax(1) == targets
        return torch.count_nonzero(right if ignored is None else right & (targets != ignored))

    def _counts(self, data: Lease) -> Tensor | None:
        """Labels of each sample that count, int64 [samples] on the host; None if all do."""
        if self._label is None or self._moves:
            return None
        if data.sha256 not in self._counting:
            self._counting[data.sha256] = self._count(data.use(), self._label)
        return self._counting[data.sha256]

    def _count(self, data: DataSource, label: int) -> Tensor | None:
        """As `_counts`, block by block: targets may be as large as the data set, and be made of its inputs."""
        found, of_sample = list[Tensor](), 0
        for places in places_of_blocks(data, self._entry(data)):
            if (targets := self._targets(data, places)) is None:
                return None
            counting = torch.ne(targets, label).reshape(len(targets), -1)
            of_sample = counting.shape[1]
            found.append(counting.sum(1))
        counts = torch.cat(found)
        return None if bool((counts == of_sample).all()) else counts.cpu()

    def _entry(self, data: DataSource) -> str:
        """The entry of the data set that the targets come from."""
        return TARGETS if self._step.targets == "stored" and data.targets is not None else self._step.first

    def _targets(self, data: DataSource, places: slice) -> Tensor | None:
        """Targets of some samples, as far as they are known without transforms."""
        if self._step.targets == "stored":
            return None if data.targets is None else data.rows(TARGETS, places)
        first = self._step.first
        return self._step.targets_of({first: data.rows(first, places)}, None)


class Learned(NamedTuple):
    """What a step has learned, besides the gradients that it leaves in `.grad`."""

    loss: Tensor
    """Mean loss, a scalar on the device."""
    correct: Tensor | None
    """Correct predictions, a scalar on the device; None if there are no classes."""
    labels: int | Tensor | None = None
    """Labels that count, where transforms change them; None if they are those of the data set."""


class Learner(Protocol):
    """Does forward and backward for one sub-model."""

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Replace the gradients by those of a step over these batches (indices of samples, int64)."""


class RecordableLearner(Learner, Protocol):
    """A learner that launches the operators of a step, which can be recorded therefore."""

    @property
    def module(self) -> nn.Module:
        """Holds all weights and buffers that a step reads or writes."""

    @property
    def trained(self) -> Sequence[nn.Parameter]:
        """Weights that get gradients."""

    def data(self) -> DataSource:
        """Return the training set on the device."""

    def drop_gradients(self) -> None:
        """Leave no gradients."""


class EagerLearner:
    """Launches the operators of the network one by one, for each batch and each of its parts.

    A part is a share of the batch, of `batch_split` or of virtual nodes. Logical devices compute several parts at once;
    the gradients are added in the order of the parts all the same.
    """

    def __init__(
        self,
        step: Step,
        hyperparameters: Hyperparameters,
        module: nn.Module,
        criterion: nn.Module,
        trained: Sequence[nn.Parameter],
        train: Lease,
        randomness: Randomness,
        computing: Computing = EXACT,
        techniques: Techniques = NONE,
    ):
        """Train the parameters `trained` of `module` on the data set `train`."""
        self.step, self.module, self.criterion, self.trained = step, module, criterion, trained
        self.computing, self.scaler, self.techniques = computing, computing.scaler(), techniques
        self.scorer = Scorer(hyperparameters, step)
        self._train, self._shares, self._randomness = train, hyperparameters.shares, randomness
        self.steps_done = 0
        """Steps before the next one, from which virtual nodes have their random numbers."""
        nodes = techniques.nodes
        self._devices = None if nodes is None else LogicalDevices(nodes.devices)
        self._at_once = not randomness.draws and self.scaler is None and may_compute_at_once(module, techniques)

    @property
    def devices(self) -> int | None:
        """Logical devices that compute its virtual nodes from the next step on; None if it has no nodes."""
        return None if self._devices is None else self._devices.count

    @devices.setter
    def devices(self, count: int) -> None:
        self.close()
        self._devices = LogicalDevices(count)

    def close(self) -> None:
        """End the threads of its logical devices; it takes no more steps."""
        if self._devices is not None:
            self._devices.close()

    def __call__(self, batches: Sequence[Tensor]) -> Learned:
        """Do forward and backward for each part by itself, its loss times its share of the samples."""
        data, ignored = self.data(), self.scorer.ignored_in(self._train)
        parts = self._parts(batches)
        self.drop_gradients()
        if len(parts) == 1:
            return self._of_node(0, data, parts[0], None, ignored)
        samples = sum(len(batch) for batch in batches)
        shares = [virtual_nodes.weight(len(part), samples) for part in parts]
        if self._devices is not None and self._devices.count > 1 and self._at_once:
            learned = self._learn_at_once(self._devices, data, parts, shares, ignored)
        else:
            each = enumerate(zip(parts, shares, strict=True))
            learned = [self._of_node(place, data, part, share, ignored) for place, (part, share) in each]
        rights = [part.correct for part in learned if part.correct is not None]
        labels = [part.labels for part in learned if part.labels is not None]
        return Learned(
            torch.stack([part.loss for part in learned]).sum(),
            torch.stack(rights).sum() if rights else None,
            sum(labels) if labels else None,
        )

    def expect(self, batches: Sequence[Tensor]) -> None:
        """Tell the training set which batches come next."""
        self._train.use().expect(self._parts(batches))

    def data(self) -> DataSource:
        """Return the training set on the device."""
        return self._train.use()

    def drop_gradients(self) -> None:
        """Do what the optimizer's `zero_grad(set_to_none=True)` does, without its profiler entry (5 us)."""
        for parameter in self.trained:
            parameter.grad = None

    def batch(self, data: DataSource, samples: Tensor | slice, *, training: bool = True) -> Batch:
        """Copy samples, as the network and the criterion get them."""
        return self.step.prepare(data.batch(samples), self._randomness.generator, training=training)

    def pair(self, data: DataSource, samples: Tensor | slice) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a plain step."""
        batch = self.batch(data, samples)
        [inputs], targets = batch.inputs.values(), batch.targets
        if targets is None:
            raise NoBatchedForm("has no targets")
        return inputs, targets

    def _parts(self, batches: Sequence[Tensor]) -> list[Tensor]:
        return [part for one in batches for part in torch.split(one, virtual_nodes.lengths(len(one), self._shares))]

    def _of_node(
        self, place: int, data: DataSource, batch: Tensor, share: float | None, ignored: int | None
    ) -> Learned:
        """Learn a part; that of a virtual node has random numbers of its own."""
        if self._devices is None:
            return self._learn(self.batch(data, batch), share, ignored)
        with self._randomness.seeded(virtual_nodes.seed_of(self._randomness.seed, self.steps_done + 1, place)):
            return self._learn(self.batch(data, batch), share, ignored)

    def _learn(self, given: Batch, share: float | None, ignored: int | None) -> Learned:
        """Loss (times `share`) and correct predictions of a part; adds its gradients."""
        with self.techniques.part(self.module, given.tensors, self._randomness.generator):
            outputs, loss = self._forward(given, share)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()  # type: ignore[no-untyped-call]
        return self._scored(given, outputs, loss, ignored)

    def _learn_at_once(
        self,
        devices: LogicalDevices,
        data: DataSource,
        parts: Sequence[Tensor],
        shares: Sequence[float],
        ignored: int | None,
    ) -> list[Learned]:
        """Do what `_learn` does for each part, as many at once as there are devices."""
        trained, learned = [one for one in self.trained if one.requires_grad], list[Learned]()

        def gradients_of(given: Batch, share: float) -> tuple[Learned, Sequence[Tensor | None]]:
            with self.techniques.part(self.module, given.tensors):
                outputs, loss = self._forward(given, share)
                gradients = torch.autograd.grad(loss, trained, allow_unused=True)
            return self._scored(given, outputs, loss, ignored), gradients

        for wave in virtual_nodes.waves(len(parts), devices.count):
            given = [self.batch(data, parts[node]) for node in wave]
            work = [partial(gradients_of, one, shares[node]) for node, one in zip(wave, given, strict=True)]
            for one, gradients in devices.compute(work, self.computing.device_type):
                add_gradients(trained, gradients)
                learned.append(one)
        return learned

    def _forward(self, given: Batch, share: float | None) -> tuple[tuple[Tensor, ...], Tensor]:
        outputs = self.computing.forward(self.step, self.module, given)
        loss = self.step.loss(self.criterion, outputs, given)
        return outputs, loss if share is None else loss * share

    def _scored(self, given: Batch, outputs: Sequence[Tensor], loss: Tensor, ignored: int | None) -> Learned:
        outputs = tuple(output.detach() for output in outputs)
        labels = self.scorer.labels(given.targets, ignored)
        return Learned(loss.detach(), self.scorer.answers(outputs, given.targets, ignored), labels)
