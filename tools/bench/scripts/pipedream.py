"""PipeDream: each network is a straight pipeline of stages under 1F1B with weight stashing, all on its one device.

After Narayanan et al. (SOSP 2019). PipeDream is made for several devices; the paper compares it on one, where versions
of weights and batches under way are its price. A batch goes forward and backward through a stage with one version of
its weights: the leaves that a forward used stay as they are, and the optimizer writes into a copy. Buffers have one
version that all batches change. Stages are cut by measured times, so that the slowest is as fast as can be.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call
from torch.fx.passes.split_module import split_module
from torch.optim import Optimizer

from unifiednn_core.compare import vanilla
from unifiednn_core.data.batch import Batch

STAGES, REPEATS = 4, 3
LossOf = Callable[[Tensor], Tensor]


class _Flight(NamedTuple):
    """A batch between its forward and its backward through one stage."""

    inputs: Tensor
    output: Tensor
    leaves: Mapping[str, Tensor]


class Stage:
    """One stage: its newest weights, and those with which batches are under way."""

    def __init__(self, module: nn.Module, optimizer: Optimizer):
        """`optimizer` may know more weights: it steps where gradients are."""
        self.module, self._optimizer = module, optimizer
        self._weights = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._newest = self._leaves()
        self._flights: dict[int, _Flight] = {}

    def forward(self, batch: int, inputs: Tensor, loss_of: LossOf | None, *, is_first: bool) -> Tensor:
        """Take a batch forward with the newest weights; returns the output without gradients.

        The first stage needs no gradient of its inputs; the last one has the loss.
        """
        given = inputs.detach().requires_grad_(inputs.is_floating_point() and not is_first)
        output: Tensor = functional_call(self.module, dict(self._newest), (given,))
        self._flights[batch] = _Flight(given, output if loss_of is None else loss_of(output), self._newest)
        return output.detach()

    def loss(self, batch: int) -> Tensor:
        """The loss of a batch under way through the last stage."""
        return self._flights[batch].output.detach()

    def backward(self, batch: int, gradient: Tensor | None) -> Tensor | None:
        """Take a batch backward with the weights of its forward, and update the newest; returns the inputs' gradient.

        `gradient` is that of the output, None of a loss.
        """
        flight = self._flights.pop(batch)
        names = tuple(flight.leaves)
        wanted = [flight.inputs] if flight.inputs.requires_grad else []
        if not wanted and not names:
            return None
        found = torch.autograd.grad(flight.output, [*wanted, *flight.leaves.values()], gradient, allow_unused=True)
        del flight  # its version of the weights is gone before the update makes another one
        self._update(dict(zip(names, found[len(wanted) :], strict=True)))
        return found[0] if wanted else None

    def _update(self, gradients: Mapping[str, Tensor | None]) -> None:
        used = any(one.leaves is self._newest for one in self._flights.values())
        for name, weight in self._weights.items():
            weight.grad = gradients[name]
            if used:  # a batch under way needs what the optimizer writes into
                weight.data = weight.data.clone(memory_format=torch.preserve_format)
        self._optimizer.step()
        for weight in self._weights.values():
            weight.grad = None
        self._newest = self._leaves()

    def _leaves(self) -> dict[str, Tensor]:
        """The newest weights as leaves of their own, on the same memory."""
        return {name: one.data.requires_grad_() for name, one in self._weights.items()}


def schedule(stages: int, batches: int) -> Iterator[tuple[int, int, bool]]:
    """1F1B in an order in which one device can do it all: stage, batch, and whether it goes forward.

    A stage takes as many batches forward as there are stages after it, then one forward and one backward in turns.
    """
    forward, backward = [0] * stages, [0] * stages  # batches done
    while backward[0] < batches:
        ready = []
        for stage, (ahead, behind) in enumerate(zip(forward, backward, strict=True)):
            if ahead < batches and ahead - behind <= stages - 1 - stage:
                if stage == 0 or forward[stage - 1] > ahead:
                    ready.append((stage, ahead, True))
            elif behind < ahead and (stage == stages - 1 or backward[stage + 1] > behind):
                ready.append((stage, behind, False))
        yield from ready
        for stage, _, goes_forward in ready:
            (forward if goes_forward else backward)[stage] += 1


def partition(times_s: Sequence[float], stages: int) -> list[tuple[int, int]]:
    """Cut consecutive layers into so many stages, whose slowest takes as little time as can be."""
    count = len(times_s)

    @cache
    def best(first: int, left: int) -> tuple[float, list[tuple[int, int]]]:
        if left == 1:
            return sum(times_s[first:]), [(first, count)]
        ways = []
        for end in range(first + 1, count - left + 2):
            rest_s, rest = best(end, left - 1)
            ways.append((max(sum(times_s[first:end]), rest_s), [(first, end), *rest]))
        return min(ways, key=itemgetter(0))

    return best(0, min(stages, count))[1]


def stages_of(network: nn.Module, inputs: Tensor) -> list[nn.Module]:
    """Measure the layers of a network for one batch, and cut it into stages that share its weights and buffers."""
    layers, times_s = layers_of(network), []
    for layer in layers:
        buffers = {name: one.clone() for name, one in layer.named_buffers()}
        given = inputs.detach().requires_grad_(inputs.is_floating_point())
        taken_s = []
        for _ in range(1 + REPEATS):  # the first one takes longer
            begun_s = _now_s(inputs.device)
            output: Tensor = functional_call(layer, buffers, (given,))
            if output.requires_grad:
                wanted = [given, *(one for one in layer.parameters() if one.requires_grad)]
                torch.autograd.grad(output, wanted, torch.ones_like(output), allow_unused=True)
            taken_s.append(_now_s(inputs.device) - begun_s)
        times_s.append(min(taken_s[1:]))
        inputs = output.detach()
    return [nn.Sequential(*layers[first:end]) for first, end in partition(times_s, STAGES)]


def layers_of(network: nn.Module) -> list[nn.Module]:
    """A network as consecutive layers: cut wherever one tensor alone goes on, which nothing changes in place."""
    traced = fx.symbolic_trace(network)
    nodes = [node for node in traced.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    places = {node: place for place, node in enumerate(nodes)} | {traced.graph.output_node(): len(nodes)}
    layer_of, layer, needed_until = dict[str, int](), 0, -1
    for place, node in enumerate(nodes):
        layer_of[node.name] = layer
        ends = needed_until <= place and not any(_writes_into(user, traced) for user in node.users)
        layer += ends
        needed_until = max(needed_until, *(places[user] for user in node.users))
    split = split_module(traced, network, lambda node: layer_of.get(node.name, 0))
    return list(split.children())


def _writes_into(user: fx.Node, traced: fx.GraphModule) -> bool:
    """Whether an operator changes one of its inputs in place."""
    if user.op == "call_module":
        return bool(getattr(traced.get_submodule(str(user.target)), "inplace", False))
    name = str(getattr(user.target, "__name__", user.target))
    return bool(user.kwargs.get("inplace")) or name.endswith("_") or name in ("iadd", "imul")


def _now_s(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class PipeDreamScript(vanilla.PlainScript):
    """The plain script with a pipeline, which is filled and drained in each epoch; its stages share one optimizer."""

    def train(self) -> nn.Module:
        """Train all epochs."""
        facts = vanilla.facts_of(self.device, self.job.threads)
        self.progress.write("begun", environment=facts, step=self.steps_done, epoch=self.epochs_done)
        while self.epochs_done < self.job.epochs:
            self._train_epoch()
            self._end_epoch()
        return self.module

    @cached_property
    def _stages(self) -> list[Stage]:
        loader: Any = self.train_data
        batch = self._prepared([tensor[: self.job.batch_size] for tensor in loader.dataset.tensors])
        return [Stage(module, self.optimizer) for module in stages_of(self.module, batch.tensors[0])]

    def _prepared(self, loaded: vanilla.Loaded) -> Batch:
        return self.meaning.prepare(self._batch(self._placed(loaded)))

    def _train_epoch(self) -> None:
        coming, count = self._timed(self.train_data), len(self.train_data)
        under_way: dict[int, Batch] = {}
        outputs: dict[tuple[int, int], Tensor] = {}  # by the stage that waits for it, and batch
        gradients: dict[tuple[int, int], Tensor | None] = {}
        last = len(self._stages) - 1
        for place, number, goes_forward in schedule(last + 1, count):
            stage = self._stages[place]
            if not goes_forward:
                gradients[place - 1, number] = stage.backward(number, gradients.pop((place, number), None))
                continue
            if place == 0:
                under_way[number] = self._prepared(next(coming))
                outputs[0, number] = under_way[number].tensors[0]
            loss_of = partial(self._loss, under_way[number]) if place == last else None
            output = stage.forward(number, outputs.pop((place, number)), loss_of, is_first=place == 0)
            outputs[place + 1, number] = output
            if place == last:
                self._note(stage.loss(number), outputs.pop((place + 1, number)), under_way.pop(number))

    def _loss(self, batch: Batch, output: Tensor) -> Tensor:
        return self.meaning.loss(self.criterion, [output], batch)

    def _note(self, loss: Tensor, output: Tensor, batch: Batch) -> None:
        """Record a batch that has passed all stages forward as a step."""
        self.steps_done += 1
        correct, labels = self._answers([output], batch.targets, self.ignored)
        self.sums.add(loss, len(output), correct, labels)
        self.progress.step(self.steps_done, self.steps_done / self.steps_per_epoch, loss, correct, labels)


if __name__ == "__main__":
    with patch.object(vanilla, "PlainScript", PipeDreamScript):
        vanilla.main()
