"""DropIT on CIFAR-10 and MNIST: what ResNet18 saves between forward and backward, and test accuracy over seeds.

For each seed, a network with DropIT and the same one without train in one hybrid, all seeds together.
"""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from tools.bench import data
from tools.bench.architectures import build
from tools.bench.networks import NETWORKS
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import EpochDone, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import HOST, ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition, count_parameters, size_bytes
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.spec.techniques import Compression, DropIT, Technique
from unifiednn_core.techniques.build import built
from unifiednn_core.testing.techniques import take_step

ABOUT = (
    "DropIT: bytes between forward and backward of ResNet18 on CIFAR-10, batch 64, in full width; and test accuracy of "
    "narrow networks with and without it, from the same weights and in the same order of samples."
)
KEEP = 0.2
MOST_POINTS, LEAST_SHARE = 1.0, 0.30
BATCH, MIB = 64, 1024**2
ARMS: tuple[tuple[Technique, ...], ...] = (
    (),
    (DropIT(keep=0.1),),
    (DropIT(keep=0.2),),
    (DropIT(keep=0.5),),
    (DropIT(keep=0.1, form="published"),),
    (Compression(),),
    (Compression(bfloat16=True),),
    (Compression(), DropIT(keep=0.1)),
)


def name_of(seed: int, keep: float | None) -> str:
    """Name of a sub-model."""
    return f"plain-{seed}" if keep is None else f"dropit-{seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A network and how it is trained."""

    data: str
    architecture: str
    args: Mapping[str, Any]
    epochs: int
    train: int
    test: int
    learning_rate: float

    def network(self, seed: int) -> torch.nn.Module:
        """Make it with the weights of a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build(self.architecture, self.args)

    def spec(self, seed: int, keep: float | None) -> SubModelSpec:
        """Describe one training."""
        hyper = {
            "epochs": self.epochs,
            "batch_size": BATCH,
            "learning_rate": self.learning_rate,
            "seed": seed,
            "optimizer_args": {"momentum": 0.9, "weight_decay": 5e-4},
            "lr_scheduler": {"name": "cosine", "args": {"T_max": self.epochs}},
            "techniques": [] if keep is None else [{"name": "dropit", "keep": keep}],
        }
        document = {"name": name_of(seed, keep), "model": "m", "train_data": "d", "test_data": "t"}
        scaling = {"scale": 1 / 255, "mean": 0.45, "std": 0.25}
        return SubModelSpec.model_validate(document | scaling | {"hyperparameters": hyper})


COURSES = (
    Course(
        data="mnist",
        architecture="lenet",
        args=NETWORKS["lenet"].narrow,
        epochs=3,
        train=12_000,
        test=10_000,
        learning_rate=0.02,
    ),
    Course(
        data="cifar10",
        architecture="lenet",
        args={"channels": 3, "image_size": 32, "batch_norm": True},
        epochs=8,
        train=10_000,
        test=2_000,
        learning_rate=0.02,
    ),
    Course(
        data="cifar10", architecture="resnet", args={"width": 8}, epochs=5, train=10_000, test=2_000, learning_rate=0.05
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Test accuracy after the last epoch, in percent."""

    data: str
    network: str
    seed: int
    without: float
    given: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """One step of ResNet18."""

    techniques: str
    saved_bytes: int
    """Alive between forward and backward, without weights, buffers and the batch."""
    peak_bytes: int
    step_s: float
    """CPU time."""


def saved(folder: Path) -> list[Saved]:
    """Take steps of ResNet18 with each arm, on real images."""
    images = _data(COURSES[-1], folder)[0]
    network = build("resnet", NETWORKS["resnet18"].full)
    inputs, targets = images.first[:BATCH].float() / 255, images.entries["targets"][:BATCH]
    found = []
    for arm in ARMS:
        take_step(network, inputs[:2], targets[:2], built(arm))
        began_s = time.thread_time()
        taken = take_step(network, inputs, targets, built(arm))
        took_s = time.thread_time() - began_s
        found.append(
            Saved(
                techniques=" and ".join(map(_named, arm)) or "none",
                saved_bytes=taken.saved_bytes,
                peak_bytes=taken.peak_bytes,
                step_s=took_s,
            )
        )
    return found


