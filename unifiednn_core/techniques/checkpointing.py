"""Activation checkpointing: segments of a network keep only their inputs, and backward computes the rest again.

The idea of Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016).

`recomputed` does what torch's own `checkpoint` does without reentry, with the same bits, and more: it restores random
numbers of any generator, and buffers such as running statistics, which are updated once. Torch's loads its compiler,
which a worker has no use for.
"""

import operator
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any, Literal

import torch
from torch import Generator, Tensor, fx, nn
from torch.autograd.graph import saved_tensors_hooks

from unifiednn_core.base.errors import NotApplicable
from unifiednn_core.formats.draws import graphs_of, is_of_file
from unifiednn_core.formats.guard import GraphGuard
from unifiednn_core.formats.subgraph import GraphPart, changed_by, given_to, graph_parts, nodes_in, schema_of

_KINDS = ("cpu", "cuda")
Keep = Callable[[Tensor], Callable[[], Tensor]]
"""Keeps a tensor until backward, which gets it by a call."""


def keep_as_it_is(tensor: Tensor) -> Callable[[], Tensor]:
    """Keep a tensor where it is."""
    return lambda: tensor


def recomputed(
    function: Callable[..., Any],
    inputs: tuple[Any, ...],
    given: dict[str, Any],
    *,
    generators: Sequence[Generator],
    buffers: Sequence[Tensor],
    keep: Keep = keep_as_it_is,
) -> Any:
    """Call `function(*inputs, **given)`; what it saves for backward is computed again there.

    It may draw from `generators` and write into `buffers`. Raises `NotApplicable` if it writes into an input.
    """
    if not torch.is_grad_enabled():
        return function(*inputs, **given)
    versions = [one._version if isinstance(one, Tensor) else 0 for one in inputs]
    call = _Call(function, inputs, given, _State.of(generators, buffers), keep)
    with saved_tensors_hooks(call.pack, call.unpack):
        outputs = function(*inputs, **given)
    if versions != [one._version if isinstance(one, Tensor) else 0 for one in inputs]:
        raise NotApplicable("checkpointing", "a segment writes into its input, so it cannot be computed again")
    call.state.drop_unchanged()
    return outputs


class _Enough(Exception):
    """All that backward needs is there."""


class _Holder:
    """The place of one saved tensor; it lives as long as backward may ask for it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self) -> None:
        self.tensor: Tensor | None = None


class _Call:
    """One pass through a segment. What autograd saves holds it."""

    def __init__(
        self, function: Callable[..., Any], inputs: tuple[Any, ...], given: dict[str, Any], state: "_State", keep: Keep
    ):
        self._function, self._given, self.state = function, given, state
        self._inputs = [_kept(one, keep) for one in inputs]
        self._autocast = [_Autocast.of(kind) for kind in _KINDS]
        self._holders: list[weakref.ref[_Holder]] = []

    def pack(self, _: Tensor) -> _Holder:
        holder = _Holder()
        self._holders.append(weakref.ref(holder))
        return holder

    def unpack(self, holder: _Holder) -> Tensor:
        if holder.tensor is None:
            self._again()
        if holder.tensor is None:
            raise NotApplicable("checkpointing", "a segment computed something else when it ran again")
        return holder.tensor

    def _again(self) -> None:
        place = 0

        def pack(saved: Tensor) -> None:
            nonlocal place
            if place < len(self._holders) and (holder := self._holders[place]()) is not None:
                holder.tensor = saved.detach()
            place += 1
            if place >= len(self._holders):
                raise _Enough

        inputs = [get() for get in self._inputs]
        with ExitStack() as stack:
            stack.enter_context(saved_tensors_hooks(pack, _never))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(self.state.again())
            for autocast in self._autocast:
                stack.enter_context(autocast.again())
            try:
                self._function(*inputs, **self._given)
            except _Enough:
                return


def _never(_: None) -> Tensor:
    raise RuntimeError("backward was called on a recomputed forward")


def _kept(one: Any, keep: Keep) -> Callable[[], Any]:
    """Keep an argument without its history; a tensor that gets a gradient gets one again."""
    if not isinstance(one, Tensor):
        return lambda: one
    get, wants = keep(one.detach()), one.requires_grad
    return lambda: get().detach().requires_grad_(wants)


@dataclass(slots=True)
class _Buffer:
    """A buffer as it was, and its version."""

    tensor: Tensor
    before: Tensor
    version: int


@dataclass(slots=True)
class _State:
    """What a forward depends on besides weights and inputs, as it was before it."""

    generators: Sequence[Generator]
    states: list[Tensor]
    buffers: list[_Buffer]

    @classmethod
    def of(cls, generators: Sequence[Generator], buffers: Sequence[Tensor]) -> "_State":
        """The present state."""
        copies = [_Buffer(one, one.detach().clone(), one._version) for one in buffers]
        return cls(generators, [one.get_state() for one in generators], copies)

    def drop_unchanged(self) -> None:
        """Forget whole numbers that nobody has written; kernels of normalisation write floating point ones unseen."""
        self.buffers = [
            one for one in self.buffers if one.tensor.is_floating_point() or one.tensor._version != one.version
        ]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Go back to it for a while."""
        states = [one.get_state() for one in self.generators]
        after = [one.tensor.detach().clone() for one in self.buffers]
        try:
            for generator, state in zip(self.generators, self.states, strict=True):
                generator.set_state(state)
            for buffer in self.buffers:
                buffer.tensor.data.copy_(buffer.before)  # `data`: what autograd saved has the version of before
            yield
        finally:
            for generator, state in zip(self.generators, states, strict=True):
                generator.set_state(state)
            for buffer, value in zip(self.buffers, after, strict=True):
                buffer.tensor.data.copy_(value)


