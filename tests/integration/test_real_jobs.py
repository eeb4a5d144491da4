"""Six kinds of jobs, each from the author's Python and a data file to a separated model, in one hybrid."""

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.integration import real_jobs
from tests.integration.real_jobs import LENGTH, WORDS
from tests.waiting import wait_until
from unifiednn_core.compare.arms import BaselineFiles, job_of
from unifiednn_core.compare.vanilla import PlainScript, ProgressWriter
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.transforms.table import build
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.pack.request import Example, ExampleInput, PackRequest, Source
from unifiednn_core.preflight.pack.work import pack
from unifiednn_core.service.facade import Service
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.spec.transforms import TransformSpec
from unifiednn_core.views.runs import RunView

EPOCHS, BATCH, SEED, RATE = 2, 8, 5, 0.05
CROPS = [{"name": "random_crop", "padding": 2, "masks": True}, {"name": "horizontal_flip", "masks": True}]
MASKING = {"name": "token_masking", "mask": WORDS - 1, "vocabulary": WORDS, "p": 0.4}
Tensors = dict[str, Tensor]


def ids(samples: int, seed: int, length: int = LENGTH) -> Tensor:
    return torch.randint(0, WORDS, (samples, length), generator=torch.Generator().manual_seed(seed))


def pixels(samples: int, seed: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def save_npz(tensors: Tensors, path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, **{name: one.numpy() for name, one in tensors.items()})


def save_nested(tensors: Tensors, path: Path) -> None:
    inputs = {name.removeprefix("inputs."): one for name, one in tensors.items() if name != "targets"}
    torch.save({"inputs": inputs, "targets": tensors["targets"]}, path)


@dataclass(frozen=True)
class RealJob:
    """A network, its data file, its spec, and its loss as a plain loop computes it."""

    network: type[nn.Module]
    inputs: tuple[ExampleInput, ...]
    data: Callable[[int, int], Tensors]
    save: Callable[[Tensors, Path], None]
    loss: Callable[[nn.Module, Tensors], Tensor]
    spec: dict[str, Any] = field(default_factory=dict)
    hyper: dict[str, Any] = field(default_factory=dict)


def next_word_loss(network: nn.Module, batch: Tensors) -> Tensor:
    words = batch["inputs"]
    return functional.cross_entropy(network(words[:, :-1]).movedim(-1, 1), words[:, 1:])


def masked_word_loss(network: nn.Module, batch: Tensors) -> Tensor:
    [masking] = build([TransformSpec.model_validate(MASKING)])
    given = masking(Batch({"inputs": batch["inputs"]}), None)
    return functional.cross_entropy(network(given.inputs["inputs"]).movedim(-1, 1), given.targets)


def unet_loss(network: nn.Module, batch: Tensors) -> Tensor:
    given = Batch({"inputs": batch["inputs"].float() * (1 / 255)}, batch["targets"])
    if not network.training:
        return functional.cross_entropy(network(given.inputs["inputs"])[0], batch["targets"])
    for transform in build(TransformSpec.model_validate(asked) for asked in CROPS):
        given = transform(given, None)
    scores, early = network(given.inputs["inputs"])
    return functional.cross_entropy(scores, given.targets) + 0.4 * functional.cross_entropy(early, given.targets)


JOBS = {
    "language-model": RealJob(
        real_jobs.LanguageModel,
        (ExampleInput(shape=(LENGTH - 1,), dtype="int64"),),
        lambda samples, seed: {"inputs": ids(samples, seed)},
        torch.save,
        next_word_loss,
        {"targets": "next", "classes": "last"},
    ),
    "masked-model": RealJob(
        real_jobs.LanguageModel,
        (ExampleInput(shape=(LENGTH - 1,), dtype="int64"),),
        lambda samples, seed: {"inputs": ids(samples, seed, LENGTH - 1)},
        torch.save,
        masked_word_loss,
        {"classes": "last", "transforms": [MASKING]},
    ),
    "translator": RealJob(
        real_jobs.Translator,
        (ExampleInput(name="src", shape=(7,), dtype="int64"), ExampleInput(name="tgt", shape=(5,), dtype="int64")),
        lambda samples, seed: {
            "inputs.src": ids(samples, seed, 7),
            "inputs.tgt": ids(samples, seed + 1, 5),
            "targets": ids(samples, seed + 2, 5),
        },
        save_npz,
        lambda network, batch: functional.cross_entropy(
            network(batch["inputs.src"], batch["inputs.tgt"])["logits"].movedim(-1, 1), batch["targets"]
        ),
        {"classes": "last", "output": "logits", "loading": "streamed"},
    ),
    "vae": RealJob(
        real_jobs.VAE,
        (ExampleInput(shape=(1, 6, 6)),),
        lambda samples, seed: {"inputs": pixels(samples, seed, 1, 6, 6)},
        save_file,
        lambda network, batch: network(batch["inputs"].float() * (1 / 255)).mean(),
        {"scale": 1 / 255},
        {"criterion": "none", "learning_rate": 0.005},
    ),
    "unet": RealJob(
        real_jobs.UNet,
        (ExampleInput(shape=(3, 12, 12)),),
        lambda samples, seed: {
            "inputs": pixels(samples, seed, 3, 12, 12),
            "targets": pixels(samples, seed + 1, 12, 12).long() % 3,
        },
        save_file,
        unet_loss,
        {"scale": 1 / 255, "output": "0", "auxiliary": {"1": 0.4}, "loading": "streamed", "transforms": CROPS},
    ),
    "siamese": RealJob(
        real_jobs.Siamese,
        (ExampleInput(name="left", shape=(1, 6, 6)), ExampleInput(name="right", shape=(1, 6, 6))),
        lambda samples, seed: {
            "inputs.left": pixels(samples, seed, 1, 6, 6),
            "inputs.right": pixels(samples, seed + 1, 1, 6, 6),
            "targets": (ids(samples, seed + 2, 1).squeeze(1) % 2).float(),
        },
        save_nested,
        lambda network, batch: functional.binary_cross_entropy_with_logits(
            network(batch["inputs.left"].float() * (1 / 255), batch["inputs.right"].float() * (1 / 255)),
            batch["targets"],
        ),
        {"scale": 1 / 255},
        {"criterion": "bce_with_logits"},
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each network packed from its Python file, and its data."""
    folder = tmp_path_factory.mktemp("real")
    for name, job in JOBS.items():
        source = Source(path=Path(real_jobs.__file__), factory=job.network.__name__)
        request = PackRequest(source=source, example=Example(inputs=job.inputs), out=folder / f"{name}.pt2", seed=SEED)
        sys.modules.pop(source.path.stem, None)  # each pack has a process of its own
        report = pack(request)
        assert report.path is not None, report.findings
        for part, samples, seed in (("train", 28, 1), ("test", 11, 7)):
            job.save(job.data(samples, seed), folder / f"{name}-{part}")
    return folder


def plain(job: RealJob, folder: Path, name: str) -> nn.Module:
    """Train the author's Python as the exactness recipe says, with nothing of the product but the initial weights."""
    with torch.random.fork_rng(devices=[]):
        network, data = job.network(), job.data(28, 1)
        network.load_state_dict(ExportedFormat().read(folder / f"{name}.pt2", None).build().state_dict())
        optimizer = torch.optim.SGD(network.train().parameters(), lr=job.hyper.get("learning_rate", RATE))
        order = torch.Generator().manual_seed(SEED)
        torch.manual_seed(SEED)
        for _ in range(EPOCHS):
            network.train()
            for chosen in torch.split(torch.randperm(28, generator=order), BATCH):
                optimizer.zero_grad(set_to_none=True)
                job.loss(network, {entry: one[chosen] for entry, one in data.items()}).backward()
                optimizer.step()
            with torch.no_grad():  # an evaluation may draw, too
                for start in range(0, 11, BATCH):
                    job.loss(network.eval(), {e: one[start : start + BATCH] for e, one in job.data(11, 7).items()})
        return network


def document(names: Sequence[str], folder: Path) -> dict[str, Any]:
    submodels = [
        {
            "name": name,
            "model": str(folder / f"{name}.pt2"),
            **JOBS[name].spec,
            "train_data": str(folder / f"{name}-train"),
            "test_data": str(folder / f"{name}-test"),
            "hyperparameters": {
                "epochs": EPOCHS,
                "batch_size": BATCH,
                "learning_rate": RATE,
                "seed": SEED,
                **JOBS[name].hyper,
            },
        }
        for name in names
    ]
    return {"name": "real", "device": "cpu", "threads": 1, "policy": {"name": "round_robin"}, "submodels": submodels}


@pytest.fixture(scope="module")
def alone(folder: Path) -> Iterator[dict[str, nn.Module]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield {name: plain(job, folder, name) for name, job in JOBS.items()}
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_six_kinds_of_jobs_train_in_one_hybrid_with_the_bits_of_the_authors_python(
    service: Service, folder: Path, alone: dict[str, nn.Module], tmp_path: Path
) -> None:
    run_id = service.runs.submit(parse_run(document(list(JOBS), folder)))
    wait_until(lambda: service.runs.observe(run_id).ended_at_s is not None)
    run = service.runs.observe(run_id)
    assert run.state is State.COMPLETED, [event.message for event in run.events]
    for part in run.submodels:
        assert part.state_sha256 == state_sha256(alone[part.name].state_dict()), part.name
        with zipfile.ZipFile(service.runs.artifact(run_id, part.name)) as archive:
            archive.extractall(tmp_path / part.name)
        [weights] = (tmp_path / part.name).rglob("weights.safetensors")
        assert state_sha256(load_file(weights)) == part.state_sha256
    plain_scripts_give_the_same(service, run_id, run)


class LastEpoch(ProgressWriter):
    """Keeps the figures of the last epoch."""

    def epoch(self, figures: dict[str, Any]) -> None:
        self.last = figures
        super().epoch(figures)


def plain_scripts_give_the_same(service: Service, run_id: str, run: RunView) -> None:
    """Bits and figures; here in this process, in `test_baseline_script.py` in processes of their own."""
    row, rows = service.store.runs.get(run_id)
    spec, files = RunSpec.model_validate(row.spec), BaselineFiles(service.home, run_id)
    files.create()
    for part, of_part, seen in zip(spec.submodels, rows, run.submodels, strict=True):
        job = replace(job_of(files, spec, part, of_part, threads=1, peers=1), parent_pid=None)
        with torch.random.fork_rng(devices=[]):
            told = LastEpoch(StringIO(), 1)
            trained = PlainScript(job, told).train()
        assert state_sha256(trained.state_dict()) == seen.state_sha256, part.name
        last = told.last
        assert (last["train_loss"], last["train_accuracy"]) == (seen.train_loss, seen.train_accuracy), part.name
        assert (last["test_loss"], last["test_accuracy"]) == (seen.test_loss, seen.test_accuracy), part.name
        assert 0 <= (seen.test_accuracy or 0) <= 1
