"""Measures the memory that a sub-model needs: trains a few samples and counts all living tensors.

A step is a sequence of operators. At two small batch sizes the same operators run, and the bytes that live after each
of them are a constant plus a share for each sample. So two small steps give every larger one, moment by moment; its
peak is its greatest moment. (The peaks are not linear: at a small batch the optimizer has the greatest, at a large one
the activations.) A whole batch that costs little is run as well, and its own count is used.

Also times a few steps on the CPU, so that a forecast knows the speed of a sub-model before it has ever trained.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.learning import may_compute_at_once
from unifiednn_core.engine.optimizers import build_average
from unifiednn_core.formats.draws import draws
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import FEWEST_SAMPLES, LARGE_WEIGHTS_BYTES, Trial, Tried
from unifiednn_core.scheduling.company import POINTS, coarse, falls_of
from unifiednn_core.spec.choices import CLASSIFICATION
from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.virtual_nodes import lengths

# Blocks in which torch's allocators hand out memory.
BLOCK_BYTES = {"cpu": 64, "cuda": 512}
# A batch that takes more is too costly to be run only to be counted.
WHOLE_BATCH_BYTES = 64 * 1024**2
# oneDNN rounds the memory of a recurrent layer up to whole groups of samples: fewer would give too little.
SMALL_BATCH = 8
# A network whose dry run of a batch takes longer is measured with smaller ones.
SLOW_CPU_S = 20.0
_INDEX_BYTES = 8


class Moments(NamedTuple):
    """Bytes that live after each operator and not between steps, for a batch in two parts."""

    first: list[int]
    """Forward and backward of the first part."""
    second: list[int]
    """The same with the gradients of the first part."""
    update: list[int]
    """The optimizer's step, with all gradients."""
    evaluation: list[int]
    """Without gradients."""

    def peaks(self, gradients_bytes: int) -> tuple[int, int, int]:
        """Peaks without the gradients: of a whole batch, of one in parts, of an evaluation."""
        whole = max(chain(self.first, self.update)) - gradients_bytes
        parts = max(chain(self.first, self.second, self.update)) - gradients_bytes
        return max(0, whole), max(0, parts), max(self.evaluation, default=0)


def measure(
    trial: Trial, tried: Tried, device_type: str, hashes: Sequence[str], *, streamed: bool = False
) -> MemoryNeed:
    """Memory of a sub-model on a device of this type; `hashes` name its data sets, training data first.

    This trains the network further; the default RNG stays the same. A step with offload is measured with all saved
    tensors away and with none; between the two the budget decides. On a CPU, which is the host, all count.
    """
    techniques = tried.techniques
    if (offload := techniques.offload) is None:
        return _measured(trial, tried, device_type, hashes, streamed=streamed)
    resident = replace(tried, techniques=replace(techniques, offload=None))
    need = _measured(trial, resident, device_type, hashes, streamed=streamed)
    if device_type == "cpu":
        return need
    away = replace(tried, techniques=replace(techniques, offload=offload.unlimited()))
    least = _measured(trial, away, device_type, hashes, streamed=streamed)
    return least if offload.budget_bytes is None else least.within(need, offload.budget_bytes + _order_bytes(trial))


