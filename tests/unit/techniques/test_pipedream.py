"""PipeDream: the partition, the schedule, and training with stashed weights."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats.architectures import lenet, resnet
from unifiednn_core.techniques.pipelines.layers import chain
from unifiednn_core.techniques.pipelines.partition import Layer, Machines, StagePlan, partition, partitions
from unifiednn_core.techniques.pipelines.pipedream import PipeDream
from unifiednn_core.techniques.pipelines.profile import profile, stages
from unifiednn_core.techniques.pipelines.schedule import StageWork, schedule, version_of, warm_ups

LAYERS = st.builds(
    Layer,
    time_s=st.integers(0, 20).map(float),
    activation_bytes=st.integers(0, 50),
    weight_bytes=st.integers(0, 50),
)
MACHINES = st.builds(
    Machines,
    count=st.integers(1, 4),
    bytes_per_s=st.sampled_from([1.0, 8.0, float("inf")]),
    memory_bytes=st.none() | st.integers(50, 600),
    replicate=st.booleans(),
)


def every_pipeline(layers: int, machines: int, replicate: bool) -> Iterator[list[StagePlan]]:
    for count in range(1, min(layers, machines) + 1):
        for cuts in combinations(range(1, layers), count - 1):
            ends = list(zip([0, *cuts], [*cuts, layers], strict=True))
            for replicas in product(range(1, machines + 1) if replicate else (1,), repeat=count):
                if sum(replicas) == machines:
                    yield [StagePlan(*end, one) for end, one in zip(ends, replicas, strict=True)]


def slowest_s(plan: Sequence[StagePlan], layers: Sequence[Layer], machines: Machines) -> float | None:
    """By the formulas of the paper, without sums kept from before; None if a stage does not fit."""
    times, warm = [], warm_ups([stage.replicas for stage in plan])
    for place, stage in enumerate(plan):
        own = layers[stage.first : stage.end]
        held = sum(one.activation_bytes + one.weight_bytes for one in own) * (warm[place] + 1)
        if machines.memory_bytes is not None and held > machines.memory_bytes:
            return None
        weights = sum(one.weight_bytes for one in own)
        exchanged = 4 * (stage.replicas - 1) * weights / (machines.bytes_per_s * stage.replicas)
        times.append((sum(one.time_s for one in own) + exchanged) / stage.replicas)
        if place:
            moved = layers[stage.first - 1].activation_bytes
            times += [2 * moved / (machines.bytes_per_s * one.replicas) for one in (plan[place - 1], stage)]
    return max(times)


@given(st.lists(LAYERS, min_size=1, max_size=8), MACHINES)
def test_the_optimizer_equals_brute_force(layers: list[Layer], machines: Machines) -> None:
    for count, found in enumerate(partitions(layers, machines), start=1):
        plans = every_pipeline(len(layers), count, machines.replicate)
        times = [time for plan in plans if (time := slowest_s(plan, layers, machines)) is not None]
        assert (found is None) == (not times)
        if found is not None:
            assert found.slowest_s == pytest.approx(min(times))
            assert found.slowest_s == pytest.approx(slowest_s(found.stages, layers, machines))
            assert sum(stage.replicas for stage in found.stages) == count


def test_memory_decides_and_may_leave_no_partition() -> None:
    layers = [Layer(time_s=1.0, activation_bytes=10, weight_bytes=10) for _ in range(4)]
    free, tight = (partition(layers, Machines(count=2, memory_bytes=most)) for most in (None, 60))
    assert free is not None and tight is not None
    assert free.slowest_s == 2.0
    assert tight.stages == (StagePlan(0, 1, 1), StagePlan(1, 4, 1)), "the first stage keeps two versions"
    assert partition(layers, Machines(count=2, memory_bytes=59)) is None


@given(st.integers(1, 6), st.integers(0, 20))
def test_a_batch_uses_one_version_of_each_stage(count: int, batches: int) -> None:
    works = list(schedule(count, batches))
    updates, flights, kept = [0] * count, [dict[int, int]() for _ in range(count)], set[tuple[int, int, str]]()
    assert len({(work.tick, work.stage) for work in works}) == len(works) == 2 * count * batches
    for work in works:
        warm_up = count - 1 - work.stage
        assert work.version == version_of(work.batch, warm_up) == max(0, work.batch - warm_up)
        if work.kind == "forward":
            assert work.stage == 0 or (work.stage - 1, work.batch, "forward") in kept
            assert work.version == updates[work.stage], "a forward uses the newest weights"
            flights[work.stage][work.batch] = work.version
            assert len(flights[work.stage]) <= warm_up + 1
        else:
            assert work.stage == count - 1 or (work.stage + 1, work.batch, "backward") in kept
            assert flights[work.stage].pop(work.batch) == work.version
            updates[work.stage] += 1
        kept.add((work.stage, work.batch, work.kind))
    assert works == sorted(works, key=lambda work: work.tick)


def test_replicas_make_warm_ups_shorter() -> None:
    assert warm_ups([1, 1, 1, 1]) == (3, 2, 1, 0)
    assert warm_ups([2, 1, 1]) == (1, 1, 0)
    assert warm_ups([3, 1]) == (1, 0)


def parts() -> list[nn.Module]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()),
            nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 16)),
            nn.Sequential(nn.Tanh(), nn.Linear(16, 16), nn.ReLU()),
            nn.Linear(16, 4),
        ]


def batches(count: int = 9) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 1, 8, 8, generator=generator), torch.randint(4, (8,), generator=generator))
        for _ in range(count)
    ]


def trained(
    made: Sequence[nn.Module], optimizer: Callable[..., Optimizer], data: Sequence[tuple[Tensor, Tensor]]
) -> tuple[list[float], list[StageWork]]:
    pipeline, works = PipeDream(made, [optimizer(one.parameters()) for one in made]), list[StageWork]()
    pipeline.on_work = works.append
    given = ((inputs, lambda output, targets=targets: cross_entropy(output, targets)) for inputs, targets in data)
    return [one.loss.item() for one in pipeline.train(given, len(data))], works


def bits(modules: Sequence[nn.Module]) -> list[bytes]:
    return [one.numpy(force=True).tobytes() for module in modules for one in module.state_dict().values()]


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "sgd": lambda given: SGD(given, lr=0.1),
    "momentum": lambda given: SGD(given, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "adam": lambda given: Adam(given, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_stage_is_plain_training_bit_for_bit(name: str) -> None:
    plain, piped = nn.Sequential(*parts()), nn.Sequential(*parts())
    optimizer, losses = OPTIMIZERS[name](plain.parameters()), []
    for inputs, targets in batches():
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(plain(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert trained([piped], OPTIMIZERS[name], batches())[0] == losses
    assert bits([piped]) == bits([plain])


def by_recurrence(
    made: Sequence[nn.Module],
    optimizer: Callable[..., Optimizer],
    data: Sequence[tuple[Tensor, Tensor]],
    delay: int = 1,
) -> list[float]:
    """Delayed SGD as the paper states it: one gradient of the whole network, of weights from different updates."""
    optimizers = [optimizer(one.parameters()) for one in made]
    past = [[{name: one.detach().clone() for name, one in module.named_parameters()}] for module in made]
    losses = []
    for batch, (inputs, targets) in enumerate(data):
        ages = [delay * (len(made) - 1 - place) for place in range(len(made))]
        stashed = [versions[max(0, batch - age)] for versions, age in zip(past, ages, strict=True)]
        used = [{name: one.clone().requires_grad_() for name, one in weights.items()} for weights in stashed]
        value = inputs
        for module, weights in zip(made, used, strict=True):
            value = functional_call(module, weights, (value,))
        loss = cross_entropy(value, targets)
        loss.backward()
        losses.append(loss.item())
        for module, weights, own, versions in zip(made, used, optimizers, past, strict=True):
            for name, one in module.named_parameters():
                one.grad = weights[name].grad
            own.step()
            versions.append({name: one.detach().clone() for name, one in module.named_parameters()})
    return losses


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_stages_train_as_the_delayed_recurrence_says(name: str) -> None:
    piped, recurrent, undelayed = parts(), parts(), parts()
    losses, works = trained(piped, OPTIMIZERS[name], batches())
    assert losses == by_recurrence(recurrent, OPTIMIZERS[name], batches())
    assert bits(piped) == bits(recurrent)
    assert by_recurrence(undelayed, OPTIMIZERS[name], batches(), delay=0) != losses, "the delay makes a difference"
    assert bits(piped) != bits(undelayed)
    assert works == list(schedule(4, 9)), "the versions really used are those of the schedule"


def test_memory_holds_one_version_for_each_batch_under_way_and_the_newest() -> None:
    made = parts()
    pipeline = PipeDream(made, [SGD(one.parameters(), lr=0.1) for one in made])
    most = [0] * 4

    def look(_: StageWork) -> None:
        for place, stage in enumerate(pipeline.stages):
            most[place] = max(most[place], stage.versions)
            assert stage.in_flight <= 4 - place

    pipeline.on_work = look
    data = ((inputs, lambda output, targets=targets: cross_entropy(output, targets)) for inputs, targets in batches())
    assert len(list(pipeline.train(data, 9))) == 9
    assert most == [4, 3, 2, 1]


def test_a_pipeline_that_broke_off_trains_anew() -> None:
    made, fresh = parts(), parts()
    pipeline = PipeDream(made, [SGD(one.parameters(), lr=0.0) for one in made])

    def broken(output: Tensor) -> Tensor:
        raise ArithmeticError

    losses = [partial(cross_entropy, target=targets) for _, targets in batches()]
    with pytest.raises(ArithmeticError):
        list(pipeline.train(((inputs, broken) for inputs, _ in batches()), 9))
    assert any(stage.in_flight for stage in pipeline.stages)
    pipeline.on_work = (works := list[StageWork]()).append
    assert len(list(pipeline.train(zip([one for one, _ in batches()], losses, strict=True), 9))) == 9
    assert works == list(schedule(4, 9))
    assert not any(stage.in_flight for stage in pipeline.stages)
    assert all(map(torch.equal, made[3].parameters(), fresh[3].parameters()))


def test_a_stage_without_its_stash_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that a batch under way needs are written over in place, as the first PipeDream did."""
    clone = Tensor.clone
    monkeypatch.setattr(Tensor, "clone", lambda self, **how: self if how else clone(self))
    piped, recurrent = parts(), parts()
    trained(piped, OPTIMIZERS["sgd"], batches())
    monkeypatch.undo()
    by_recurrence(recurrent, OPTIMIZERS["sgd"], batches())
    assert bits(piped) != bits(recurrent)


