"""A sub-model's random numbers: whose generator they come from, and that nobody can tell."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.engine.start_kit import submodel
from tests.unit.formats import kit
from unifiednn_core.engine import randomness
from unifiednn_core.engine.checkpoint import Checkpoint, flatten
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.exported import ExportedFormat

STEPS = 5
DRAWING = kit.network("cnn", seed=3)
NETWORKS = {
    "dropout": DRAWING,
    "quiet": nn.Sequential(*(layer for layer in DRAWING if not isinstance(layer, nn.Dropout))),
    "shares": nn.Sequential(*DRAWING, nn.AlphaDropout(0.1)),
}
OWN = ("dropout", "quiet", "graph")
Make = Callable[[str], SubModel]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kit.exported(tmp_path_factory.mktemp("draws"), "cnn")


@pytest.fixture
def made(file: Path) -> Make:
    """Makes a sub-model of each network."""

    def make(name: str) -> SubModel:
        if name == "graph":
            return submodel(ExportedFormat().read(file, None).build)
        return submodel(lambda: copy.deepcopy(NETWORKS[name]))

    return make


@pytest.fixture
def default(made: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes the same sub-models, but they draw from torch's default generators."""

    def make(name: str) -> SubModel:
        with monkeypatch.context() as patch:
            patch.setattr(randomness, "draws", lambda _: True)
            patch.setattr(randomness, "own_draws", lambda _: None)
            return made(name)

    return make


def one_step(part: SubModel) -> None:
    part.step()
    if part.at_epoch_end:
        part.end_epoch()


def train(part: SubModel, steps: int = STEPS) -> Checkpoint:
    """Train in two turns, and capture inside the second."""
    for count in (2, steps - 2):
        with part.world():
            for _ in range(count):
                one_step(part)
            written = part.capture()
    assert bits(part.capture()) == bits(written)
    return written


def bits(checkpoint: Checkpoint) -> Any:
    """Everything in a checkpoint, comparable."""
    tree, tensors = flatten(checkpoint.state)
    return tree, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", [*OWN, "shares"])
def test_a_checkpoint_is_the_same_whatever_generator_drew(name: str, made: Make, default: Make) -> None:
    part, other = made(name), default(name)
    assert (part.shares_randomness, other.shares_randomness) == (name == "shares", True)
    assert bits(train(part)) == bits(train(other))


@pytest.mark.parametrize("name", OWN)
def test_a_checkpoint_of_one_resumes_in_the_other(name: str, made: Make, default: Make) -> None:
    whole = bits(train(default(name), 7))
    for first, then in ((made, default), (default, made)):
        begun, resumed = first(name), then(name)
        train(begun, 3)
        resumed.restore(begun.capture())
        assert bits(train(resumed, 4)) == whole


def test_steps_that_share_no_randomness_may_alternate(made: Make, default: Make) -> None:
    """As in two lanes, but in turns; with the default generators the same test fails."""
    alone = [bits(train(made(name))) for name in OWN]

    def company(make: Make) -> list[Any]:
        parts = [make(name) for name in OWN]
        with parts[0].world(), parts[1].world(), parts[2].world():
            for _ in range(STEPS):
                for part in parts:
                    one_step(part)
            return [bits(part.capture()) for part in parts]

    assert company(made) == alone
    for with_default, right in zip(company(default), alone, strict=True):
        assert with_default != right


def test_two_threads_give_the_bits_of_each_alone(made: Make) -> None:
    parts, together = [made(name) for name in ("dropout", "graph")], Barrier(2, timeout=60)

    def lane(part: SubModel) -> None:
        torch.set_num_threads(1)
        with part.world():
            for _ in range(STEPS):
                together.wait()
                one_step(part)

    before = torch.get_rng_state()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lane, parts))
    assert torch.equal(torch.get_rng_state(), before)
    assert [bits(part.capture()) for part in parts] == [bits(train(made(name))) for name in ("dropout", "graph")]


@pytest.mark.parametrize("name", OWN)
def test_what_shares_nothing_leaves_the_default_generators_alone(name: str, made: Make) -> None:
    part, before = made(name), torch.get_rng_state()
    with part.world():
        one_step(part)
        part.capture()
    assert torch.equal(torch.get_rng_state(), before)


def test_outside_its_world_a_network_is_the_submitted_one() -> None:
    network = copy.deepcopy(DRAWING)
    part, fields = submodel(lambda: network), [set(layer.__dict__) for layer in network]
    assert pickle.dumps(network)
    with part.world():
        assert [set(layer.__dict__) for layer in network] != fields
    assert [set(layer.__dict__) for layer in network] == fields
