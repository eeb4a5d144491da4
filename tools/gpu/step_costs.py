"""What a step costs on a GPU: plain PyTorch, its captured graph, and the engine around it."""

import argparse
import copy
import sys
import warnings
from collections.abc import Callable
from time import perf_counter

import torch
from torch.nn.functional import cross_entropy

from tests.gpu.checks import IN_TURNS
from tests.gpu.kit import KINDS, Bench, dataset, spec_of
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.events import StepsRecorded

NETWORKS = ("lenet", "resnet", "transformer", "roberta")
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
BATCH, EPOCHS, STEPS, WARM_UP_STEPS = 8, 400, 200, 20


def mean_us(step: Callable[[], object]) -> float:
    """Mean time of a step by the clock, in microseconds."""
    for _ in range(WARM_UP_STEPS):
        step()
    torch.cuda.synchronize()
    began_s = perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return 1e6 * (perf_counter() - began_s) / STEPS


def plain(name: str, device: torch.device) -> tuple[float, float, float]:
    """Microseconds of a step: eager, captured but for the optimizer, and forward and backward captured alone."""
    kind = KINDS[name]
    bench = Bench(device, [(name, kind, spec_of(name, kind))], IN_TURNS)
    module = copy.deepcopy(bench.submodels[0].module).to(device).train()
    data = dataset(kind, 37, 0)
    assert data.targets is not None  # for the type checker
    inputs, targets = data.first[:BATCH].to(device), data.targets[:BATCH].to(device)
    optimizer = OPTIMIZERS[kind.optimizer](module.parameters(), lr=0.001)

    def learn() -> None:
        torch.autograd.backward(cross_entropy(module(inputs), targets))

    def eager() -> None:
        optimizer.zero_grad(set_to_none=True)
        learn()
        optimizer.step()

    eager_us = mean_us(eager)
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]  # libraries prepare here what a capture cannot
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            learn()
    torch.cuda.synchronize()
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        learn()

    def replayed() -> None:
        graph.replay()
        optimizer.step()

    return eager_us, mean_us(replayed), mean_us(graph.replay)


def engine(name: str, device: torch.device) -> tuple[float, list[tuple[str | None, float | None]]]:
    """Microseconds of a step in the engine, with evaluation after each epoch; what it says of recorded steps."""
    kind = KINDS[name]
    bench = Bench(device, [(name, kind, spec_of(name, kind, epochs=EPOCHS))], IN_TURNS)
    began_s = perf_counter()
    bench.run()
    torch.cuda.synchronize()
    steps = max(getattr(report, "step", 0) or 0 for report in bench.reports)
    recorded = [(one.refused, one.gain) for one in bench.reports if isinstance(one, StepsRecorded)]
    return 1e6 * (perf_counter() - began_s) / steps, recorded


def main() -> None:
    """Print a line for each network."""
    warnings.filterwarnings("ignore")
    device = torch.device("cuda", 0)
    for name in NETWORKS:
        with exact_profile(device, 1), torch.random.fork_rng(devices=[device]):
            eager_us, half_us, graph_us = plain(name, device)
        engine_us, recorded = engine(name, device)
        sys.stdout.write(
            f"{name}: eager {eager_us:.0f} us, graph and eager optimizer {half_us:.0f}, graph alone {graph_us:.0f}, "
            f"engine {engine_us:.0f}; recorded {recorded}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.gpu.step_costs", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="try the imports alone")
    if not parser.parse_args().dry_run:
        main()