def test_restoring_weights_in_place_between_forward_and_backward_raises() -> None:
    layer = nn.Linear(3, 3)
    stashed = {name: one.clone() for name, one in layer.state_dict().items()}
    output = layer(torch.ones(2, 3, requires_grad=True))
    layer.load_state_dict(stashed)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_wrong_warm_up_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = list(schedule(4, 9))
    monkeypatch.setattr(f"{schedule.__module__}.warm_ups", lambda replicas: (1,) * (len(replicas) - 1) + (0,))
    with pytest.raises(AssertionError):
        assert trained(parts(), OPTIMIZERS["sgd"], batches())[1] == right


def network(name: str) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return lenet.build(batch_norm=True) if name == "lenet" else resnet.build(width=4)


@pytest.mark.parametrize(("name", "image", "least"), [("lenet", 28, 12), ("resnet", 32, 12)])
def test_a_network_is_cut_into_stages_that_share_its_weights(name: str, image: int, least: int) -> None:
    whole, plain = network(name), network(name)
    inputs = torch.randn(4, 1 if name == "lenet" else 3, image, image, generator=torch.Generator().manual_seed(0))
    before = bits([whole])
    cut = chain(whole)
    measured = profile(cut, inputs)
    assert len(measured) == len(cut.layers) >= least
    assert sum(layer.weight_bytes for layer in measured) == sum(one.nbytes for one in whole.parameters())
    made = stages(whole, inputs, 3)
    assert bits([whole]) == before, "measuring leaves no trace, not even in BatchNorm"
    assert len(made) == 3
    value = inputs
    for stage in made:
        value = stage(value)
    assert torch.equal(value, plain(inputs))
    assert {id(one) for stage in made for one in stage.parameters()} == {id(one) for one in whole.parameters()}
    data = [(inputs, torch.arange(4))] * 3
    trained(made, OPTIMIZERS["sgd"], data)
    assert bits([whole]) != bits([plain]), "the network itself was trained"