def _measured(trial: Trial, tried: Tried, device_type: str, hashes: Sequence[str], *, streamed: bool) -> MemoryNeed:
    hyper, batch_size = trial.spec.hyperparameters, min(trial.spec.hyperparameters.batch_size, trial.train.samples)
    costly = trial.definition.weights_bytes > LARGE_WEIGHTS_BYTES or tried.cpu_s_per_sample * SMALL_BATCH > SLOW_CPU_S
    few = FEWEST_SAMPLES if costly else min(SMALL_BATCH, batch_size // 2)
    few = max(few, FEWEST_SAMPLES, trial.definition.min_batch)
    with torch.random.fork_rng(devices=[]):
        counted = _Counted(trial, tried, BLOCK_BYTES[device_type], foreach=device_type == "cuda")
        counted.settle(few)
        low, high = counted.moments(few), counted.moments(2 * few)
        sizes = {*_halvings(batch_size), max(lengths(batch_size, hyper.shares))}
        at = {size: fitted(low, high, (few, 2 * few), size) for size in sizes}
        small = max(chain(*at[batch_size])) <= WHOLE_BATCH_BYTES and batch_size >= trial.definition.min_batch
        cheap = small and tried.cpu_s_per_sample * batch_size <= SLOW_CPU_S
        if cheap:
            at[batch_size] = counted.moments(batch_size)
    peaks = {size: moments.peaks(counted.gradients_bytes) for size, moments in at.items()}
    data_bytes: dict[str, int] = {}
    for sha256, size in zip(hashes, _read_ahead(trial) if streamed else counted.data_bytes, strict=True):
        data_bytes[sha256] = max(size, data_bytes.get(sha256, 0))  # training and test data may be one file
    order_bytes = _order_bytes(trial)
    moments = at[batch_size]
    in_one_part = hyper.in_one_part and len(moments.first) > 1  # else its moments are not known
    step = [size + order_bytes for size in (*moments.first, *moments.update)] if in_one_part else []
    falls = falls_of(step, counted.places)
    return MemoryNeed(
        weights_bytes=counted.weights_bytes,
        gradients_bytes=counted.gradients_bytes,
        optimizer_bytes=counted.optimizer_bytes,
        transient_bytes=0,
        data=data_bytes,
        batch_size=batch_size,
        nodes=hyper.nodes is not None,
        devices=1 if hyper.nodes is None else hyper.nodes.devices,
        at_once=not (tried.step.draws or draws(tried.module)) and may_compute_at_once(tried.module, tried.techniques),
        # Like a later part of a batch, a later batch of a step meets the gradients of those before it.
        whole={size: peak[1 if hyper.accumulation_steps > 1 else 0] + order_bytes for size, peak in peaks.items()},
        parts={size: peak[1] + order_bytes for size, peak in peaks.items()},
        evaluation={size: peak[2] + order_bytes for size, peak in peaks.items() if trial.test is not None},
        leaves=tried.techniques.leaves,
        fitted=not cheap,
        curve=coarse(step) if step else (),
        falls=falls[:: -(-len(falls) // POINTS) or 1],
    ).cut(hyper.shares)


def _order_bytes(trial: Trial) -> int:
    """Bytes of the permutation of an epoch."""
    return _INDEX_BYTES * trial.train.samples


def _read_ahead(trial: Trial) -> list[int]:
    """Bytes in memory of each data set that is streamed: the batches of the step at work and of the next one."""
    hyper = trial.spec.hyperparameters
    sets = [(trial.train, hyper.accumulation_steps), *([] if trial.test is None else [(trial.test, 1)])]
    return [2 * min(data.samples, batches * hyper.batch_size) * _sample_bytes(data) for data, batches in sets]


def _sample_bytes(data: Dataset) -> int:
    """Bytes of one sample in a batch."""
    batch = data.batch(slice(0, 1))
    return sum(one.nbytes for one in (*batch.inputs.values(), batch.targets) if one is not None)


def fitted(low: Moments, high: Moments, sizes: tuple[int, int], size: int) -> Moments:
    """Moments at another batch size, each on the line through the two that are known.

    A network whose operators depend on the batch has no such moments; its peak is assumed to grow with the batch.
    """

    def line(two: tuple[list[int], list[int]]) -> list[int]:
        small, large = two
        if len(small) != len(large):
            return [max(large) * max(1, -(-size // sizes[1]))]
        share = (size - sizes[0]) / (sizes[1] - sizes[0])
        return [round(a + (b - a) * share) for a, b in zip(small, large, strict=True)]

    return Moments(*map(line, zip(low, high, strict=True)))


def _halvings(size: int) -> list[int]:
    """The size, its half rounded up, and so on down to 1."""
    return [size] if size == 1 else [size, *_halvings(-(-size // 2))]


class _Counted:
    """A sub-model whose living tensors are counted while it trains."""

    def __init__(self, trial: Trial, tried: Tried, block_bytes: int, *, foreach: bool):
        """`foreach` is how torch updates weights on a GPU: all at once, which needs more memory."""
        self.trial, self.tried, self._block_bytes = trial, tried, block_bytes
        if foreach:
            for group in tried.optimizer.param_groups:
                group["foreach"] = True
        self._live = LiveBytes(block_bytes)
        self._averaged = build_average(tried.module, trial.spec.hyperparameters)
        sets = [data for data in (trial.train, trial.test) if data is not None]
        self.data_bytes = [self._live.track(data.entries.values()) for data in sets]
        self._at_rest = self.weights_bytes = self.optimizer_bytes = self.gradients_bytes = 0
        self.places: list[tuple[str, int]] = []
        """Parameters, and how many moments of the first part are over when each has its gradient."""

    def settle(self, size: int) -> None:
        """Take a step, after which everything that stays is there and counted; learn its size."""
        optimizer = self.tried.optimizer
        self._live.track(chain(self.tried.module.parameters(), self.tried.module.buffers()))
        if self._averaged is not None:
            self._live.track(chain(self._averaged.parameters(), self._averaged.buffers()))
        self.moments(size)
        self.optimizer_bytes = LiveBytes(self._block_bytes).track(_tensors_of(optimizer))
        self._live.track(_tensors_of(optimizer))
        self._at_rest = self._live.current_bytes
        self.weights_bytes = self._at_rest - self.optimizer_bytes - sum(self.data_bytes)

    def moments(self, size: int) -> Moments:
        """Train a batch of two parts of this size each, and evaluate one."""
        optimizer = self.tried.optimizer
        with self._live:
            optimizer.zero_grad(set_to_none=True)
            learn = partial(self._learn, size)
            with self._noting_places():
                first = self._timeline(learn)
            second, update = (self._timeline(work) for work in (learn, self._update))
            gradients = [p.grad for p in self.tried.module.parameters() if p.grad is not None]
            self.gradients_bytes = LiveBytes(self._block_bytes).track(gradients)
            del gradients
            optimizer.zero_grad(set_to_none=True)
            evaluation = self._timeline(lambda: self._evaluate(size))
        return Moments(first, second, update, evaluation)

    @contextmanager
    def _noting_places(self) -> Iterator[None]:
        places = self.places = []

        def note(name: str, _: Tensor) -> None:
            places.append((name, len(self._live.timeline)))

        named = [(name, one) for name, one in self.tried.module.named_parameters() if one.requires_grad]
        hooks = [one.register_post_accumulate_grad_hook(partial(note, name)) for name, one in named]  # type: ignore[no-untyped-call]
        yield
        for hook in hooks:
            hook.remove()

    def _update(self) -> None:
        self.tried.optimizer.step()
        if self._averaged is not None:
            self._averaged.update_parameters(self.tried.module)

    def _timeline(self, work: Callable[[], object]) -> list[int]:
        self._live.timeline = []
        work()
        return [size_bytes - self._at_rest for size_bytes in self._live.timeline]

    def _learn(self, size: int) -> None:
        step = self.tried.step
        batch = self._batch(self.trial.train, size, training=True)
        with self.tried.techniques.part(self.tried.module, batch.tensors):
            outputs = step.forward(self.tried.module, batch)
            loss = step.loss(self.tried.criterion, outputs, batch)
            loss.backward()  # type: ignore[no-untyped-call]
        self._score(outputs, batch)

    @torch.no_grad()
    def _evaluate(self, size: int) -> None:
        if self.trial.test is None:
            return
        module = self.tried.module.eval()
        step = self.tried.step
        batch = self._batch(self.trial.test, size, training=False)
        outputs = step.forward(module, batch)
        step.loss(self.tried.criterion, outputs, batch, training=False)
        self._score(outputs, batch)
        module.train()

    def _batch(self, data: Dataset, size: int, *, training: bool) -> Batch:
        return self.tried.step.prepare(data.batch(torch.arange(size) % data.samples), training=training)

    def _score(self, outputs: tuple[Tensor, ...], batch: Batch) -> None:
        if self.trial.spec.hyperparameters.criterion in CLASSIFICATION and batch.targets is not None:
            (self.tried.step.scores(outputs).detach().argmax(1) == batch.targets).sum()


def _tensors_of(optimizer: Optimizer) -> Iterator[Tensor]:
    return (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))


TIMES = 5
MOST_CPU_S = 0.5
"""Of the steps that are timed; the first one, which warms up, is not."""
COSTLY_CPU_S = 1.0
"""A batch whose dry run took longer is timed with fewer samples, and counts in proportion."""


def timed(trial: Trial, tried: Tried) -> tuple[float, float]:
    """Seconds of a step, and its share of the evaluation after each epoch; alone, with the threads of this process.

    This trains the network further; the default RNG stays the same.
    """
    hyper, step = trial.spec.hyperparameters, tried.step

    def learn(size: int) -> None:
        for part in lengths(size, hyper.shares):
            _learn(trial, tried, part)
        tried.optimizer.step()

    @torch.no_grad()
    def evaluate(size: int) -> None:
        if trial.test is not None:
            batch = step.prepare(trial.test.batch(torch.arange(size) % trial.test.samples), training=False)
            step.loss(tried.criterion, step.forward(tried.module, batch), batch, training=False)

    whole = min(hyper.batch_size, trial.train.samples)
    few = int(COSTLY_CPU_S / max(tried.cpu_s_per_sample, 1e-9))
    size = min(whole, max(few, trial.batch_size))
    with torch.random.fork_rng(devices=[]):
        tried.module.train()
        step_s = hyper.accumulation_steps * _seconds(lambda: learn(size)) * whole / size
        if trial.test is None:
            return step_s, 0.0
        tried.module.eval()
        evaluation_s = _seconds(lambda: evaluate(size)) * trial.test.samples / size
        tried.module.train()
    return step_s, evaluation_s / hyper.steps_per_epoch(trial.train.samples)


def part_times(trial: Trial, tried: Tried) -> dict[int, float]:
    """Seconds of forward and backward of a part, by its samples: a quarter of the batch, a half, and all of it."""
    whole = min(trial.spec.hyperparameters.batch_size, trial.train.samples)
    sizes = {max(trial.batch_size, -(-whole // parts)) for parts in (4, 2, 1)}
    with torch.random.fork_rng(devices=[]):
        tried.module.train()
        return {size: _seconds(partial(_learn, trial, tried, size)) for size in sizes}


def _learn(trial: Trial, tried: Tried, size: int) -> None:
    batch = tried.step.prepare(trial.train.batch(torch.arange(size) % trial.train.samples), training=True)
    tried.optimizer.zero_grad(set_to_none=True)
    with tried.techniques.part(tried.module, batch.tensors):
        outputs = tried.step.forward(tried.module, batch)
        tried.step.loss(tried.criterion, outputs, batch).backward()  # type: ignore[no-untyped-call]


def _seconds(work: Callable[[], None]) -> float:
    """Median of a few times; with one thread its CPU time, which other programs do not lengthen.

    Not that of the process: while a timer limits it, Linux counts it in ticks.
    """
    now_s = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    work()
    took_s = list[float]()
    while len(took_s) < TIMES and sum(took_s) < MOST_CPU_S:
        began_s = now_s()
        work()
        took_s.append(now_s() - began_s)
    return median(took_s)
