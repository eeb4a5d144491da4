"""Trains a `.pt2` for a few steps as torch's own loader reads it, and as ours does, and compares the bits.

Hybrid and baseline both build a `.pt2` with our reader, so their equal weights say nothing about that reader. The other
reading here shares nothing with it: torch loads the checked file (its loader runs code of a hostile one), and what an
evaluation leaves out is found by the schemas of torch's operators.
"""

import copy
import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.export
from torch import Tensor, fx, nn
from torch.nn.functional import mse_loss
from torch.utils._pytree import tree_unflatten

from unifiednn_core.base.units import abbreviated
from unifiednn_core.base.visible import visible
from unifiednn_core.data.datasets import read_dataset
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.probes import outputs_sha256
from unifiednn_core.formats.archive import EVALUATION
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.exported import ExportedFormat, write_checked
from unifiednn_core.formats.signature import in_the_place_of
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.pack.calling import named
from unifiednn_core.preflight.report import OracleJob, OracleReport

_SEED = 20
_OUTPUTS = "the outputs"
_DELIVERED = "in the file for inference"
# Arguments of torch's operators that are off in evaluation.
_OFF = {"training": False, "train": False, "use_input_stats": False, "dropout_p": 0.0}
_NAMED = 3
Hashes = dict[str, str]
Inputs = list[Tensor]
Outputs = Tensor | tuple[Tensor, ...]


class BothModes(NamedTuple):
    """One network to train and to evaluate: two functions of a batch over the same weights and buffers."""

    module: nn.Module
    learn: Callable[..., Outputs]
    judge: Callable[..., Outputs]


def ask_torch(job: OracleJob) -> OracleReport:
    """Compare both readers; an error of either is a report without an answer."""
    try:
        with (
            warnings.catch_warnings(action="ignore"),  # torch warns about its own loader
            torch.random.fork_rng(devices=[]),
            tempfile.TemporaryDirectory(dir=job.scratch) as folder,
        ):
            return _compared(job, Path(folder))
    except Exception as error:  # torch's loader and kernels raise anything
        said = (str(error).strip().splitlines() or [""])[0].replace(str(job.scratch.parent), "home")[:300]
        text = visible(f"{type(error).__name__}: {said}")
        return OracleReport(answer="none", text=f"torch could not read and train it ({text.rstrip('.')})")


def _compared(job: OracleJob, folder: Path) -> OracleReport:
    checked = folder / "checked.pt2"
    write_checked(job.model, checked)
    definition = replace(ExportedFormat().read(job.model, None), path=checked)
    batches = _batches(job, definition)
    ours = _read_by_us(definition, batches, folder)
    gc.collect()  # the graph of a network holds it; the other one needs the memory
    difference = first_difference(ours, _read_by_torch(checked, definition.outputs, batches))
    if difference is not None:
        return OracleReport(answer="differs", text=difference)
    return OracleReport(answer="same", text=f"{len(batches) + 1} steps and 3 evaluations on the CPU")


def _read_by_us(definition: Definition, batches: Sequence[Inputs], folder: Path) -> dict[str, Hashes]:
    """First, because our reader refuses what kernels must not get, and torch's does not."""
    module = definition.build()
    found = dict(_trained(BothModes(module, lambda *x: module.train()(*x), lambda *x: module.eval()(*x)), batches))
    module.zero_grad()
    delivery = ExportedFormat().write(definition, module.state_dict(), folder, "trained")
    delivered = _loaded(delivery.files[1])
    judge = _caller(delivered, delivered, definition.outputs)
    return {**found, _DELIVERED: _judged(BothModes(delivered, judge, judge), batches)}


def _read_by_torch(path: Path, names: Sequence[str], batches: Sequence[Inputs]) -> dict[str, Hashes]:
    module = _loaded(path)
    evaluation = _in_evaluation(path, module)
    network = BothModes(module, _caller(module, module, names), _caller(evaluation, module, names))
    found = dict(_trained(network, batches))
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = tensor.data.contiguous()  # as in a delivered file; other strides round differently
    return {**found, _DELIVERED: _judged(network, batches)}


def _batches(job: OracleJob, definition: Definition) -> list[Inputs]:
    """Three batches of the first samples, as a network gets them in evaluation; the last is smaller."""
    data = read_dataset(job.train_data)
    step, full = training_step(job.submodel, definition, tuple(data.inputs)), max(definition.min_batch, 2) + 2
    chosen = torch.split(torch.arange(3 * full - 1) % data.samples, full)
    given = (step.given(step.prepare(data.batch(places), training=False)) for places in chosen)
    return [[one for one in batch if one is not None] for batch in given]


def _caller(module: nn.Module, loaded: nn.Module, names: Sequence[str]) -> Callable[..., Outputs]:
    """A call of a graph of `loaded`, which torch's loader gave: inputs in order, outputs in the order of `names`."""
    tree: Any = loaded._in_spec

    def call(*inputs: Tensor) -> Outputs:
        args, kwargs = tree_unflatten(inputs, tree)
        outputs = named(module(*args, **kwargs))
        return tuple(outputs[name] for name in in_the_place_of(names, [*outputs]) if name is not None)

    return call