@dataclass(frozen=True, slots=True)
class _Autocast:
    """Torch's autocast on one kind of device, as it was."""

    kind: str
    dtype: torch.dtype | None
    """None if it was off."""

    @classmethod
    def of(cls, kind: str) -> "_Autocast":
        return cls(kind, torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None)

    def again(self) -> torch.autocast:
        return torch.autocast(self.kind, self.dtype, enabled=self.dtype is not None, cache_enabled=False)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True, slots=True)
class Run:
    """Layers of a Sequential, one after the other, or a single block."""

    owner: nn.Module
    layers: tuple[nn.Module, ...]
    """Empty for a block."""

    @property
    def units(self) -> int:
        """Of how many pieces segments can be made."""
        return len(self.layers) or 1


@dataclass(frozen=True, slots=True)
class Segmented:
    """A run with its layers in groups; those of a block are none."""

    owner: nn.Module
    groups: tuple[tuple[nn.Module, ...], ...]


def segmented(network: nn.Module, segments: int | None) -> list[Segmented]:
    """Cut a network into about so many segments; by default each block is one, and single layers are grouped.

    Of n layers in a Sequential the root of n is best: as much is between segments as inside of one. A block outside of
    a Sequential is always one. Empty if there is neither a Sequential of two layers or more nor a class of blocks.
    """
    runs = list(_runs(network, Counter(type(one) for one in network.modules())))
    total = sum(run.units for run in runs)
    if total < 2:
        return []

    def count(run: Run) -> int:
        if segments is not None:
            return max(1, round(segments * run.units / total))
        blocks = sum(1 for layer in run.layers if next(layer.children(), None) is not None)
        return run.units if 2 * blocks > run.units else max(2, isqrt(run.units))

    return [Segmented(run.owner, _groups(run.layers, count(run))) for run in runs]


def _runs(module: nn.Module, counts: Counter[type[nn.Module]]) -> Iterator[Run]:
    for child in module.children() if not _is_plain(module) else [module]:
        if _is_plain(child):
            layers = tuple(_flat(child))
            if len(layers) > 1:
                yield Run(child, layers)
        elif counts[type(child)] > 1 and sum(1 for _ in child.children()) > 1 and not isinstance(child, _LISTS):
            yield Run(child, ())
        else:
            yield from _runs(child, counts)


_LISTS = (nn.ModuleList, nn.ModuleDict)


def _is_plain(module: nn.Module) -> bool:
    """Whether it calls its children one after the other, and nothing else happens."""
    is_sequential = type(module).forward is nn.Sequential.forward and isinstance(module, nn.Sequential)
    return is_sequential and "forward" not in module.__dict__ and not any(getattr(module, name) for name in _HOOKS)


def _flat(run: nn.Module) -> Iterator[nn.Module]:
    for layer in run.children():
        if _is_plain(layer):
            yield from _flat(layer)
        else:
            yield layer


def _groups(layers: Sequence[nn.Module], count: int) -> tuple[tuple[nn.Module, ...], ...]:
    """Cut layers into groups of similar length; none begins with a layer that writes into its input."""
    cuts = even_cuts([place for place in range(1, len(layers)) if not _writes(layers[place])], len(layers), count)
    ends = [*cuts, len(layers)]
    return tuple(tuple(layers[begin:end]) for begin, end in zip([0, *cuts], ends, strict=True)) if layers else ()


def even_cuts(allowed: Sequence[int], length: int, count: int) -> list[int]:
    """Choose cuts for `count` segments of a chain of this length, each the allowed one next to an even cut."""
    if not allowed:
        return []
    wanted = (length * place / count for place in range(1, count))
    return sorted({min(allowed, key=lambda cut: abs(cut - ideal)) for ideal in wanted})


def _writes(layer: nn.Module) -> bool:
    """Whether a layer says that it works in place."""
    return bool(getattr(layer, "inplace", False))


Wrapped = Callable[[Callable[..., Any], Sequence[nn.Module]], Callable[..., Any]]
"""Makes of the forward of layers one that computes it again in backward."""


