"""A sub-model on several devices: which operator of its network runs where, and the network that does it.

The placed network is the network of the file with another `forward`: its weights, buffers and their keys stay.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map_only

from unifiednn_core.base.errors import BadInput, Infeasible
from unifiednn_core.data.datasets import DataSource
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.optimizers import optimizer_of
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.draws import is_of_file
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.placement import PlacementSpec
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.placement.costs import MachineRates, costs
from unifiednn_core.techniques.placement.execute import PlacedNetwork
from unifiednn_core.techniques.placement.graph import CostGraph, Link
from unifiednn_core.techniques.placement.place import PlacedOps, place
from unifiednn_core.techniques.placement.simulate import Tasks, peaks_bytes
from unifiednn_core.techniques.virtual_nodes import lengths

FEW = 2
"""Samples with which operators are measured, and as many again; a larger batch lies on the line through the two."""


@dataclass(frozen=True, slots=True)
class NetworkPlacement:
    """Where each operator of a network runs."""

    graph: CostGraph
    """What each operator costs."""
    device_of: Sequence[int]
    devices: int
    claims: bool
    """Whether the devices are to be the run's own."""
    ops: PlacedOps | None = None
    """What a step takes; None for a plan that the check made."""

    def of(self, definition: Definition, devices: Sequence[torch.device] | None = None) -> Definition:
        """The definition of the network placed on these devices, or on logical ones of the device of its weights."""

        def build() -> nn.Module:
            network = definition.build()
            self.apply(network, devices)
            return network

        return replace(definition, build=build)

    def apply(self, network: nn.Module, devices: Sequence[torch.device] | None = None) -> None:
        """Let a network that the definition built run on its devices."""
        if is_of_file(network):
            own = None if devices is None or len(devices) < self.devices else tuple(devices[: self.devices])
            forward: Any = PlacedForward(network, self.graph, self.device_of, self.devices, own)
            network.forward = forward


def placed(
    spec: SubModelSpec, definition: Definition, data: DataSource, *, by_clock: bool = False
) -> NetworkPlacement | None:
    """Place the network of a sub-model, as its spec says; None if that asks for no placement. Raises `BadInput`.

    With `by_clock`, as at the check, seconds of operators are measured, and a plan of the spec is kept if it fits the
    network and its limits. Otherwise the plan is one that the check made, and is kept if it fits the network; without
    one seconds follow from counted operations. Runs each operator on a few samples, and draws no random numbers.
    """
    asked = spec.placement
    if asked is None:
        return None
    with torch.random.fork_rng(devices=[]):
        module = definition.build()
        if not is_of_file(module):
            message = "Only exported graphs can be placed: an operator is what runs on a device."
            remedy = "Export the network with torch.export and give the .pt2 file, or remove 'placement'."
            raise _refused(spec, message, remedy)
        cost_of = _Costs(spec, definition, module, data)
        if asked.plan is not None and not by_clock:
            trained = [one for one in module.parameters() if one.requires_grad]
            module.requires_grad_(False)  # nothing goes back, for which torch would load sympy
            graph = cost_of(cost_of.few, None, repeats=1)
            for one in trained:
                one.requires_grad_(True)
            if _is_plan_of(graph, asked.device_of):
                return NetworkPlacement(graph, asked.device_of, asked.devices, asked.claim)
        graph = cost_of.batch(None if by_clock else MachineRates())
    ops = _as_planned(graph, asked)
    if ops is None:
        try:
            ops = place(graph, asked.caps_bytes)
        except Infeasible as error:
            remedy = "Allow more memory, use more devices, or make the batch smaller."
            raise _refused(spec, str(error), remedy, title="Does not fit") from None
    return NetworkPlacement(graph, ops.device_of, asked.devices, asked.claim, ops)


def follow(module: nn.Module, *, away: bool) -> None:
    """After a move of a placed network to one device let its weights go to their own, or wait there if it is `away`."""
    forward = module.__dict__.get("forward")
    if isinstance(forward, PlacedForward):
        forward.follow(away=away)


