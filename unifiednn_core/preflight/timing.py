"""Times a few steps of a sub-model on the CPU, so that a forecast knows its speed before it has ever trained."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.techniques.virtual_nodes import lengths

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
