"""UnifiedNN trains several networks as one hybrid model on one device, without changing a bit of any of them.

    from unifiednn_core import Hyperparameters, RoundRobin, submodel, train

    train([submodel("a", net_a, inputs, targets), submodel("b", net_b, inputs, targets)], RoundRobin())

| name | what it is |
|---|---|
| `train`, `submodel` | train modules in place as one hybrid; a module with its data and hyper-parameters |
| `Hyperparameters` | epochs, batch size, optimizer, criterion, ... of one sub-model |
| `Engine`, `HybridModel`, `SubModel` | the same by hand: start, pause, and read figures while it trains |
| `FirstComeFirstServed`, `Priority`, `ShortestJobFirst`, `RoundRobin` | the policies |
| `Policy`, `View`, `Decision`, `Quantum`, `register_policy` | what a policy of your own needs |

Importing this package does not import torch; the first use of a name that needs it does.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unifiednn_core.engine.engine import Engine
    from unifiednn_core.engine.hybrid import HybridModel
    from unifiednn_core.engine.notebook import submodel, train
    from unifiednn_core.engine.submodel import SubModel
    from unifiednn_core.scheduling.base import Decision, Policy, Quantum, View
    from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
    from unifiednn_core.scheduling.priority import Priority
    from unifiednn_core.scheduling.registry import register_policy
    from unifiednn_core.scheduling.round_robin import RoundRobin
    from unifiednn_core.scheduling.sjf import ShortestJobFirst
    from unifiednn_core.spec.hyperparameters import Hyperparameters

__all__ = [
    "Decision",
    "Engine",
    "FirstComeFirstServed",
    "HybridModel",
    "Hyperparameters",
    "Policy",
    "Priority",
    "Quantum",
    "RoundRobin",
    "ShortestJobFirst",
    "SubModel",
    "View",
    "register_policy",
    "submodel",
    "train",
]

_MODULES = {
    "Decision": "scheduling.base",
    "Engine": "engine.engine",
    "FirstComeFirstServed": "scheduling.fcfs",
    "HybridModel": "engine.hybrid",
    "Hyperparameters": "spec.hyperparameters",
    "Policy": "scheduling.base",
    "Priority": "scheduling.priority",
    "Quantum": "scheduling.base",
    "RoundRobin": "scheduling.round_robin",
    "ShortestJobFirst": "scheduling.sjf",
    "SubModel": "engine.submodel",
    "View": "scheduling.base",
    "register_policy": "scheduling.registry",
    "submodel": "engine.notebook",
    "train": "engine.notebook",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'unifiednn_core' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
