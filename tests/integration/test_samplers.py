"""Samplers: the order of an epoch, its bits against a plain loop, and what a checkpoint may hold of it."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.integration import vanilla_loop
from tests.integration.kit import CPU
from tests.integration.test_every_choice import by_script
from tests.integration.test_hyperparameters import asked
from tests.integration.vanilla_loop import Trained
from tests.unit.engine.start_kit import changed, definition_of
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import vanilla
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.step import Step
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.spec.run import Hyperparameters, SubModelSpec

SAMPLES, LONGEST, CLASSES, PAD = 37, 9, 3, 7


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 4), nn.Linear(4, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.head(self.embedding(ids).mean(1))
        return scores


def network() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        return Tokens()


def dataset() -> Dataset:
    """Rows of different length; most samples are of class 0."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, 7, (SAMPLES, LONGEST), generator=generator)
    lengths = torch.randint(0, LONGEST + 1, (SAMPLES, 1), generator=generator)
    targets = torch.where(torch.arange(SAMPLES) < 30, 0, torch.arange(SAMPLES) % CLASSES)
    return Dataset.of(torch.where(torch.arange(LONGEST) < lengths, ids, PAD), targets)


def submodel(hyper: Hyperparameters) -> SubModel:
    spec = SubModelSpec(name="x", model="m", train_data="d", hyperparameters=hyper)
    held = ResidentData(CPU).hold("train", dataset)
    return SubModel(spec, definition_of(network), seed=hyper.seed or 0, train=held, test=None, device=CPU)


def stepped(part: SubModel, steps: int) -> list[float]:
    losses = []
    with part.world():
        for _ in range(steps):
            losses.append(part.step().loss.item())
            if part.at_epoch_end:
                part.end_epoch()
    return losses


def by_length(**more: Any) -> Hyperparameters:
    return asked(sampler={"name": "by_length", "pad": PAD, "window": 2}, **more)


def balanced(**more: Any) -> Hyperparameters:
    return asked(sampler={"name": "balanced"}, **more)


@pytest.mark.parametrize("make", [by_length, balanced])
@pytest.mark.parametrize("more", [{}, {"accumulation_steps": 2, "batch_split": 2, "drop_last": True}], ids=str)
def test_a_hybrid_that_goes_on_from_a_checkpoint_and_a_script_have_the_bits_of_a_plain_loop(
    make: Any, more: dict[str, Any], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    hyper, data = make(**more), dataset()
    assert data.targets is not None
    plain = vanilla_loop.train(network(), hyper, (data.first, data.targets))
    first, rest = submodel(hyper), submodel(hyper)
    losses = stepped(first, 3)
    taken = first.capture()
    rest.restore(taken)
    losses += stepped(rest, len(plain.losses) - 3)
    assert taken.state["data"]["order"] is not None or make is balanced or more
    assert Trained(rest.module, rest.optimizer, rest.lr_scheduler, losses).bits() == plain.bits()

    home.file("d").parent.mkdir(parents=True, exist_ok=True)
    torch.save({"inputs": data.first, "targets": data.targets}, home.file("d"))
    monkeypatch.setattr(vanilla, "read_network", lambda *_: (network(), Step()))
    assert by_script(home, hyper, "d", steps=len(losses)).bits() == plain.bits()


def order_of(hyper: Hyperparameters) -> list[int]:
    part = submodel(hyper)
    stepped(part, 1)
    order: list[int] = part.capture().state["data"]["order"].tolist()
    return order


def test_within_a_window_lengths_rise_and_each_sample_comes_once() -> None:
    order, ids = order_of(by_length()), dataset().first
    assert sorted(order) == list(range(SAMPLES))
    length = [max((place for place, one in enumerate(row, 1) if one != PAD), default=0) for row in ids.tolist()]
    for start in range(0, SAMPLES, 16):
        window = [length[sample] for sample in order[start : start + 16]]
        assert window == sorted(window)
    assert order != sorted(order, key=length.__getitem__)  # random beyond a window


def test_classes_come_equally_often_where_they_are_balanced() -> None:
    targets = dataset().targets
    assert targets is not None
    seen = Counter(int(targets[sample]) for seed in range(30) for sample in order_of(balanced(seed=seed)))
    assert all(abs(count - 10 * SAMPLES) < 80 for count in seen.values()), seen  # 5 standard deviations


def test_an_order_with_repeats_belongs_only_to_a_balanced_sampler() -> None:
    part = submodel(balanced())
    stepped(part, 1)
    drawn = part.capture()
    assert len(set(drawn.state["data"]["order"].tolist())) < SAMPLES
    with pytest.raises(BadCheckpoint, match="not a permutation"):
        submodel(by_length()).restore(drawn)
    for wrong in (-1, SAMPLES):
        order = torch.full((SAMPLES,), wrong)
        with pytest.raises(BadCheckpoint, match="not drawn from"):
            submodel(balanced()).restore(changed(drawn, "data", order=order))


def test_balanced_weights_make_the_loss_of_each_class_count_alike() -> None:
    part = submodel(asked(class_weights="balanced"))
    weight, targets = dict(part.criterion.named_buffers())["weight"], dataset().targets
    assert targets is not None
    counts = torch.bincount(targets)
    assert torch.allclose(weight * counts, torch.full((CLASSES,), SAMPLES / CLASSES))