def forward_of(one: Segmented, wrapped: Wrapped, *, last: bool) -> Callable[..., Any]:
    """Make the forward of a run; with `last` its last group stays as it is: backward would need it at once."""
    if not one.groups:
        return wrapped(one.owner.forward, [one.owner])
    chains = [_chain(group) for group in one.groups]
    steps = [wrapped(chain, group) for chain, group in zip(chains, one.groups, strict=True)]
    if last:
        steps[-1] = chains[-1]

    def forward(inputs: Any) -> Any:
        for step in steps:
            inputs = step(inputs)
        return inputs

    return forward


def _chain(layers: Sequence[nn.Module]) -> Callable[[Any], Any]:
    def chain(inputs: Any) -> Any:
        for layer in layers:
            inputs = layer(inputs)
        return inputs

    return chain


# Operators that may return their input itself although their schema does not say so.
_SAME = frozenset(
    {
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "feature_alpha_dropout",
        "type_as",
        "broadcast_tensors",
        "meshgrid",
        "sum_to_size",
        "einsum",
        "pad",
    }
)
_Kind = Literal["tensor", "several", "value"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment with its guard."""

    part: GraphPart
    guard: GraphGuard
    buffers: tuple[str, ...]

    def buffers_of(self, network: fx.GraphModule) -> list[Tensor]:
        """Its buffers where they are now."""
        return [network.get_buffer(name) for name in self.buffers]


def pieces_of(network: fx.GraphModule, segments: int | None) -> list[Piece]:
    """Cut the training graph into about so many pieces, by default the root of its operators; one if it has no cut."""
    graph = graphs_of(network)[0].graph
    nodes = [node for node in graph.nodes if node.op == "call_function"]
    operators = sum(_kind(node) != "value" and node.target is not operator.getitem for node in nodes)
    cuts = even_cuts(_allowed(graph, nodes), len(nodes), segments or max(2, isqrt(operators)))
    return [_piece(network, part) for part in graph_parts(network, graph, cuts, "ExportedSegment")]


def _piece(network: fx.GraphModule, part: GraphPart) -> Piece:
    buffers = tuple(name for name, _ in part.module.named_buffers(remove_duplicate=False))
    for tensors in ("_parameters", "_buffers", "_modules"):  # one module with many graphs
        part.module.__dict__[tensors] = network.__dict__[tensors]
    return Piece(part, GraphGuard(part.module), buffers)


def _allowed(graph: fx.Graph, nodes: Sequence[fx.Node]) -> list[int]:
    """Places between the nodes at which the graph can be cut."""
    place_of = {node: place for place, node in enumerate(nodes)}
    places = {node: place_of.get(node, -1) for node in graph.nodes if node.op in ("placeholder", "call_function")}
    last_use = {node: max((place_of[user] for user in node.users if user in place_of), default=-1) for node in places}
    last_write = _last_writes(nodes)
    found = []
    for cut in range(1, len(nodes)):
        crossing = [node for node, place in places.items() if place < cut <= last_use[node]]
        leading = [node for node in crossing if node.op != "placeholder" and _kind(node) != "value"]
        written = any(last_write.get(node, -1) >= cut for node in crossing)
        if len(leading) == 1 and _kind(leading[0]) == "tensor" and not written:
            found.append(cut)
    return found


def _last_writes(nodes: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Place of the last node that writes into the memory of each value, if there is one."""
    root: dict[fx.Node, fx.Node] = {}

    def root_of(node: fx.Node) -> fx.Node:
        while (above := root.get(node, node)) is not node:
            node = above
        return node

    writes: list[tuple[fx.Node, int]] = []
    for place, node in enumerate(nodes):
        schema = schema_of(node)
        if schema is None:
            shared = node.all_input_nodes if node.target is operator.getitem else []
        else:
            given, name = given_to(node), str(schema.name).removeprefix("aten::").rstrip("_")
            aliased = [one.name for one in schema.arguments if one.alias_info is not None or name in _SAME]
            shared = [value for one in aliased for value in nodes_in(given.get(one))]
        writes += [(value, place) for value in changed_by(node)]
        for one in shared:
            root[root_of(node)] = root_of(one)
    last = dict[fx.Node, int]()
    for node, place in writes:
        last[root_of(node)] = max(place, last.get(root_of(node), -1))
    known = {*nodes, *(one for node in nodes for one in node.all_input_nodes)}
    return {node: last[root_of(node)] for node in known if root_of(node) in last}


def _kind(node: fx.Node) -> _Kind:
    """What a node returns."""
    if node.op == "placeholder":
        return "tensor"
    schema = schema_of(node)
    if schema is None:
        is_part = node.target is operator.getitem and isinstance(node.args[0], fx.Node)
        return "tensor" if is_part and _kind(node.args[0]) == "several" else "value"  # type: ignore[arg-type]
    returns = [str(one.type) for one in schema.returns]
    if returns == ["Tensor"]:
        return "tensor"
    return "several" if any("Tensor" in one for one in returns) else "value"


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
