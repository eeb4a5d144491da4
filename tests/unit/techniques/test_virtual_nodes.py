"""Virtual nodes: V fixes the result, logical devices do not; gradients of the whole batch in the memory of a share."""

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.integration.kit import CPU, ROOM, Session, submodel_spec
from tests.integration.three import at_step
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.events import Answered, Captured
from unifiednn_core.engine.learning import EagerLearner, add_gradients
from unifiednn_core.engine.orders import Adjust
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.step import Step
from unifiednn_core.formats.architectures import registry
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.hyperparameters import Hyperparameters
from unifiednn_core.spec.run import CheckpointSpec
from unifiednn_core.techniques import virtual_nodes
from unifiednn_core.techniques.build import built
from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.virtual_nodes import best_shares, lengths, waves

BATCH = 64
TURNS = RoundRobin(unit="steps", amount=2)
UNEQUAL = ([3, 1], [5, 2, 1, 8], [9, 1, 1, 2, 7, 4, 4, 4])


def nodes(count: int, shares: list[int] | None = None, devices: int = 1) -> dict[str, Any]:
    return {"name": "virtual_nodes", "nodes": count, "shares": shares, "devices": devices}


# -- one step: gradients and memory


def network() -> nn.Module:
    """Large activations, few weights, no batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Tanh(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(288, 10),
    )


def learner_of(module: nn.Module, data: Dataset, techniques: Sequence[dict[str, Any]]) -> EagerLearner:
    asked = Hyperparameters.model_validate({"batch_size": BATCH, "techniques": list(techniques)})
    lease = ResidentData(CPU).hold("train", lambda: data)
    return EagerLearner(
        Step(),
        asked,
        module,
        nn.CrossEntropyLoss(),
        list(module.parameters()),
        lease,
        Randomness(module, 0, CPU),
        techniques=built(asked.techniques),
    )


def taken(
    techniques: Sequence[dict[str, Any]] = (), samples: int = BATCH, *, counted: bool = False
) -> tuple[list[Tensor], int]:
    """Gradients of a step, in float64, and the most bytes of it alive at once, without data and weights."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(BATCH, 1, 24, 24, generator=generator)
    targets = torch.randint(0, 10, (BATCH,), generator=generator)
    data = Dataset.of(inputs=inputs, targets=targets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = network()
    trained, learner = list(module.parameters()), learner_of(module, data, techniques)
    live = LiveBytes()
    live.track([*trained, *data.entries.values()])
    before = live.current_bytes
    with live if counted else nullcontext():
        learner([torch.arange(samples)])
    return [one.grad.double() for one in trained if one.grad is not None], max(live.timeline, default=0) - before


def error(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """Relative, over all gradients."""
    apart = sum(float((one - other).square().sum()) for one, other in zip(found, wanted, strict=True))
    return float((apart / sum(float(one.square().sum()) for one in wanted)) ** 0.5)


def cases() -> list[tuple[int, list[int] | None]]:
    return [*((count, None) for count in (1, 2, 4, 8)), *((len(shares), shares) for shares in UNEQUAL)]


@pytest.mark.parametrize(("count", "shares"), cases(), ids=str)
@pytest.mark.parametrize("samples", [BATCH, 37])
def test_the_gradients_are_those_of_the_whole_batch(count: int, shares: list[int] | None, samples: int) -> None:
    whole, _ = taken(samples=samples)
    for devices in (1, 3):
        found, _ = taken([nodes(count, shares, devices)], samples)
        assert error(found, whole) <= 1e-6


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_step_needs_the_memory_of_its_largest_share(count: int) -> None:
    _, whole_bytes = taken(counted=True)
    assert taken([nodes(count)], counted=True)[1] <= 1.25 / count * whole_bytes
    if count > 1:
        unequal = [3, *[1] * (count - 1)]
        assert (
            1 / count * whole_bytes
            < taken([nodes(count, unequal)], counted=True)[1]
            <= 1.25 * 3 / sum(unequal) * whole_bytes
        )


class BesideGradients(list[int]):
    """Bytes after each operator without those of the gradients that are in `.grad` then."""

    def __init__(self, trained: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.trained = trained

    def append(self, size_bytes: int) -> None:
        super().append(size_bytes - sum(one.grad.nbytes for one in self.trained if one.grad is not None))


def transient_of_a_resnet18(techniques: Sequence[dict[str, Any]] = ()) -> int:
    """Most bytes of a step besides weights, gradients and data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = registry.build("resnet18", {"width": 16, "classes": 10, "imagenet_stem": False})
    data = Dataset.of(inputs=torch.ones(BATCH, 3, 16, 16), targets=torch.arange(BATCH) % 10)
    live, learner = LiveBytes(), learner_of(module, data, techniques)
    live.track([*module.parameters(), *module.buffers(), *data.entries.values()])
    before, live.timeline = live.current_bytes, BesideGradients(learner.trained)
    with live:
        learner([torch.arange(BATCH)])
    return max(live.timeline) - before


def held_apart(self: EagerLearner, given: Any, share: float | None, ignored: int | None) -> Any:
    """Learn a part as several devices do, which have all of its gradients before the first is added."""
    outputs, loss = self._forward(given, share)
    add_gradients(self.trained, torch.autograd.grad(loss, self.trained))
    return self._scored(given, outputs, loss, ignored)


def test_a_resnet18_needs_the_memory_of_a_share_besides_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_bytes = transient_of_a_resnet18()
    for count in (2, 4, 8):
        assert transient_of_a_resnet18([nodes(count)]) <= 1.25 / count * whole_bytes
    monkeypatch.setattr(EagerLearner, "_learn", held_apart)
    assert transient_of_a_resnet18([nodes(8)]) > 1.25 / 8 * whole_bytes, (
        "gradients of a share, all at once, are noticed"
    )


class Meeting(nn.CrossEntropyLoss):
    """Notes the threads that come, and lets them wait for each other: that ends only if two compute at once."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self.threads, self.barrier = set[int](), threading.Barrier(parties, timeout=60)

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        self.threads.add(threading.get_ident())
        self.barrier.wait()
        return super().forward(scores, targets)


@pytest.mark.parametrize(
    ("more", "devices", "at_once"),
    [(None, 2, True), (None, 1, False), (nn.Dropout(0.5), 2, False), (nn.BatchNorm1d(4), 2, False)],
    ids=str,
)
def test_devices_compute_at_once_unless_the_network_draws_or_keeps_statistics(
    more: nn.Module | None, devices: int, at_once: bool
) -> None:
    asked = Hyperparameters.model_validate({"batch_size": 8, "techniques": [nodes(4, None, devices)]})
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), *([] if more is None else [more]))
    data = Dataset.of(inputs=torch.ones(8, 1, 6, 6), targets=torch.arange(8) % 4)
    lease, meeting = ResidentData(CPU).hold("train", lambda: data), Meeting(2 if at_once else 1)
    EagerLearner(
        Step(),
        asked,
        module,
        meeting,
        list(module.parameters()),
        lease,
        Randomness(module, 0, CPU),
        techniques=built(asked.techniques),
    )([torch.arange(8)])
    assert len(meeting.threads - {threading.get_ident()}) == (2 if at_once else 0)


# -- training: the mapping to devices changes no bit


def trained(
    network: str, *, devices: int = 1, resize: tuple[int, ...] = (), shares: list[int] | None = None
) -> Session:
    """A session in which the sub-model `x` with four nodes trains beside two others; resized at steps 2, 4, ..."""
    spec = submodel_spec("x", techniques=[nodes(4, shares, devices)], optimizer="adam")
    orders = [at_step("x", 2 * place, Adjust("x", "devices", count, place)) for place, count in enumerate(resize, 1)]

    def on_report(session: Session, report: Any) -> None:
        for order in orders:
            order(session, report)

    others = [("mlp", submodel_spec("a")), ("cnn", submodel_spec("b"))]
    return Session([(network, spec), *others], TURNS, on_report).run()


@pytest.mark.parametrize("network", ["plain", "noisy", "lstm"])
def test_one_to_four_devices_and_a_resize_in_mid_epoch_leave_the_same_bits(network: str) -> None:
    alone = trained(network)
    without = Session(
        [(network, submodel_spec("x", optimizer="adam")), ("mlp", submodel_spec("a")), ("cnn", submodel_spec("b"))],
        TURNS,
    ).run()
    for how in ({"devices": 2}, {"devices": 3}, {"devices": 4}, {"resize": (4, 1, 3)}, {"devices": 3, "resize": (2,)}):
        other = trained(network, **how)
        assert other.hashes() == alone.hashes(), how
        assert other.losses("x") == alone.losses("x"), how
        assert {report.declined for report in other.reports if isinstance(report, Answered)} <= {None}
    assert {name: alone.hashes()[name] for name in "ab"} == {name: without.hashes()[name] for name in "ab"}
    assert trained(network, shares=[4, 1, 2, 1]).hashes()["x"] != alone.hashes()["x"], "shares fix the result"


@pytest.mark.parametrize("network", ["plain", "cnn"])
def test_equal_nodes_of_what_draws_nothing_are_the_parts_of_a_batch_split(network: str) -> None:
    parts = Session([(network, submodel_spec("x", optimizer="adam", batch_split=4))], TURNS).run()
    for devices in (1, 3):
        assert trained(network, devices=devices).hashes()["x"] == parts.hashes()["x"]


def test_nodes_of_one_step_draw_other_numbers_and_the_stream_of_the_sub_model_stays() -> None:
    module = nn.Dropout(0.5)
    own = Randomness(module, 3, CPU)
    own.begin()
    before, drawn = own.state.cpu, []
    for node in (0, 1, 0):
        with own.seeded(virtual_nodes.seed_of(3, 1, node)):
            drawn.append(module(torch.ones(64)))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(own.state.cpu, before)
    own.end()


def test_beside_another_lane_the_bits_are_the_same() -> None:
    both = [("lstm", submodel_spec("a")), ("plain", submodel_spec("x", techniques=[nodes(4, devices=3)]))]
    alone = Session([("plain", submodel_spec("x", techniques=[nodes(4)]))], TURNS).run().hashes()
    found = Session(both, TURNS, lanes=2, **ROOM).run().hashes()
    assert found["x"] == alone["x"]
    assert found["a"] == Session(both[:1], TURNS).run().hashes()["a"]


def test_a_training_resumed_on_other_devices_goes_on_with_the_same_bits() -> None:
    spec = submodel_spec("x", techniques=[nodes(4, devices=2)], optimizer="adam")
    whole = Session([("lstm", spec)], TURNS, checkpoint=CheckpointSpec(every_steps=3)).run()
    captured = [report.checkpoint for report in whole.reports if isinstance(report, Captured)]
    other = submodel_spec("x", techniques=[nodes(4, devices=3)], optimizer="adam")
    for checkpoint in captured:
        again = Session([("lstm", other)], TURNS, restored={"x": checkpoint}).run()
        assert again.hashes() == whole.hashes()
        assert again.losses("x") == whole.losses("x")[checkpoint.step :]
    fewer = submodel_spec("x", techniques=[nodes(2)], optimizer="adam")
    assert Session([("lstm", fewer)], TURNS, restored={"x": captured[0]}).run().hashes() != whole.hashes()


def test_each_sample_is_seen_once_also_across_a_resize(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    batch = EagerLearner.batch

    def looking(self: EagerLearner, data: Any, samples: Any, *, training: bool = True) -> Any:
        if training and isinstance(samples, Tensor):
            seen.extend(samples.tolist())
        return batch(self, data, samples, training=training)

    monkeypatch.setattr(EagerLearner, "batch", looking)
    spec = submodel_spec("x", epochs=1, techniques=[nodes(4)])
    Session([("plain", spec)], TURNS, at_step("x", 2, Adjust("x", "devices", 3, 1))).run()
    assert sorted(seen) == list(range(37))


def test_devices_are_for_virtual_nodes() -> None:
    session = Session([("plain", submodel_spec("x"))], TURNS, at_step("x", 2, Adjust("x", "devices", 3, 1))).run()
    assert [report.declined for report in session.reports if isinstance(report, Answered)] == ["x has no virtual nodes"]


def test_two_parameters_with_one_gradient_stay_apart() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))

        def forward(self, images: Tensor) -> Tensor:
            return images.flatten(1)[:, :4] + (self.one + self.other)

    module = Twice()
    both = [module.one, module.other]
    for _ in range(2):
        add_gradients(both, torch.autograd.grad(module(torch.ones(2, 6)).sum(), both))
    assert all(one.grad is not None and torch.equal(one.grad, torch.full((4,), 4.0)) for one in both)


