"""What is checked on a GPU, with the device as an argument: on a CPU the same checks try their own logic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from sample_models.architectures import build as build_network
from tests.integration.networks import definition_over
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.optimizers import build_criterion, build_lr_scheduler, build_optimizer
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.base import Policy
from unifiednn_core.spec.run import Hyperparameters, SubModelSpec

SAMPLES, TEST_SAMPLES = 37, 11


@dataclass(frozen=True)
class Kind:
    """A network by name with the shape of its inputs; below `words` they are word numbers."""

    architecture: str
    args: Mapping[str, Any]
    shape: tuple[int, ...]
    words: int = 0
    optimizer: str = "sgd"


KINDS: Mapping[str, Kind] = {
    "lenet": Kind("lenet", {"batch_norm": True}, (1, 28, 28)),
    "resnet": Kind("resnet", {"width": 8}, (3, 32, 32), optimizer="adam"),
    "transformer": Kind("transformer", {}, (8, 8), optimizer="adamw"),
    "vgg_cbam": Kind("vgg_cbam", {}, (3, 32, 32)),
    "transformer_lm": Kind("transformer_lm", {"vocabulary": 60, "model_size": 32}, (35,), words=60),
    "roberta": Kind("roberta", {"vocabulary": 60}, (24,), words=60, optimizer="adam"),
}


class Ravenous(nn.Module):
    """Asks for more memory than any device has, from its third batch on."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10))
        self.batches = 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        if self.batches > 2:
            torch.empty(2**50, device=images.device)
        scores: torch.Tensor = self.inner(images)
        return scores


def definition(kind: Kind | None, seed: int = 0) -> Definition:
    """Definition of a network with the weights that follow from the seed; without a kind, of the ravenous one."""
    return definition_over(lambda: _untrained(kind), seed)


def _untrained(kind: Kind | None) -> nn.Module:
    return Ravenous() if kind is None else build_network(kind.architecture, kind.args)


def dataset(kind: Kind, samples: int, seed: int) -> Dataset:
    generator = torch.Generator().manual_seed(seed)
    if kind.words:
        inputs = torch.randint(4, kind.words, (samples, *kind.shape), generator=generator)
    else:
        inputs = torch.randn(samples, *kind.shape, generator=generator)
    per_word = kind.architecture == "transformer_lm"
    shape, classes = ((samples, *kind.shape), kind.words) if per_word else ((samples,), 2)
    return Dataset.of(inputs=inputs, targets=torch.randint(0, classes, shape, generator=generator))


def spec_of(name: str, kind: Kind, **hyperparameters: Any) -> SubModelSpec:
    given = {"epochs": 2, "batch_size": 8, "seed": 3, "learning_rate": 0.01, "optimizer": kind.optimizer}
    return SubModelSpec(
        name=name, model="m", train_data="d", hyperparameters=Hyperparameters(**given | hyperparameters)
    )


@dataclass
class Bench:
    """Sub-models of these kinds on a device, and an engine over them."""

    device: torch.device
    networks: Sequence[tuple[str, Kind | None, SubModelSpec]]
    policy: Policy
    reports: list[Report] = field(default_factory=list)
    then: Callable[["Bench", Report], None] = lambda bench, report: None
    """What happens after each report."""

    def __post_init__(self) -> None:
        self.data = ResidentData(self.device)
        self.submodels = [self._submodel(kind, spec) for _, kind, spec in self.networks]
        self.hybrid = HybridModel(self.submodels)
        self.engine = Engine(self.hybrid, self.policy, device=self.device, report=self._take)

    def _submodel(self, network: Kind | None, spec: SubModelSpec) -> SubModel:
        kind = network or KINDS["lenet"]
        return SubModel(
            spec,
            definition(network),
            seed=spec.hyperparameters.seed or 0,
            train=self.data.hold(f"{kind.architecture}-train", lambda: dataset(kind, SAMPLES, 0)),
            test=self.data.hold(f"{kind.architecture}-test", lambda: dataset(kind, TEST_SAMPLES, 1)),
            device=self.device,
        )

    def _take(self, report: Report) -> None:
        self.reports.append(report)
        self.then(self, report)

    def run(self) -> dict[str, Ended]:
        self.engine.run()
        return {report.submodel: report for report in self.reports if isinstance(report, Ended)}


def alone(kind: Kind, spec: SubModelSpec, device: torch.device) -> str:
    """The exactness recipe as a plain loop on a device: hash of the weights."""
    with exact_profile(device, 1):
        return _alone(kind, spec, device)


def _alone(kind: Kind, spec: SubModelSpec, device: torch.device) -> str:
    hyper, train = spec.hyperparameters, dataset(kind, SAMPLES, 0)
    inputs, targets = train.first.to(device), train.targets.to(device)
    module = definition(kind).build().to(device).train()
    optimizer, criterion = build_optimizer(module.named_parameters(), hyper), build_criterion(hyper)
    lr_scheduler = build_lr_scheduler(optimizer, hyper)
    seed = hyper.seed or 0
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed)
        for _ in range(hyper.epochs):
            for batch in torch.randperm(SAMPLES, generator=generator).to(device).split(hyper.batch_size):
                optimizer.zero_grad(set_to_none=True)
                criterion(module(inputs[batch]), targets[batch]).backward()
                optimizer.step()
            if lr_scheduler is not None:
                lr_scheduler.step()
    return state_sha256({name: value.cpu() for name, value in module.state_dict().items()})


def hash_of(ended: Ended) -> str | None:
    return None if ended.state_dict is None else state_sha256(ended.state_dict)
