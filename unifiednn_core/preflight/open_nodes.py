"""What a check has to find out where virtual nodes are open: how small a part may be, and how long one takes."""

import torch

from unifiednn_core.preflight.timing import part_times
from unifiednn_core.preflight.trial import TORCH_ERRORS, OutOfTime, Trial, Tried, at_most_cpu

MOST_CPU_S = 10.0


def measured_times(trial: Trial, tried: Tried) -> tuple[dict[int, float], ...]:
    """Times by the samples of a part, for each logical device, if shares are to be measured; else none."""
    nodes = trial.spec.hyperparameters.nodes
    if nodes is None or nodes.shares != "measured":
        return ()
    try:
        with at_most_cpu(nodes.devices * MOST_CPU_S):
            return tuple(part_times(trial, tried) for _ in range(nodes.devices))
    except OutOfTime:
        return ()


def least_part_of(trial: Trial, tried: Tried) -> int:
    """Samples that a part needs, as far as virtual nodes are left open. It trains the network further, so be the last.

    Batch normalisation of one value has no variance: some layers refuse it, others make NaN of it.
    """
    nodes = trial.spec.hyperparameters.nodes
    if nodes is None or not nodes.is_open or trial.definition.min_batch > 1:
        return trial.definition.min_batch
    try:
        with at_most_cpu(MOST_CPU_S), torch.no_grad(), torch.random.fork_rng(devices=[]):
            batch = tried.step.prepare(trial.train.batch(torch.arange(1)), training=True)
            tried.step.forward(tried.module.train(), batch)
    except (OutOfTime, *TORCH_ERRORS):
        return 2
    return 2 if any(bool(one.isnan().any()) for one in tried.module.buffers() if one.is_floating_point()) else 1