# -- planning


@given(st.integers(1, 500), st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_a_cut_gives_each_sample_to_one_node_and_none_more_than_its_share(samples: int, shares: list[int]) -> None:
    found, unit = lengths(samples, shares), -(-samples // sum(shares))
    assert sum(found) == samples
    assert all(0 < count <= unit * share for count, share in zip(found, shares, strict=False))
    equal = [len(one) for one in torch.arange(samples).chunk(len(shares))]
    assert lengths(samples, (1,) * len(shares)) == equal, "equal shares are batch_split"


@given(st.integers(1, 40), st.integers(1, 9))
def test_each_node_is_computed_once_and_a_wave_has_a_device_for_each(count: int, devices: int) -> None:
    found = waves(count, devices)
    assert [node for wave in found for node in wave] == list(range(count))
    assert all(len({node % devices for node in wave}) == len(wave) for wave in found)


def slowest(shares: Sequence[int], speeds: Sequence[float], start_s: float) -> float:
    """Time of a step in which each part takes `start_s` and a time per sample."""
    devices = len(speeds)
    return max(sum(start_s + speeds[device] * size for size in shares[device::devices]) for device in range(devices))


@given(st.integers(8, 24), st.integers(2, 4), st.lists(st.floats(0.5, 5), min_size=2, max_size=3), st.floats(0, 3))
@settings(deadline=None, max_examples=60)
def test_measured_shares_are_the_best_there_are(samples: int, count: int, speeds: list[float], start_s: float) -> None:
    speeds = speeds[:count]
    times = [{size: start_s + speed * size for size in (1, samples // 2, samples)} for speed in speeds]
    found = best_shares(samples, count, times)

    def cuts(left: int, parts: int) -> list[list[int]]:
        if parts == 1:
            return [[left]]
        return [[first, *rest] for first in range(1, left - parts + 2) for rest in cuts(left - first, parts - 1)]

    best = min(slowest(cut, speeds, start_s) for cut in cuts(samples, count))
    equal = slowest([samples // count + (node < samples % count) for node in range(count)], speeds, start_s)
    if found is None:
        assert best >= (1 - virtual_nodes.LEAST_GAIN) * equal * (1 - 1e-9)
    else:
        assert sum(found) == samples
        assert slowest(found, speeds, start_s) == pytest.approx(best)


def test_equal_devices_keep_equal_shares_and_a_slow_one_gets_less() -> None:
    times = {8: 1.0, 16: 1.9, 32: 3.7}
    assert best_shares(64, 4, [times, {size: 1.02 * time for size, time in times.items()}]) is None
    slow = {size: 3 * time for size, time in times.items()}
    found = best_shares(64, 4, [times, slow])
    assert found is not None
    assert min(found[0], found[2]) > 2 * max(found[1], found[3])


# -- the spec


@pytest.mark.parametrize(
    ("asked", "more", "says"),
    [
        ({"nodes": 2}, {"batch_split": 2}, "Set batch_split to 1"),
        ({"nodes": 16}, {}, "Give at most 8"),
        ({"nodes": 2, "shares": [5, 6]}, {}, "Give at most 8"),
        ({"nodes": 3, "shares": [5, 6]}, {}, "Set nodes to 2"),
        ({"shares": [1, 1]}, {}, "Set nodes to 2"),
        ({"shares": "measured"}, {}, "Give nodes as a number"),
        ({"nodes": 0}, {}, "greater than or equal to 1"),
        ({"nodes": 2, "devices": 65}, {}, "less than or equal to 64"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Any], more: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        submodel_spec("x", techniques=[{"name": "virtual_nodes", **asked}], **more)


def test_a_name_alone_fits_the_memory() -> None:
    asked = submodel_spec("x", techniques=["virtual_nodes"]).hyperparameters
    assert asked.nodes is not None and asked.nodes.is_open and asked.shares == (1,)
