"""Small networks that cannot learn, and those that can, as the engine reports them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import EpochDone, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.progress import LEAST_STEPS, ConstantAnswer, EpochFigures, NotLearning, judged
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.spec.run import SubModelSpec

CPU = torch.device("cpu")
CENTRES = torch.randn(10, 16, generator=torch.Generator().manual_seed(1))


def blobs(samples: int, seed: int, shares: tuple[float, ...] = (1.0,) * 10, noise: float = 1.0) -> Dataset:
    """Points around the centres of classes, which are as frequent as `shares` say."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.multinomial(torch.tensor(shares), samples, replacement=True, generator=generator)
    return Dataset.of(CENTRES[labels] + noise * torch.randn(samples, 16, generator=generator), labels)


def shuffled(data: Dataset) -> Dataset:
    assert data.targets is not None
    return Dataset.of(
        data.first, data.targets[torch.randperm(data.samples, generator=torch.Generator().manual_seed(2))]
    )


def line(samples: int, seed: int) -> Dataset:
    data = blobs(samples, seed)
    return Dataset.of(data.first, data.first[:, :1] * 3 + 1)


def text(samples: int, seed: int) -> Dataset:
    """Rows of ids in which the next one mostly follows from the last."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 20, (samples, 1), generator=generator)
    rows = [(ids * 7 + step * 3) % 20 for step in range(12)]
    return Dataset({"inputs": torch.cat(rows, 1)}, None)


def mlp(outputs: int = 10) -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, outputs))


class Words(nn.Module):
    """A small language model; ids [n, t] to scores [n, t, 20]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding(ids))
        return scores


def train(
    train: Dataset, test: Dataset | None, network: Callable[[], nn.Module] = mlp, *, part: dict[str, Any], **hyper: Any
) -> list[EpochDone]:
    """Reports of the epochs of a network that trains alone."""

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            return network()

    definition = Definition(format="kit", path=Path("kit"), build=build, parameters=1, weights_bytes=4)
    given = {"epochs": 2, "batch_size": 8, "seed": 3, "learning_rate": 0.02, **hyper}
    document = {"name": "x", "model": "m", "train_data": "d", "hyperparameters": given, **part}
    spec, data = SubModelSpec.model_validate(document), ResidentData(CPU)
    tested = None if test is None else data.hold("test", lambda: test)
    submodel = SubModel(spec, definition, seed=3, train=data.hold("train", lambda: train), test=tested, device=CPU)
    reports: list[Report] = []
    Engine(HybridModel([submodel]), FirstComeFirstServed(), device=CPU, report=reports.append).run()
    return [report for report in reports if isinstance(report, EpochDone)]


def signs(*given: Any, part: dict[str, Any] | None = None, **hyper: Any) -> list[str | None]:
    return [one.doubt and one.doubt.sign for one in train(*given, part=part or {}, **hyper)]


DATA, TEST = blobs(800, 0), blobs(200, 7)
MIXED = shuffled(DATA)
RARE, RARE_TEST = blobs(800, 0, (9.0, 1.0)), blobs(200, 7, (9.0, 1.0))


@pytest.mark.parametrize(
    ("given", "how", "found"),
    [
        ((MIXED, shuffled(TEST)), {}, ["chance", "chance"]),
        ((MIXED, None), {}, ["chance", "chance"]),
        ((DATA, TEST), {"part": {"scale": 0.0}}, ["outputs", "outputs"]),
        ((DATA, None), {"part": {"scale": 0.0}}, ["chance", "chance"]),
        ((DATA, TEST), {"learning_rate": 1e-30}, [None, "weights"]),
        ((DATA, TEST), {"learning_rate": 1e-7}, [None, "chance"]),
        ((line(800, 0), None, lambda: mlp(1)), {"learning_rate": 1e-30, "criterion": "mse"}, [None, "weights"]),
        ((line(800, 0), line(200, 7), lambda: mlp(1)), {"part": {"scale": 0.0}, "criterion": "mse"}, ["outputs"] * 2),
        ((shuffled(RARE), shuffled(RARE_TEST), lambda: mlp(2)), {}, [None, "chance"]),
    ],
)
def test_what_cannot_learn_is_found_within_two_epochs(given: Any, how: Any, found: list[str | None]) -> None:
    assert signs(*given, **how) == found