def test_an_exported_graph_is_cut_like_the_network_itself() -> None:
    whole = network("lenet")
    inputs = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    graph = torch.export.export(network("lenet"), (inputs,), strict=False).module()
    assert len(chain(graph).layers) == len(chain(whole).layers)
    made = stages(graph, inputs, 4)
    value = inputs
    for stage in made:
        value = stage(value)
    assert torch.equal(value, whole(inputs))
    assert bits([graph]) == bits([whole]), "each batch counts once in BatchNorm"
    names = [{name for name, _ in stage.named_parameters()} for stage in made]
    assert set.union(*names) == {name for name, _ in whole.named_parameters()}
    assert sum(map(len, names)) == len(set.union(*names))


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(784, 8), nn.Linear(8, 10)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.head(self.layer(x.flatten(1)).relu())


@pytest.mark.parametrize("exported", [False, True])
def test_a_stage_and_its_copies_write_into_buffers(exported: bool) -> None:
    inputs = torch.randn(4, 1, 28, 28)
    made: list[nn.Module] = [_Counting(), network("lenet")]
    if exported:
        made = [torch.export.export(one, (inputs,), strict=False).module() for one in made]
    for whole in made:
        [counter] = [name for name, one in whole.named_buffers() if one.dtype is torch.int64][:1]
        cut = chain(whole)
        assert whole.get_buffer(counter) == 0
        first = cut.part(0, len(cut.layers))
        first(inputs)
        assert whole.get_buffer(counter) == 1
        again = pickle.loads(pickle.dumps(first))
        assert again.get_buffer(counter) == 1
        again(inputs)
        assert (again.get_buffer(counter), whole.get_buffer(counter)) == (2, 1)


class _Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


def test_what_cannot_be_a_pipeline_is_refused() -> None:
    with pytest.raises(BadInput, match="cannot be traced"):
        chain(_Branching())
    layer = nn.Linear(2, 2)
    with pytest.raises(BadInput, match="share weights"):
        PipeDream([layer, layer], [SGD(layer.parameters(), lr=0.1)] * 2)
