"""Training plain networks on plain tensors as one hybrid, from a notebook or a script: no files, store or worker."""

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import DamagedData
from unifiednn_core.data.datasets import Dataset, as_targets
from unifiednn_core.engine.device import resolve
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import DataChanged, Ended, EpochDone, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.engine.resident_data import Lease, ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition, count_parameters, size_bytes
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.spec.run import Hyperparameters, SubModelSpec

_RESIDENT: WeakValueDictionary[torch.device, ResidentData] = WeakValueDictionary()
"""The data sets of each device, while a sub-model there holds one."""


def submodel(
    name: str,
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    hyperparameters: Hyperparameters | None = None,
    *,
    test: tuple[Tensor, Tensor] | None = None,
    priority: int = 0,
    device: str = "auto",
) -> SubModel:
    """Make a sub-model of a network and its data: `inputs` and `targets`, both [samples, ...], and `test` likewise.

    The module itself is trained, as in a plain loop, and holds the trained weights afterwards. It is asked now whether
    it draws random numbers, so hooks that do must be there already. Sub-models with equal data share one copy on the
    device. Without a seed in `hyperparameters` the seed is 0. Raises `ValueError` for a name
    with other characters than letters, digits, - and _, and for data without samples or of different lengths.
    """
    wanted = hyperparameters or Hyperparameters()
    spec = SubModelSpec(name=name, model="-", train_data="-", priority=priority, hyperparameters=wanted)
    definition = Definition(
        format="module",
        path=Path("-"),
        build=module.train,
        parameters=count_parameters(module),
        weights_bytes=size_bytes(module.state_dict()),
    )
    place = resolve(device)
    held = _held(inputs, targets, place, "training data")
    held_out = None if test is None else _held(*test, place, "test data")
    return SubModel(spec, definition, seed=wanted.seed or 0, train=held, test=held_out, device=place)


def train(
    submodels: Iterable[SubModel],
    policy: Policy | None = None,
    *,
    threads: int | None = None,
    report: Callable[[Report], object] = lambda report: None,
) -> dict[str, Ended]:
    """Train sub-models as one hybrid under a policy, by default first come, first served; returns the end of each.

    The `event` of an end is COMPLETE, or FAIL with `cause` and `remedy`; `figures` has one row per epoch, `state_dict`
    the weights. `report` gets everything that happens meanwhile. Raises `ValueError` for sub-models of equal name or
    with shared parameters, and for several devices.
    """
    hybrid = HybridModel(submodels)
    devices = {one.device for one in hybrid.submodels}
    if len(devices) > 1:
        raise ValueError(f"a hybrid trains on one device, not on {', '.join(sorted(map(str, devices)))}")
    if not devices:
        return {}
    ends: dict[str, Ended] = {}
    epochs: dict[str, list[EpochFigures]] = defaultdict(list)

    def take(happened: Report) -> None:
        if isinstance(happened, EpochDone):
            epochs[happened.submodel].append(happened.figures)
        elif isinstance(happened, Ended):
            ends[happened.submodel] = happened = replace(happened, figures=tuple(epochs[happened.submodel]))
        elif isinstance(happened, DataChanged):
            warnings.warn(str(DamagedData(happened.submodel, happened.data)), RuntimeWarning, stacklevel=2)
        report(happened)

    order, policy, threads = hybrid.names, policy or FirstComeFirstServed(), threads or torch.get_num_threads()
    [device] = devices
    Engine(hybrid, policy, device=device, threads=threads, report=take).run()
    return {name: ends[name] for name in order}


def _held(inputs: Tensor, targets: Tensor, device: torch.device, name: str) -> Lease:
    if not len(inputs) or len(inputs) != len(targets):
        raise ValueError(f"there are {len(inputs)} inputs and {len(targets)} targets; give as many of both, at least 1")
    resident = _RESIDENT.get(device) or ResidentData(device)
    _RESIDENT[device] = resident
    dataset = Dataset.of(inputs.detach(), as_targets(targets.detach())).checksummed()
    return resident.hold(str(dataset.checksum), lambda: dataset, name)
