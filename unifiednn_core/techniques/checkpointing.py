"""Activation checkpointing: segments of a network keep only their inputs, and backward computes the rest again.

The idea of Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).
"""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Generator, Tensor, fx, nn

from unifiednn_core.base.errors import NotApplicable
from unifiednn_core.formats.draws import is_of_file
from unifiednn_core.techniques.graph_segments import Piece, pieces_of
from unifiednn_core.techniques.recompute import Keep, recomputed
from unifiednn_core.techniques.segments import Segmented, forward_of, segmented


class Segmenting:
    """The technique for one network, which it cuts at the first part."""

    def __init__(self, segments: int | None = None):
        """About `segments` segments; None is what `segments.segmented` and `graph_segments.pieces_of` choose."""
        self._segments = segments
        self._network: weakref.ref[nn.Module] | None = None
        self._layers: list[Segmented] = []
        self._pieces: list[Piece] = []

    @contextmanager
    def part(self, network: nn.Module, keep: Keep, generator: Generator | None = None) -> Iterator[None]:
        """Let the network run in segments, which `keep` their inputs; it may draw from a `generator` of its own.

        Raises `NotApplicable` for a network that cannot be cut.
        """
        self.prepare(network)
        wrap = partial(_wrapped, generators=_generators(network, generator), keep=keep)
        if isinstance(network, fx.GraphModule) and self._pieces:
            forwards: list[tuple[nn.Module, Callable[..., Any]]] = [(network, _in_pieces(network, self._pieces, wrap))]
        else:
            layered = partial(_layers_wrapped, wrap=wrap)
            forwards = [(one.owner, forward_of(one, layered, last=one.owner is network)) for one in self._layers]
        with _replaced(forwards):
            yield

    def prepare(self, network: nn.Module) -> int:
        """Cut a network, once; returns the number of segments. Raises `NotApplicable`."""
        if self._network is None or self._network() is not network:
            self._layers, self._pieces = [], []
            if is_of_file(network):
                self._pieces = pieces_of(network, self._segments)
            else:
                self._layers = segmented(network, self._segments)
            self._network = weakref.ref(network)
        count = len(self._pieces) + sum(max(1, len(one.groups)) for one in self._layers)
        if count < 2:
            found = "no two layers follow each other in a Sequential, and no block comes twice"
            if self._pieces:
                found = "its graph has no place that a single tensor leads through"
            raise NotApplicable("checkpointing", found)
        return count


def _generators(network: nn.Module, own: Generator | None) -> list[Generator]:
    """Generators that a network may draw from."""
    found = [torch.default_generator] if own is None else [torch.default_generator, own]
    devices = {one.device for one in network.parameters() if one.device.type == "cuda"}
    return [*found, *(torch.cuda.default_generators[device.index or 0] for device in devices)]


def _wrapped(
    function: Callable[..., Any], buffers: Callable[[], Sequence[Tensor]], *, generators: list[Generator], keep: Keep
) -> Callable[..., Any]:
    def forward(*inputs: Any, **given: Any) -> Any:
        return recomputed(function, inputs, given, generators=generators, buffers=buffers(), keep=keep)

    return forward


def _layers_wrapped(
    function: Callable[..., Any], layers: Sequence[nn.Module], *, wrap: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    return wrap(function, lambda: [buffer for layer in layers for buffer in layer.buffers()])


def _in_pieces(
    network: fx.GraphModule, pieces: Sequence[Piece], wrap: Callable[..., Callable[..., Any]]
) -> Callable[..., Any]:
    """Make the forward of a graph in pieces; the last one stays as it is: backward would need it at once."""
    steps = [wrap(piece.guard, partial(piece.buffers_of, network)) for piece in pieces[:-1]]
    steps.append(pieces[-1].guard)
    names = [node.name for node in network.graph.nodes if node.op == "placeholder"]

    def forward(*inputs: Tensor) -> Any:
        values, outputs = dict[str, Any](zip(names, inputs, strict=True)), None
        for piece, step in zip(pieces, steps, strict=True):
            part = piece.part
            part.module.training = network.training
            given = [values.pop(name) if name in part.last_used else values[name] for name in part.inputs]
            outputs = step(*given)
            if part.outputs:
                values.update(zip(part.outputs, outputs, strict=True))
        return outputs

    return forward


@contextmanager
def _replaced(forwards: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Give modules another forward for a while."""
    before: list[tuple[nn.Module, Any]] = [(module, module.__dict__.get("forward")) for module, _ in forwards]
    for module, forward in forwards:
        module.__dict__["forward"] = forward
    try:
        yield
    finally:
        for module, forward in before:
            if forward is None:
                del module.__dict__["forward"]
            else:
                module.__dict__["forward"] = forward
