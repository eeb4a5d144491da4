"""Public kit for authors of transforms: `check_transform` checks one against the contract in `data.batch`."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unifiednn_core.data.batch import Batch, Mix, Transform

SEEDS = range(3)
# Draws of these have no meta form in torch; their results have the shape of their input.
_LIKE_INPUT = (torch.ops.aten._sample_dirichlet.default, torch.ops.aten._standard_gamma.default)


def check_transform(transform: Transform, batch: Batch) -> None:
    """Call the transform with a batch that it can take, of at least two samples on a CPU, and with variants of it.

    Raises `AssertionError` with the first promise that it breaks.
    """
    _check_form(transform)
    for seed in SEEDS:
        _check_draws(transform, batch, seed)
    _check_result(transform, batch, transform(batch, _generator(0)))
    single = _mapped(batch, lambda tensor: tensor[:1].clone())
    _check_result(transform, single, transform(single, _generator(0)))
    _check_memory(transform, batch)
    _check_training_only(transform, batch)
    _check_device(transform, batch)


def _check_form(transform: Transform) -> None:
    settings = getattr(type(transform), "__dataclass_params__", None)
    _require(settings is not None and settings.frozen, "a transform is a frozen dataclass")
    for name in ("training_only", "draws", "reads_values", "changes_targets"):
        _require(isinstance(getattr(transform, name, None), bool), f"{name} is True or False")
    _require(transform.input is None or isinstance(transform.input, str), "input is a name or None")
    arguments = [field.name for field in dataclasses.fields(transform)]  # type: ignore[arg-type]
    told = all(f"{name}={getattr(transform, name)!r}" in repr(transform) for name in arguments)
    _require(told, "repr names every argument")


def _check_draws(transform: Transform, batch: Batch, seed: int) -> None:
    own = _generator(seed)
    outside = _states_outside()
    first = transform(batch, own)
    _require(_states_outside() == outside, "with a generator of its own it draws from no other")
    _require(_same(transform(batch, _generator(seed)), first), "equal states give equal results")
    drew = not torch.equal(own.get_state(), _generator(seed).get_state())
    _require(drew == transform.draws, "draws says whether it draws")
    state = torch.get_rng_state()
    try:
        torch.manual_seed(seed)
        _require(_same(transform(batch, None), first), "torch's default generator gives the bits of an own one")
        _require(torch.equal(torch.get_rng_state(), own.get_state()), "both generators end in the same state")
    finally:
        torch.set_rng_state(state)
    other, others = _generator(seed), _mapped(batch, lambda tensor: tensor.flip(0))
    transform(others, other)
    _require(torch.equal(other.get_state(), own.get_state()), "it draws as much for any values")


def _check_result(transform: Transform, batch: Batch, result: Batch) -> None:
    _require(list(result.inputs) == list(batch.inputs), "it keeps the names and the order of the inputs")
    for name, tensor in result.inputs.items():
        _require(len(tensor) == len(batch.inputs[name]), "it keeps the number of samples")
        _require(tensor.dtype == batch.inputs[name].dtype, "it keeps the type of numbers")
        _require(tensor.device == batch.inputs[name].device, "it keeps the device")
    changed = [name for name in batch.inputs if result.inputs[name] is not batch.inputs[name]]
    if transform.input is not None and not transform.reads_values:
        _require(set(changed) <= {transform.input}, "it changes only its own input")
    samples = len(next(iter(batch.inputs.values())))
    for targets in (result.targets, None if result.mix is None else result.mix.targets):
        _require(targets is None or len(targets) == samples, "it keeps the number of targets")
    _require(batch.targets is None or result.targets is not None, "it keeps the targets")
    kept = result.targets is batch.targets and result.mix is batch.mix
    _require(kept or transform.changes_targets, "changes_targets says whether targets may be others")
    share = None if result.mix is None else result.mix.share
    _require(share is None or share.shape == (), "the share of a mix is one number")


def _check_memory(transform: Transform, batch: Batch) -> None:
    expected = transform(batch, _generator(0))
    for _ in SEEDS:
        copy = _mapped(batch, Tensor.clone)
        inputs = dict(copy.inputs)
        versions = [tensor._version for tensor in _tensors(copy)]
        transform(copy, _generator(0))
        _require(_same(copy, batch), "it writes into nothing that it was given")
        _require([tensor._version for tensor in _tensors(copy)] == versions, "it writes into nothing that it was given")
        _require(all(copy.inputs[name] is tensor for name, tensor in inputs.items()), "it leaves the dict as it is")
    scattered = _mapped(batch, lambda tensor: tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor)
    _require(_same(transform(scattered, _generator(0)), expected), "results do not depend on the layout in memory")
    spread = _mapped(batch, lambda tensor: tensor.repeat_interleave(2, 0)[::2])
    _require(_same(transform(spread, _generator(0)), expected), "results do not depend on the layout in memory")


def _check_training_only(transform: Transform, batch: Batch) -> None:
    results = [transform(batch, _generator(seed)) for seed in SEEDS]
    _require(transform.draws or _same(results[0], results[1]), "what draws nothing always gives the same")
    if transform.training_only:
        _require(transform.draws, "a transform for training alone draws; what is fixed is for evaluation, too")
        return
    _require(all(result.mix is None for result in results), "evaluation does not mix")
    makes_targets = all(result.targets is not batch.targets for result in results)
    _require(not transform.draws or makes_targets, "a transform for evaluation draws nothing, or makes the targets")


def _check_device(transform: Transform, batch: Batch) -> None:
    """Run it where no value can be read: on meta tensors."""
    absent = _mapped(batch, lambda tensor: tensor.to("meta"))
    try:
        with _Meta(absent):
            result = transform(absent, None)
    except (RuntimeError, NotImplementedError) as error:
        promise = "it reads no value of a tensor and makes every tensor on the device of the batch"
        _require(transform.reads_values, f"{promise} ({str(error).splitlines()[0]})")
        return
    _require(not transform.reads_values, "reads_values says whether it reads values")
    _check_result(transform, absent, result)
    shapes = [tensor.shape for tensor in _tensors(transform(batch, _generator(0)))]
    _require([tensor.shape for tensor in _tensors(result)] == shapes, "no shape depends on a value")


class _Meta(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses tensors that came neither from the batch nor from a call on the meta device: constants of the host."""

    def __init__(self, batch: Batch):
        super().__init__()  # type: ignore[no-untyped-call]
        self._known = {id(tensor): tensor for tensor in _tensors(batch)}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if any(isinstance(one, Tensor) and id(one) not in self._known for one in tree_leaves((args, given))):
            raise RuntimeError(f"{func} takes a tensor made of numbers of the host; torch.full makes one on the device")
        result = torch.empty_like(args[0]) if func in _LIKE_INPUT else func(*args, **given)
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if any(tensor.device.type != "meta" for tensor in made):
            raise RuntimeError(f"{func} gives a tensor on another device")
        self._known |= {id(tensor): tensor for tensor in made}
        return result


def _generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def _states_outside() -> tuple[object, ...]:
    return torch.get_rng_state().numpy().tobytes(), random.getstate()


def _tensors(batch: Batch) -> list[Tensor]:
    mix: Iterable[Tensor] = () if batch.mix is None else (batch.mix.targets, batch.mix.share)
    return [*batch.inputs.values(), *(() if batch.targets is None else (batch.targets,)), *mix]


def _mapped(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    inputs = {name: change(tensor) for name, tensor in batch.inputs.items()}
    mix = None if batch.mix is None else Mix(change(batch.mix.targets), batch.mix.share)
    return Batch(inputs, None if batch.targets is None else change(batch.targets), mix)


def _same(first: Batch, second: Batch) -> bool:
    """Whether two batches have the same bits."""
    pairs = zip(_tensors(first), _tensors(second), strict=False)
    form = (list(first.inputs), first.targets is None, first.mix is None)
    return form == (list(second.inputs), second.targets is None, second.mix is None) and all(
        one.dtype == other.dtype and torch.equal(one, other) for one, other in pairs
    )


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise AssertionError(f"Broken promise: {promise}.")