def _named(technique: Technique) -> str:
    given = technique.model_dump(exclude={"name"}, exclude_unset=True)
    return ", ".join([technique.title, *(f"{name} {value}" for name, value in given.items())])


def outcomes(course: Course, folder: Path, seeds: Sequence[int]) -> list[Outcome]:
    """Train with and without DropIT, all in one hybrid."""
    train, test = _data(course, folder)
    resident, accuracy = ResidentData(HOST), dict[str, float]()

    def take(report: Report) -> None:
        if isinstance(report, EpochDone):
            accuracy[report.submodel] = 100 * (report.figures.test_accuracy or 0.0)
            sys.stderr.write(
                f"{course.data} {report.submodel} {report.figures.epoch}: {accuracy[report.submodel]:.2f}\n"
            )

    parts = [
        SubModel(
            course.spec(seed, keep),
            _definition(course.network(seed)),
            seed=seed,
            train=resident.hold("train", partial(_same, train)),
            test=resident.hold("test", partial(_same, test)),
            device=HOST,
        )
        for seed in seeds
        for keep in (None, KEEP)
    ]
    policy = policy_named("round_robin", {"unit": "epochs", "amount": 1})
    Engine(HybridModel(parts), policy, device=HOST, threads=1, report=take).run()
    return [
        Outcome(
            data=course.data,
            network=course.architecture,
            seed=seed,
            without=accuracy[name_of(seed, None)],
            given=accuracy[name_of(seed, KEEP)],
        )
        for seed in seeds
    ]


def _data(course: Course, folder: Path) -> tuple[Dataset, Dataset]:
    with tempfile.TemporaryDirectory(prefix="unifiednn-dropit-") as name:
        files = data.write(course.data, folder, Path(name), train=course.train, test=course.test, vocabulary=0)[:2]
        train, test = (read_dataset(Path(name) / file) for file in files)
        return train, test


def _definition(network: torch.nn.Module) -> Definition:
    return Definition(
        format="bench",
        path=Path("bench"),
        build=lambda: network,
        parameters=count_parameters(network),
        weights_bytes=size_bytes(network.state_dict()),
    )


def _same(held: Dataset) -> Dataset:
    return held


def described(steps: Sequence[Saved], trained: Sequence[Outcome]) -> dict[str, Any]:
    """Tables and figures."""
    plain = steps[0]
    share = 1 - steps[1].saved_bytes / plain.saved_bytes
    lost = {
        name: fmean(one.without - one.given for one in trained if _course(one) == name)
        for name in map(_course, trained)
    }
    rows = [
        (
            one.techniques,
            f"{one.saved_bytes / MIB:.0f} MiB",
            f"{1 - one.saved_bytes / plain.saved_bytes:.0%}",
            f"{one.peak_bytes / MIB:.0f} MiB",
            f"{one.step_s:.2f} s",
        )
        for one in steps
    ]
    accuracies = [
        (_course(one), str(one.seed), f"{one.without:.2f} %", f"{one.given:.2f} %", f"{one.given - one.without:+.2f}")
        for one in trained
    ]
    return {
        "about": ABOUT,
        "passed": share >= LEAST_SHARE and max(lost.values()) <= MOST_POINTS,
        "thresholds": [],
        "notes": [
            f"With a tenth of the inputs, ResNet18 keeps {share:.0%} fewer bytes between forward and backward; "
            f"promised are {LEAST_SHARE:.0%}.",
            *(
                f"Mean test accuracy on {name} with keep {KEEP}: {-points:+.2f} points; promised is at most "
                f"{MOST_POINTS:g} less."
                for name, points in lost.items()
            ),
        ],
        "tables": [
            {
                "title": f"A step of ResNet18, {BATCH} images:",
                "rows": rows,
                "heads": ("techniques", "saved for backward", "less", "peak", "CPU time"),
            },
            {
                "title": f"Test accuracy with keep {KEEP}:",
                "rows": accuracies,
                "heads": ("network", "seed", "without", "with DropIT", "points"),
            },
        ],
        "steps": [*map(asdict, steps)],
        "outcomes": [*map(asdict, trained)],
    }


def _course(outcome: Outcome) -> str:
    return f"{outcome.network}, {outcome.data}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = data.folder_of(None)
    results = [one for course in COURSES for one in outcomes(course, place, range(3))]
    sys.stdout.write(json.dumps(described(saved(place), results)) + "\n")