WARM = {"name": "warmup_linear", "per": "epoch", "args": {"num_warmup_steps": 3, "num_training_steps": 9}}
STEPS = {"name": "warmup_cosine", "per": "step", "args": {"num_warmup_steps": 250, "num_training_steps": 500}}
TINY = {"num_warmup_steps": 1, "num_training_steps": 3}


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ((DATA, TEST), {}),
        ((DATA, None), {"epochs": 3}),
        ((RARE, RARE_TEST, lambda: mlp(2)), {"epochs": 4}),
        ((RARE, RARE_TEST, lambda: mlp(2)), {"epochs": 4, "sampler": {"name": "balanced"}}),
        ((RARE, RARE_TEST, lambda: mlp(2)), {"epochs": 4, "class_weights": "balanced"}),
        ((blobs(800, 0, (97.0, 3.0), 2.0), blobs(200, 7, (97.0, 3.0), 2.0), lambda: mlp(2)), {"epochs": 4}),
        ((blobs(100, 0), blobs(20, 7)), {"batch_size": 2}),
        ((blobs(12, 0), blobs(5, 7)), {"batch_size": 2, "epochs": 12}),
        ((blobs(800, 0, (1.0,)), None), {}),
        ((line(800, 0), line(200, 7), lambda: mlp(1)), {"criterion": "mse", "learning_rate": 0.001}),
        ((line(800, 0), None, lambda: mlp(1)), {"criterion": "mse", "learning_rate": 0.001}),
        ((text(500, 0), text(100, 7), Words), {"part": {"targets": "next", "classes": "last"}, "learning_rate": 0.1}),
        ((DATA, TEST), {"epochs": 4, "lr_scheduler": WARM}),
        ((DATA, TEST), {"epochs": 5, "lr_scheduler": STEPS, "learning_rate": 0.01}),
        ((DATA, TEST), {"epochs": 5, "lr_scheduler": {**WARM, "args": TINY}}),
        ((DATA, TEST), {"warm_up": {"steps": 300}, "learning_rate": 0.01, "epochs": 4}),
        ((DATA, TEST), {"optimizer": "adamw", "learning_rate": 0.001, "ema": {"decay": 0.99}}),
        ((DATA, TEST), {"criterion_args": {"label_smoothing": 0.1}}),
    ],
)
def test_what_learns_has_no_finding(given: Any, how: Any) -> None:
    assert set(signs(*given, **how)) == {None}


def test_few_steps_tell_nothing() -> None:
    assert signs(MIXED, None, batch_size=20, epochs=2) == [None, "chance"], f"at least {LEAST_STEPS} steps"


def test_one_that_learns_later_is_found_no_more() -> None:
    slow = {"lr_scheduler": {"name": "multi_step", "args": {"milestones": [2], "gamma": 1e4}}, "learning_rate": 1e-6}
    assert signs(DATA, TEST, epochs=4, **slow) == [None, "chance", "chance", None]


ROW = EpochFigures(1, 100, 0.1, 2.31, 0.1, 2.31, 0.1)
CHANCE = ConstantAnswer(2.3, 0.1, 1000, even=True)


def test_one_that_then_learns_its_training_data_alone_is_told_so() -> None:
    learned = EpochFigures(2, 200, 0.1, 1.0, 0.7, 3.4, 0.1)
    first = judged([ROW], CHANCE, CHANCE, same_weights=False, same_output=False)
    assert first == NotLearning("chance", 2.3, 0.1)
    second = judged([ROW, learned], CHANCE, CHANCE, same_weights=False, same_output=False, before=first)
    assert second is not None and second.sign == "training_only"
    assert judged([ROW, learned], CHANCE, CHANCE, same_weights=False, same_output=False) is None, "it may overfit"


def test_a_schedule_that_ends_at_a_rate_of_zero_has_learned_before() -> None:
    last = EpochFigures(9, 900, 0.0, 0.5, 0.9, 0.5, 0.9)
    assert judged([ROW, last], CHANCE, CHANCE, same_weights=True, same_output=False) is None