class PlacedForward:
    """Runs a placed network on its own devices, or on logical ones of the device that has its weights.

    It is cut anew when weights and buffers went to another device.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        graph: CostGraph,
        device_of: Sequence[int],
        devices: int,
        own: tuple[torch.device, ...] | None = None,
    ):
        self._module, self._graph, self._device_of, self._devices = module, graph, device_of, devices
        self._own = own
        self._guard = module.__dict__["forward"]
        self._network: PlacedNetwork | None = None
        self._buffers: list[Tensor] = []

    @property
    def network(self) -> PlacedNetwork:
        """The network in parts, where its weights are now."""
        weight, buffers = next(self._module.parameters()), list(self._module.buffers())
        devices = self._own or (weight.device,) * self._devices
        if (
            self._network is None
            or self._network.devices != devices
            or any(one is not other for one, other in zip(buffers, self._buffers, strict=True))
        ):
            with self._as_in_the_file():
                self._network = PlacedNetwork(self._module, self._graph, self._device_of, devices)
            self._buffers = list(self._module.buffers())
        return self._network

    def follow(self, *, away: bool) -> None:
        """Move each weight to its own device, unless the network waits elsewhere."""
        if self._own is not None:
            self._network, self._buffers = None, []
            self._network = None if away else self.network

    def __call__(self, *inputs: Any) -> Any:
        """Run the network; its outputs are on the device of the first tensor that it gets."""
        results = self.network(*inputs)
        if self._own is None:
            return results
        home = next(one.device for one in inputs if isinstance(one, Tensor))
        return tree_map_only(Tensor, lambda one: one.to(home), results)

    @contextmanager
    def _as_in_the_file(self) -> Iterator[None]:
        self._module.forward = self._guard
        try:
            yield
        finally:
            self._module.forward = self


class _Costs:
    """Measures the operators of a network on samples of a data set."""

    def __init__(self, spec: SubModelSpec, definition: Definition, module: fx.GraphModule, data: DataSource):
        self._spec, self._module, self._data = spec, module, data
        self._step = training_step(spec, definition, tuple(data.inputs), has_targets=data.targets is not None)
        self._optimizer_tensors = _tensors_of_optimizer(spec.hyperparameters)
        self.few = max(FEW, definition.min_batch)

    def __call__(self, samples: int, rates: MachineRates | None, *, repeats: int = 3) -> CostGraph:
        """Costs at so many samples."""
        chosen = torch.arange(samples) % self._data.samples
        batch = self._step.prepare(self._data.batch(chosen), training=False)
        given = [one.cpu() for one in self._step.given(batch) if one is not None]
        return costs(self._module, given, rates=rates, repeats=repeats, optimizer_tensors=self._optimizer_tensors)

    def batch(self, rates: MachineRates | None) -> CostGraph:
        """Costs at the largest part of a batch."""
        hyper, few = self._spec.hyperparameters, self.few
        size = max(lengths(min(hyper.batch_size, self._data.samples), hyper.shares))
        if size <= 2 * few:
            return self(size, rates)
        return at_size(self(few, rates), self(2 * few, rates), (few, 2 * few), size)


def at_size(low: CostGraph, high: CostGraph, sizes: tuple[int, int], size: int) -> CostGraph:
    """Return costs of a larger batch: bytes on the line through two smaller ones, seconds in proportion to `high`."""

    def line(small: int, large: int) -> int:
        return large + (large - small) * (size - sizes[1]) // (sizes[1] - sizes[0])

    times = size / sizes[1]
    ops = tuple(
        replace(
            b,
            forward_s=b.forward_s * times,
            backward_s=b.backward_s * times,
            output_bytes=line(a.output_bytes, b.output_bytes),
            saved_bytes=line(a.saved_bytes, b.saved_bytes),
        )
        for a, b in zip(low.ops, high.ops, strict=True)
    )
    edges = tuple(
        replace(b, size_bytes=line(a.size_bytes, b.size_bytes), gradient_bytes=line(a.gradient_bytes, b.gradient_bytes))
        for a, b in zip(low.edges, high.edges, strict=True)
    )
    return CostGraph(ops, edges, high.weights, high.together, high.training)


def _is_plan_of(graph: CostGraph, device_of: Sequence[int]) -> bool:
    """Whether there is a device for each operator, and one for operators that have to be together."""
    return len(device_of) == len(graph.ops) and all(len({device_of[one] for one in unit}) == 1 for unit in graph.units)


def _as_planned(graph: CostGraph, asked: PlacementSpec) -> PlacedOps | None:
    """What the plan of the spec takes; None if there is none, or if it fits neither the network nor the limits."""
    device_of, caps, link = asked.device_of, asked.caps_bytes, Link()
    if not _is_plan_of(graph, device_of):
        return None
    tasks = Tasks(graph)
    times = tasks.list_schedule(device_of, len(caps), link)
    peaks = peaks_bytes(tasks, device_of, len(caps), link, times)
    if any(cap is not None and peak > cap for peak, cap in zip(peaks, caps, strict=True)):
        return None
    program_s = tasks.program_order(device_of, len(caps), link).makespan_s
    return PlacedOps(device_of, times.makespan_s, program_s, graph.bound_s(len(caps)), peaks)


def _tensors_of_optimizer(hyper: Hyperparameters) -> int:
    """Tensors of the size of a weight that the optimizer, and a moving average, keep for each."""
    weight = nn.Parameter(torch.zeros(3, 5))
    weight.grad = torch.zeros_like(weight)
    optimizer = optimizer_of([{"params": [weight]}], hyper)
    optimizer.step()
    kept = optimizer.state[weight].values()
    same = sum(isinstance(one, Tensor) and one.shape == weight.shape for one in kept)
    return same + (hyper.ema is not None)


def _refused(spec: SubModelSpec, message: str, remedy: str, title: str = "Placement") -> BadInput:
    return BadInput.of(title, f"submodels.{spec.name}.placement", message, remedy)
