"""Trains victims in every format beside other tenants, over memory that is filled with a pattern.

`python -m tests.hostile.company TURN` prints digests of their checkpoints, figures, buffers and files, for one of two
sets of tenants and patterns: all are the same, but those of a victim that keeps what it finds in fresh memory.
"""

import hashlib
import json
import logging
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tests.contract.format_networks import CASES
from tests.contract.format_table import written
from tests.hostile import poison
from tests.integration.kit import CPU, Session
from tests.unit.formats import kit
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.separator import separate
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.registry import FORMATS, format_named
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.run import SubModelSpec

CASE_OF = {"module": "transformer", "state_dict": "resnet18", "safetensors": "lenet", "huggingface": "bert"}
"""Networks of `format_networks` by the format of their file; those of `pt2` are of the kit."""
HYPER = {"epochs": 2, "batch_size": 4, "seed": 5, "optimizer": "adam"}
SAMPLES = 14
POISONS = (0x00, 0xC1)


@dataclass(frozen=True)
class Tenant:
    """A network with data, which other tenants may have, too."""

    definition: Definition
    train: Dataset
    test: Dataset
    learning_rate: float = 0.01


class Wiper(nn.Module):
    """Learns nothing, and leaves nothing in its input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(images.zero_().flatten(1))
        return scores


class Reader(nn.Module):
    """Keeps what it finds in fresh memory in a buffer that no state dict has."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(64, 3)
        self.register_buffer("found", torch.zeros(500), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        self.found.copy_(torch.empty(500))
        scores: Tensor = self.head(images.flatten(1))
        return scores


def in_memory(make: Callable[[], nn.Module]) -> Definition:
    """A network that was in no file; its weights are the same each time."""

    def build() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return Definition(format="kit", path=Path("kit"), build=build, parameters=1, weights_bytes=1)


def pictures(seed: int, classes: int = 3) -> Dataset:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(SAMPLES, 1, 8, 8, generator=draw)
    return Dataset.of(inputs=inputs, targets=torch.randint(0, classes, (SAMPLES,), generator=draw))


def victims(folder: Path) -> Iterator[tuple[str, Tenant]]:
    """A network in each format, with what a file of it can have: buffers of all kinds, dropout, attention."""
    for name in ("residual", "attention"):
        definition = format_named("pt2").read(kit.exported(folder, name), None)
        draw = torch.Generator().manual_seed(3)
        sets = [
            Dataset.of(torch.randint(0, 11, (SAMPLES, 5), generator=draw), pictures(seed).targets) for seed in (3, 4)
        ]
        yield f"pt2-{name}", Tenant(definition, *([pictures(1), pictures(2)] if name == "residual" else sets))
    for known in FORMATS:
        if known.name in CASE_OF:
            case, place = CASES[CASE_OF[known.name]], folder / known.name
            place.mkdir()
            path, architecture = written(case, known.name, place)
            yield known.name, Tenant(known.read(path, architecture), *(Dataset.of(*case.data(seed)) for seed in (1, 2)))


def in_place() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 3))


def noisy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 5000), nn.Dropout(0.5), nn.RReLU(), nn.Linear(5000, 3))


def company(known: dict[str, Tenant]) -> tuple[dict[str, Tenant], dict[str, Tenant]]:
    """Two sets of other tenants: some have data of victims and write into it, some fail, all draw differently."""
    shared, text = known["pt2-residual"], known["pt2-attention"]
    words = CASES["lstm"]
    return (
        {
            "relu": Tenant(in_memory(in_place), shared.train, shared.test),
            "relu-too": Tenant(in_memory(in_place), shared.train, shared.test),
            "nan": Tenant(in_memory(noisy), pictures(7), pictures(8), 1e30),
        },
        {
            "noise": Tenant(in_memory(noisy), pictures(9), pictures(10)),
            "wiper": Tenant(in_memory(Wiper), shared.train, shared.test),
            "words": Tenant(in_memory(words.make), Dataset.of(*words.data(3)), Dataset.of(*words.data(4))),
            "other-words": Tenant(text.definition, text.test, text.train),
        },
    )


def submodel(name: str, tenant: Tenant, data: ResidentData) -> SubModel:
    hyper = HYPER | {"learning_rate": tenant.learning_rate}
    if tenant.train.targets.is_floating_point():
        hyper |= {"criterion": "mse"}
    spec = SubModelSpec.model_validate({"name": name, "model": "m", "train_data": "d", "hyperparameters": hyper})
    train, test = (data.hold(one.sha256(), lambda one=one: one) for one in (tenant.train, tenant.test))
    return SubModel(spec, tenant.definition, seed=HYPER["seed"], train=train, test=test, device=CPU)


def left_by(one: SubModel, session: Session, definition: Definition, folder: Path) -> dict[str, str]:
    """A digest of each thing that becomes of a sub-model, by its place."""
    ended = session.ended[one.name]
    assert ended.checkpoint is not None, ended
    found: dict[str, Any] = {
        "checkpoint": ended.checkpoint.state,
        "buffers": dict(one.module.named_buffers()),
        "losses": session.losses(one.name),
        "figures": [asdict(row) for row in session.epochs(one.name)],
    }
    if definition.format != "kit":
        own = folder / "left" / one.name
        own.mkdir(parents=True)
        separate(one.name, definition, ended.state_dict or {}, spec={}, figures=session.epochs(one.name), folder=own)
        with zipfile.ZipFile(own / f"{one.name}.zip") as archive:
            found["files"] = {name: ordered(name, archive.read(name)) for name in archive.namelist()}
    leaves, _ = pytree.tree_flatten_with_path(found)
    return {pytree.keystr(path): digest(leaf) for path, leaf in leaves}


def ordered(name: str, content: bytes) -> bytes:
    """A file, with the notes of a safetensors file in one order: its writer shuffles them anew in each process."""
    if not name.endswith(".safetensors"):
        return content
    end = 8 + int.from_bytes(content[:8], "little")
    return json.dumps(json.loads(content[8:end]), sort_keys=True).encode() + content[end:]


def digest(leaf: object) -> str:
    if isinstance(leaf, Tensor):
        leaf = str((leaf.dtype, leaf.shape)).encode() + bytes(leaf.contiguous().view(-1).view(torch.uint8).numpy())
    return hashlib.sha256(leaf if isinstance(leaf, bytes) else repr(leaf).encode()).hexdigest()


def main(turn: int) -> None:
    """Train everybody in turns of a step: the victims before the first tenants, or behind the others."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = dict(victims(folder))
        others = company(known)[turn]
        known["reader"] = Tenant(in_memory(Reader), pictures(1), pictures(2))
        everybody = others | known if turn else known | others
        poison.fill_memory(POISONS[turn])
        data = ResidentData(CPU)
        ready = [submodel(name, tenant, data) for name, tenant in everybody.items()]
        session = Session((), RoundRobin(unit="steps", amount=1), ready=ready).run()
        victim = [one for one in ready if one.name in known]
        found = {one.name: left_by(one, session, known[one.name].definition, folder) for one in victim}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    poison.start_over("tests.hostile.company")
    main(int(sys.argv[1]))
