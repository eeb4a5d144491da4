"""Small real networks and data, for tests that train."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tests.integration import vanilla_loop
from tests.integration.networks import CLASSES, ZOO, cnn, definition_over, mlp
from unifiednn_core.base.clock import Clock
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Captured, Ended, EpochDone, Report, Stepped
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.progress import EpochFigures
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.scheduling.company import MemoryRoom
from unifiednn_core.spec.run import CheckpointSpec, SubModelSpec

# Equal bits need equal threads, and the engine is given one.
torch.set_num_threads(1)

CPU = torch.device("cpu")
NETWORKS: dict[str, Callable[[], nn.Module]] = ZOO | {
    "plain": lambda: mlp(dropout=0.0),
    "noisy": lambda: nn.Sequential(cnn(), nn.Dropout(0.3), nn.Linear(CLASSES, CLASSES)),
}


def dataset(samples: int = 37, seed: int = 0) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, 1, 6, 6, generator=generator)
    return Dataset.of(inputs=inputs, targets=torch.randint(0, CLASSES, (samples,), generator=generator))


def definition(network: str, seed: int = 0) -> Definition:
    """A definition over a network of this kit, with initial weights that follow from the seed."""
    return definition_over(NETWORKS[network], seed)


def submodel_spec(name: str, *, priority: int = 0, **hyperparameters: Any) -> SubModelSpec:
    given = {"epochs": 2, "batch_size": 8, "seed": 3, "learning_rate": 0.05} | hyperparameters
    document = {"name": name, "model": "m", "train_data": "d", "priority": priority, "hyperparameters": given}
    return SubModelSpec.model_validate(document)


def submodel(network: str, spec: SubModelSpec, data: ResidentData | None = None, key: str | None = None) -> SubModel:
    """A sub-model over a network of this kit, with the data sets of this kit."""
    data = data or ResidentData(CPU)
    return SubModel(
        spec,
        definition(network),
        seed=spec.hyperparameters.seed or 0,
        train=data.hold("train", dataset),
        test=data.hold("test", lambda: dataset(20, seed=1)),
        device=CPU,
        name=key,
    )


class _Anybody(dict[str, int]):
    """One byte for anybody."""

    def get(self, *_: Any) -> int:
        return 1


ROOM: dict[str, Any] = {"memory": lambda: MemoryRoom(working_bytes=_Anybody(), company_bytes=10**9)}
"""Memory enough for company of anybody."""

Networks = Sequence[tuple[str, SubModelSpec]]


class Session:
    """An engine over networks of this kit, with everything that it reported."""

    def __init__(
        self,
        networks: Networks,
        policy: Policy,
        on_report: Callable[["Session", Report], None] | None = None,
        *,
        checkpoint: CheckpointSpec | None = None,
        restored: Mapping[str, Checkpoint] | None = None,
        keeps: bool = True,
        clock: Clock | None = None,
        lanes: int = 1,
        keys: Sequence[str] | None = None,
        ready: Iterable[SubModel] = (),
        **how: Any,
    ):
        """`ready` are sub-models in place of networks.

        `restored` are checkpoints to go on from; with `keeps` every capture counts as kept at once.

        `keys` are those of the networks in the hybrid, by default their names.
        """
        self._keeps = keeps
        self.reports: list[Report] = []
        self.data = ResidentData(CPU)
        self._on_report = on_report
        names = keys or [None] * len(networks)
        made = (submodel(network, spec, self.data, key) for (network, spec), key in zip(networks, names, strict=True))
        self.hybrid = HybridModel([*ready, *made])
        for name in (restored or {}).keys() & set(self.hybrid.names):
            self.hybrid.submodel(name).restore((restored or {})[name])
        self.engine = Engine(
            self.hybrid, policy, device=CPU, lanes=lanes, report=self._take, checkpoint=checkpoint, clock=clock, **how
        )

    def run(self) -> "Session":
        self.engine.run()
        return self

    def add(self, network: str, spec: SubModelSpec, key: str | None = None) -> SubModel:
        """Merge one more, as an order to join does."""
        added = submodel(network, spec, self.data, key)
        self.hybrid.add(added)
        return added

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        if isinstance(report, Captured) and self._keeps:
            self.engine.checkpoint_written(report.checkpoint.submodel)
        if self._on_report is not None:
            self._on_report(self, report)

    @property
    def ended(self) -> dict[str, Ended]:
        return {report.submodel: report for report in self.reports if isinstance(report, Ended)}

    def of(self, kind: type) -> list[Any]:
        """Reports of a kind."""
        return [report for report in self.reports if isinstance(report, kind)]

    @property
    def steps(self) -> int:
        """Steps of all sub-models."""
        return sum(isinstance(report, Stepped) for report in self.reports)

    @property
    def checkpoints(self) -> dict[str, Checkpoint]:
        """The last capture of each sub-model."""
        return {r.checkpoint.submodel: r.checkpoint for r in self.reports if isinstance(r, Captured)}

    def hashes(self) -> dict[str, str | None]:
        return {
            name: None if ended.state_dict is None else state_sha256(ended.state_dict)
            for name, ended in self.ended.items()
        }

    def epochs(self, name: str) -> list[EpochFigures]:
        return [r.figures for r in self.reports if isinstance(r, EpochDone) and r.submodel == name]

    def losses(self, name: str) -> list[float]:
        return [r.loss.item() for r in self.reports if isinstance(r, Stepped) and r.submodel == name]


def vanilla(network: str, spec: SubModelSpec) -> tuple[str, list[float]]:
    """The exactness recipe as a plain loop: hash of the weights and loss of each step."""
    data = dataset()
    assert data.targets is not None
    trained = vanilla_loop.train(definition(network).build(), spec.hyperparameters, (data.first, data.targets))
    return state_sha256(trained.module.state_dict()), trained.losses
