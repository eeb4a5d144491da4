"""Offload leaves every bit, keeps its budget, and takes memory from the device as predicted."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.techniques.networks import EXAMPLES, Residual, attention, convolutions, example, of_file
from unifiednn_core.formats.architectures import registry
from unifiednn_core.spec.techniques import Checkpointing, Compression, DropIT, Offload
from unifiednn_core.techniques import offload
from unifiednn_core.techniques.build import NONE, built
from unifiednn_core.techniques.live_bytes import LiveBytes
from unifiednn_core.techniques.offload import Absence, planned
from unifiednn_core.testing.techniques import Taken, check_technique, take_step

MIB = 1024**2
OF_FILES = [of_file(make) for make in (convolutions, Residual)]


def resnet18() -> nn.Module:
    return registry.build("resnet18", {"width": 8, "classes": 10, "imagenet_stem": False})


def batch(samples: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(samples, 3, 32, 32, generator=generator), torch.arange(samples) % 10


def steps(make: Any, *asked: Any, count: int = 2) -> list[Taken]:
    """Steps of the same network from the same state, with techniques that know those before."""
    techniques = built(list(asked))
    return [take_step(*make(), techniques) for _ in range(count)]


def transient(taken: Taken) -> int:
    return taken.peak_bytes - sum(gradient.nbytes for gradient in taken.gradients)


@pytest.mark.parametrize("asked", [Offload(), Offload(ahead=0), Offload(budget_mib=0.3, ahead=3)])
def test_the_contract(asked: Offload) -> None:
    check_technique(asked, [*EXAMPLES, *OF_FILES])


@pytest.mark.parametrize("others", [(Compression(),), (Checkpointing(),), (Compression(), Checkpointing())])
def test_it_takes_what_codecs_and_segments_leave(others: tuple[Any, ...]) -> None:
    for make in (example(convolutions), *OF_FILES):
        alone = take_step(*make())
        for taken in steps(make, Offload(), *others):
            assert taken.same_bits(alone)
            assert taken.saved_bytes < 1000


def test_what_a_lossy_codec_packed_comes_back_as_it_was() -> None:
    for make in (example(convolutions), *OF_FILES):
        alone = take_step(*make(), built([DropIT()]))
        for taken in steps(make, Offload(), DropIT()):
            assert taken.same_bits(alone)


@pytest.fixture(scope="module")
def alone() -> Taken:
    return take_step(*resnet())


def resnet() -> tuple[nn.Module, Tensor, Tensor]:
    return example(resnet18)()[0], *batch()


def test_a_resnet18_trains_in_two_fifths_of_its_memory_with_identical_bits(alone: Taken) -> None:
    cap = 0.4 * transient(alone)
    for taken in steps(resnet, Offload(budget_mib=cap / MIB), count=3):
        assert taken.same_bits(alone)
        assert transient(taken) <= cap


@pytest.mark.parametrize("share", [0.35, 0.5, 0.8, 1.0])
def test_the_budget_is_used_and_kept(alone: Taken, share: float) -> None:
    first, then = steps(resnet, Offload(budget_mib=share * transient(alone) / MIB))
    assert 0.85 * share * transient(alone) <= transient(then) <= share * transient(alone) + 64 * 200  # blocks
    assert transient(first) <= transient(then), "the first step learns"


def test_later_parts_meet_the_gradients_of_earlier_ones(alone: Taken) -> None:
    """Gradients that are there do not count as room."""
    cap, live = int(0.5 * transient(alone)), LiveBytes()
    network, inputs, targets = resnet()
    live.track([*network.parameters(), *network.buffers(), inputs, targets])
    rest, techniques = live.current_bytes, built([Offload(budget_mib=cap / MIB)])
    for _ in range(3):
        network.zero_grad(set_to_none=True)
        for _ in range(2):
            live.timeline = []
            with live, techniques.part(network, (inputs, targets)):
                (nn.functional.cross_entropy(network(inputs), targets) / 2).backward()
            gradients = sum(one.grad.nbytes for one in network.parameters() if one.grad is not None)
            assert max(live.timeline) - rest - gradients <= cap + 64 * 200


def test_a_batch_that_is_larger_than_the_first_keeps_the_budget() -> None:
    techniques = built([Offload(budget_mib=7.0)])
    few, many = batch(8), batch(32)
    order = (few, few, many, many, many, few)
    sizes = [transient(take_step(example(resnet18)()[0], *given, techniques)) for given in order]
    assert max(sizes) <= 7 * MIB + 64 * 200
    assert sizes[4] > 0.9 * 7 * MIB, "the plan follows the larger one"


def test_no_more_than_a_few_tensors_travel_at_once() -> None:
    peaks = [transient(steps(resnet, Offload(ahead=ahead))[1]) for ahead in (0, 1, 4)]
    assert peaks == sorted(peaks)
    assert peaks[1] - peaks[0] <= 2 * MIB + 64 * 200, "the largest has 1 MiB; one leaves, one comes"


@pytest.mark.parametrize("asked", [(Offload(budget_mib=6.0), Compression()), (Compression(),)])
def test_nothing_outlives_a_step(asked: tuple[Any, ...]) -> None:
    network, inputs, targets = resnet()
    live, techniques, held = LiveBytes(), built(list(asked)), []
    live.track([*network.parameters(), *network.buffers(), inputs, targets])
    gc.collect()
    gc.disable()  # which would hide what only a cycle holds
    try:
        for _ in range(4):
            network.zero_grad(set_to_none=True)
            with live, techniques.part(network, (inputs, targets)):
                nn.functional.cross_entropy(network(inputs), targets).backward()
            held.append(live.current_bytes)
    finally:
        gc.enable()
    assert len(set(held)) == 1


SIZES = st.integers(1, 30)


@settings(deadline=None)
@given(st.data())
def test_a_plan_keeps_the_limit_and_the_last_saved_first(data: st.DataObject) -> None:
    alive = data.draw(st.lists(st.integers(0, 100), min_size=4, max_size=30))
    count = data.draw(st.integers(1, 12))
    absences = [
        Absence(data.draw(SIZES), data.draw(st.none() | st.just(place)), len(alive) - place)
        for place in range(min(count, len(alive) // 2))
    ]  # as forward and backward nest them
    most = data.draw(st.integers(0, 200))
    plan = planned(absences, alive, most)
    there = [
        now
        + sum(
            one.size_bytes
            for place, one in enumerate(absences)
            if place in plan.stays and one.left is not None and one.left <= moment < (one.back or 0)
        )
        for moment, now in enumerate(alive)
    ]
    assert all(now <= max(most, before) for now, before in zip(there, alive, strict=True))
    assert all(place in plan.stays for place, one in enumerate(absences) if one.left is None)
    last = len(absences) - 1
    if absences[last].left is not None and max(alive) + absences[last].size_bytes <= most:
        assert last in plan.stays
    assert planned(absences, alive, None).stays == {place for place, one in enumerate(absences) if one.left is None}
    assert planned(absences, alive, 10**6).stays == set(range(len(absences)))


def test_attention_too() -> None:
    taken = steps(example(attention), Offload())
    assert all(one.same_bits(take_step(*example(attention)(), NONE)) for one in taken)


class Timeline:
    """Streams that note what they do, in the place of those of a GPU."""

    def __init__(self) -> None:
        self.log: list[tuple[str, ...]] = []
        self.compute, self.now = FakeStream(self, "compute"), FakeStream(self, "compute")

    @contextmanager
    def stream(self, stream: "FakeStream") -> Iterator[None]:
        before, self.now = self.now, stream
        yield
        self.now = before


class FakeStream:
    def __init__(self, timeline: Timeline, name: str = "copies") -> None:
        self.timeline, self.name = timeline, name

    def wait_stream(self, other: "FakeStream") -> None:
        self.timeline.log.append((self.name, "waits for", other.name))

    def wait_event(self, event: str) -> None:
        self.timeline.log.append((self.name, "waits for", event))

    def record_event(self) -> str:
        event = f"event {sum(entry[1] == 'records' for entry in self.timeline.log)}"
        self.timeline.log.append((self.name, "records", event))
        return event


def test_on_a_gpu_streams_wait_before_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who computes waits for the copy to the host before it gives memory up, and for the copy back before its use."""
    made, torch_of_room = Timeline(), offload.torch
    cuda = SimpleNamespace(
        Stream=lambda device: FakeStream(made), current_stream=lambda device: made.now, stream=made.stream
    )
    monkeypatch.setattr(
        offload,
        "torch",
        SimpleNamespace(
            cuda=cuda,
            empty=lambda count, dtype, pin_memory: torch_of_room.empty(count, dtype=dtype),
            empty_like=lambda one, device, pin_memory: torch_of_room.empty_like(one),
        ),
    )
    host, flat = offload.PinnedMemory(torch.device("cuda", 0)), torch.arange(5.0)
    parcel = host.send(flat)
    assert made.log == [("copies", "waits for", "compute"), ("copies", "records", "event 0")]
    parcel.sent()
    assert made.log[2:] == [("compute", "waits for", "event 0")]
    there = parcel.fetch()
    assert made.log[3:] == [("copies", "waits for", "compute"), ("copies", "records", "event 1")]
    parcel.wait()
    host.close()
    assert made.log[5:] == [("compute", "waits for", "event 1"), ("compute", "waits for", "copies")]
    assert torch.equal(there, flat)