def _in_evaluation(path: Path, module: fx.GraphModule) -> nn.Module:
    """The graph of evaluation in the file over the tensors of `module`, or else what `evaluating` makes of it."""
    from torch.export.pt2_archive._package import load_pt2  # it imports sympy: 70 MiB, which workers would inherit

    program = load_pt2(str(path)).exported_programs.get(EVALUATION.name)
    if program is None:
        return evaluating(module)
    other: nn.Module = program.module(check_guards=False)
    for name in (*program.graph_signature.parameters, *program.graph_signature.buffers):
        folder, _, leaf = name.rpartition(".")
        for kind in ("_parameters", "_buffers"):
            held = getattr(module.get_submodule(folder), kind)
            if leaf in held:
                getattr(other.get_submodule(folder), kind)[leaf] = held[leaf]
    return other


def _loaded(path: Path) -> fx.GraphModule:
    return torch.export.load(path).module(check_guards=False)


def evaluating(module: fx.GraphModule) -> fx.GraphModule:
    """The network of an exported program in evaluation, over the same tensors.

    A layer with a flag for training has it off, unless it normalises without running statistics. The counter of a
    normalisation stays: only a layer in training writes to it.
    """
    graph = copy.deepcopy(module.graph)
    calls = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    means = [mean for node in calls if isinstance(mean := _arguments(node).get("running_mean"), fx.Node)]
    counters = {f"{str(mean.target).rpartition('running_mean')[0]}num_batches_tracked" for mean in means}
    for node in calls:
        arguments = _arguments(node)
        flags = _OFF.keys() & {name for name, value in arguments.items() if value}
        if flags and arguments.get("running_mean", node) is not None:
            node.args, node.kwargs = (), arguments | {name: _OFF[name] for name in flags}
        for part in node.target._schema.arguments:
            written = arguments.get(part.name) if part.alias_info is not None and part.alias_info.is_write else None
            if isinstance(written, fx.Node) and written.op == "get_attr" and written.target in counters:
                node.replace_all_uses_with(written)
                graph.erase_node(node)
    return fx.GraphModule(module, graph)


def _arguments(node: fx.Node) -> dict[str, Any]:
    """Arguments of a call of one of torch's operators, by the names in its schema."""
    names = (argument.name for argument in node.target._schema.arguments)  # type: ignore[union-attr]
    return dict(zip(names, node.args, strict=False)) | dict(node.kwargs)


def _trained(network: BothModes, batches: Sequence[Inputs]) -> Iterator[tuple[str, Hashes]]:
    """Train, evaluate, take one more step and evaluate again; yields the hashes after each part."""
    noise = torch.Generator().manual_seed(_SEED)
    torch.manual_seed(_SEED)
    optimizer = torch.optim.SGD(network.module.parameters(), lr=1e-3, momentum=0.9)
    yield "before the first step", _hashes(network.module)
    for which, part in (("first", batches), ("second", batches[:1])):
        outputs = [_step(network, batch, optimizer, noise) for batch in part]
        yield f"after the {which} steps", _hashes(network.module, outputs)
        yield f"after the {which} evaluation", _judged(network, batches)


def _step(network: BothModes, batch: Inputs, optimizer: torch.optim.Optimizer, noise: torch.Generator) -> Inputs:
    """Learn random targets: every kind of output has a gradient to them, even a normalised one."""
    optimizer.zero_grad()
    outputs = _listed(network.learn(*(one.clone() for one in batch)))
    learned = [one for one in outputs if one.requires_grad]
    losses = [mse_loss(one.float(), torch.randn(one.shape, generator=noise)) for one in learned]
    torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    return [one.detach() for one in outputs]


def _listed(outputs: Outputs) -> Inputs:
    """All outputs; in evaluation a network may have fewer."""
    return [one for one in (outputs if isinstance(outputs, tuple) else (outputs,)) if one is not None]


@torch.no_grad()
def _judged(network: BothModes, batches: Sequence[Inputs]) -> Hashes:
    torch.manual_seed(_SEED)  # some networks draw random numbers in evaluation, too
    outputs = [_listed(network.judge(*(one.clone() for one in batch))) for batch in batches]
    return _hashes(network.module, outputs)


def _hashes(module: nn.Module, outputs: Sequence[Inputs] = ()) -> Hashes:
    """SHA-256 of each weight and buffer by its key, and of all outputs together."""
    found = {key: state_sha256({key: tensor}) for key, tensor in module.state_dict().items()}
    return {**found, _OUTPUTS: outputs_sha256([*chain.from_iterable(outputs)])}


def first_difference(ours: Mapping[str, Hashes], theirs: Mapping[str, Hashes]) -> str | None:
    """Say which bits differ first, and when; None if none do."""
    for when, hashes in theirs.items():
        keys = sorted(key for key in hashes.keys() | ours[when].keys() if hashes.get(key) != ours[when].get(key))
        if keys:
            return f"the bits of {abbreviated(keys, _NAMED)} differ {when}"
    return None
