"""Recorded steps without a GPU: when they are made, checked, replayed, freed and refused."""

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.integration import kit
from tests.integration.kit import CPU
from tests.integration.networks import ZOO, hyperparameters
from tests.unit.engine.recorders import FakeRecorder
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import graphs
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Report, StepsRecorded
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.learning import EagerLearner
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.step import Step
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.registry import policy_named

PARTS = {"accumulation_steps": 2, "batch_split": 2, "gradient_clipping": {"norm": 0.5}, "optimizer": "adam"}
WARM_UP: dict[str, Any] = {"warm_up": {"steps": 3}, "optimizer_args": {"momentum": 0.9}}


def submodels(*networks: str, data: ResidentData | None = None, **hyperparameters: Any) -> list[SubModel]:
    data = data or ResidentData(CPU)
    return [kit.submodel(name, kit.submodel_spec(name, **hyperparameters), data) for name in networks]


def train(trained: list[SubModel], recorder: FakeRecorder | None) -> tuple[dict[str, str | None], list[Report]]:
    """Train in turns of one step; hashes and reports."""
    reports: list[Report] = []
    policy = policy_named("round_robin", {"unit": "steps", "amount": 1})
    engine = Engine(HybridModel(trained), policy, device=CPU, report=reports.append)
    engine._stepper.recorder_of_lane = lambda: recorder  # type: ignore[assignment]
    engine.run()
    ended = [report for report in reports if isinstance(report, Ended)]
    return {end.submodel: state_sha256(end.state_dict or {}) for end in ended}, reports


def told(reports: list[Report]) -> list[StepsRecorded]:
    return [report for report in reports if isinstance(report, StepsRecorded)]


def recorder_of(one: SubModel, gain: float = 3.0) -> FakeRecorder:
    return FakeRecorder(one, gain)


def steps(one: SubModel, recorder: FakeRecorder, count: int) -> None:
    """Steps of one turn, as the engine takes them."""
    with one.world():
        for _ in range(count):
            if one.prepare_recording(recorder):
                one.record_step(recorder)
            one.step()
            if one.at_epoch_end:
                one.end_epoch()


def digest(one: SubModel) -> str:
    return state_sha256(one.module.state_dict())


@pytest.mark.parametrize("hyper", [{}, PARTS, WARM_UP])
@pytest.mark.parametrize("network", ZOO)
def test_replayed_steps_train_to_the_same_bits(network: str, hyper: dict[str, Any]) -> None:
    [one] = submodels(network, epochs=3, **hyper)
    recorder = recorder_of(one)
    found, reports = train([one], recorder)
    assert found == train(submodels(network, epochs=3, **hyper), None)[0]
    if network in ("transformer", "lstm"):  # on a CPU not all of their draws take a generator of their own
        assert [report.refused for report in told(reports)] == ["its steps draw random numbers on the host"]
        return
    assert [(report.gain, report.refused) for report in told(reports)] == [(pytest.approx(3.0), None)]
    full = 3 * (2 if "accumulation_steps" in hyper else 4)
    checked = 2 * graphs.CHECKED_STEPS
    assert recorder.replays == full - graphs.EAGER_STEPS + checked
    assert recorder.freed == recorder.recorded == 1


@settings(max_examples=12)
@given(st.sampled_from(["mlp", "cnn", "resnet"]), hyperparameters(37))
def test_any_training_with_replays_has_the_bits_of_one_without(network: str, hyper: dict[str, Any]) -> None:
    [one] = submodels(network, **hyper)
    assert train([one], recorder_of(one))[0] == train(submodels(network, **hyper), None)[0]


def wrong(recorder: FakeRecorder) -> None:
    recorder.spoil = lambda gradients: gradients[0].view(-1)[0].mul_(1 + 1e-6)


def stale(recorder: FakeRecorder) -> None:
    recorder.stale = True


def failing(recorder: FakeRecorder) -> None:
    recorder.error = RuntimeError("operation not permitted when stream is capturing\nmore")


def long(recorder: FakeRecorder) -> None:
    recorder.step_s = 1.5


def large(recorder: FakeRecorder) -> None:
    recorder.share = 0.3


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (wrong, "its replayed steps give other bits"),
        (stale, "its replayed steps give other bits"),
        (failing, "a step cannot be recorded: RuntimeError: operation not permitted when stream is capturing"),
        (lambda recorder: setattr(recorder, "refuses", "no more"), "no more"),
        (long, "one takes 1.5 s, and launching it is a small part of that"),
        (large, "one takes 30% of the device's memory for a while, which a recording would keep"),
    ],
)
def test_a_recording_that_is_not_sound_is_never_used(spoil: Any, reason: str) -> None:
    [one] = submodels("cnn")
    recorder = recorder_of(one)
    spoil(recorder)
    found, reports = train([one], recorder)
    assert found == train(submodels("cnn"), None)[0]
    assert [report.refused for report in told(reports)] == [reason]
    assert recorder.freed == recorder.recorded
    assert recorder.recorded == 0 or spoil not in (long, large), "these are not even checked"


@pytest.mark.parametrize("off", [1e-7, 1e-3])
@pytest.mark.parametrize("warned", [False, True])
def test_a_loss_may_round_otherwise_only_where_torch_says_so(off: float, warned: bool) -> None:
    [one] = submodels("cnn")
    recorder, forward = recorder_of(one), one.criterion.forward

    def criterion(*given: Any) -> Any:
        if warned:
            warnings.warn("nll_loss2d_forward does not have a deterministic implementation", stacklevel=1)
        loss = forward(*given)
        shift = 0.0 if recorder.is_aside else off  # of a replay
        return loss + (loss * shift).detach()

    one.criterion.forward = criterion
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, reports = train([one], recorder)
    fits = warned and off < graphs.LOSS_TOLERANCE
    assert [report.refused for report in told(reports)] == [None if fits else "its replayed steps give another loss"]


def test_steps_that_are_hardly_faster_stay_eager() -> None:
    [one] = submodels("cnn")
    recorder = recorder_of(one, gain=1.05)
    assert [report.refused for report in told(train([one], recorder)[1])] == [
        "a replayed step is only 1.05 times as fast"
    ]


def test_the_check_changes_nothing_that_a_step_reads() -> None:
    for network in ("mlp", "resnet", "transformer"):
        [one] = submodels(network, epochs=9)
        before, after = recorded_between(one)
        for part in ("model", "buffers", "rng", "data"):
            assert state_sha256(flat(before.state[part])) == state_sha256(flat(after.state[part])), (network, part)


def recorded_between(one: SubModel) -> tuple[Checkpoint, Checkpoint]:
    recorder = recorder_of(one)
    with one.world():
        for _ in range(graphs.EAGER_STEPS):
            assert not one.prepare_recording(recorder)
            one.step()
        assert one.prepare_recording(recorder)
        before, drawn = one.capture(), torch.get_rng_state()
        one.record_step(recorder)
        after = one.capture()
        assert torch.equal(torch.get_rng_state(), drawn)
        assert all(parameter.grad is None for parameter in one.module.parameters())
        assert not one.prepare_recording(recorder)
    return before, after


def flat(part: dict[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in part.items() if isinstance(value, Tensor)}


def test_a_parked_one_frees_its_recording_and_makes_another_without_a_check() -> None:
    [one], [other] = submodels("cnn", epochs=9), submodels("cnn", epochs=9)
    recorder, eager = recorder_of(one), recorder_of(other)
    steps(one, recorder, 7)
    idle = one.footprint
    assert idle.gradients_bytes > 0
    one.park()
    assert (recorder.recorded, recorder.freed) == (1, 1)
    assert one.footprint.gradients_bytes == 0
    replays = recorder.replays
    steps(one, recorder, 4)
    assert recorder.recorded == 2
    assert 0 < recorder.replays - replays <= 4
    eager.refuses = "eager"
    steps(other, eager, 11)
    assert digest(one) == digest(other)


def test_each_lane_has_its_own_recording() -> None:
    [one], [other] = submodels("cnn", epochs=9), submodels("cnn", epochs=9)
    first, second = recorder_of(one), recorder_of(one)
    for lane in (first, second, first, second):
        steps(one, lane, 3)
    assert (first.recorded, second.recorded) == (2, 2)
    assert (first.freed, second.freed) == (2, 1)
    refusing = recorder_of(other)
    refusing.refuses = "eager"
    steps(other, refusing, 12)
    assert digest(one) == digest(other)


def test_several_lanes_replay_and_record_while_the_others_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = [
        (network, kit.submodel_spec(name, epochs=3, seed=place))
        for place, (name, network) in enumerate([("a", "cnn"), ("b", "mlp"), ("c", "resnet")])
    ]
    policy = policy_named("round_robin", {"unit": "steps", "amount": 3})
    found = kit.Session(networks, policy, lanes=2, **kit.ROOM)
    recorders: list[FakeRecorder] = []
    record_step = SubModel.record_step

    def recorder_of_lane() -> FakeRecorder:
        recorders.append(FakeRecorder(None))
        return recorders[-1]

    def seen(self: SubModel, recorder: Any) -> StepsRecorded | None:
        recorder.submodel = self
        assert found.engine._lanes._busy == 0
        return record_step(self, recorder)

    monkeypatch.setattr(SubModel, "record_step", seen)
    found.engine._stepper.recorder_of_lane = recorder_of_lane  # type: ignore[assignment]
    found.run()
    assert found.hashes() == kit.Session(networks, policy).run().hashes()
    assert {report.submodel: report.refused for report in told(found.reports)} == dict.fromkeys("abc")
    assert len(recorders) == 2
    assert sum(one.freed for one in recorders) == sum(one.recorded for one in recorders) >= 3


@pytest.mark.parametrize("restored", [True, False])
def test_what_a_check_changes_in_the_process_is_put_back_before_others_go_on(
    restored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    [one] = submodels("cnn")
    one.module.register_forward_pre_hook(lambda *_: torch.set_float32_matmul_precision("medium"))
    precisions: list[str] = []

    def take(report: Report) -> None:
        if isinstance(report, StepsRecorded):
            precisions.append(torch.get_float32_matmul_precision())

    engine = Engine(HybridModel([one]), policy_named("fcfs", {}), device=CPU, report=take)
    engine._stepper.recorder_of_lane = lambda: recorder_of(one)  # type: ignore[assignment]
    if not restored:  # the control
        monkeypatch.setattr(engine._stepper, "restore_process", lambda job, *, seldom: None)
    engine.run()
    assert precisions == ["highest" if restored else "medium"]


def test_one_that_changes_lanes_all_the_time_stops_recording() -> None:
    [one] = submodels("plain", epochs=99)
    lanes = [recorder_of(one), recorder_of(one)]
    for turn in range(40):
        steps(one, lanes[turn % 2], 1)
    assert sum(lane.recorded for lane in lanes) == graphs.MOST_RECORDINGS
    assert sum(lane.freed for lane in lanes) == graphs.MOST_RECORDINGS - 1


def test_a_restored_state_is_trained_on_by_the_same_recording() -> None:
    [one] = submodels("cnn", epochs=9)
    recorder = recorder_of(one)
    steps(one, recorder, 3)
    kept = one.capture()
    steps(one, recorder, 4)
    expected = digest(one)
    one.restore(kept)
    steps(one, recorder, 4)
    assert (digest(one), recorder.recorded) == (expected, 1)


def test_data_that_moved_are_recorded_anew() -> None:
    data = ResidentData(CPU)
    [one] = submodels("cnn", data=data, epochs=9)
    recorder = recorder_of(one)
    steps(one, recorder, 4)
    held = data.sets["train"]
    data.sets["train"] = Dataset.of(held.first.clone(), held.targets)
    steps(one, recorder, 3)
    assert (recorder.recorded, recorder.freed) == (2, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
def test_a_digest_sees_each_bit(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_PART", 16)  # the tensor has several parts, the last one smaller
    tensor = (torch.arange(50) % 2).to(dtype)
    seen = {tuple(graphs.digest([tensor]))}
    for place in range(len(tensor)):
        for bit in (0, 1 if dtype is torch.bool else 7):
            flipped = tensor.clone()
            flipped.view(torch.uint8)[place * tensor.element_size()] ^= 1 << bit if dtype is not torch.bool else 1
            seen.add(tuple(graphs.digest([flipped])))
    assert len(seen) == 1 + len(tensor) * (1 if dtype is torch.bool else 2)
    assert graphs.digest([tensor.view(5, 10).t()]) != graphs.digest([tensor])
    assert graphs.digest([tensor.clone(), torch.tensor(0.0), torch.tensor(-0.0)])[1:] != [0, 0]


# -- the part of the host in a step


class Counting(nn.Module):
    """Batch norm that reads a number of the device at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm2d(1, momentum=None), nn.Linear(36, 4)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(images).flatten(1))
        return scores


class Masked(Counting):
    """Keeps the rows that a mask names."""

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(1)
        scores: Tensor = self.head(rows[rows.sum(1) < 1e9])
        return scores


class Picking(Counting):
    """Takes rows by their numbers, which needs no host."""

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(1)
        scores: Tensor = self.head(rows[torch.arange(len(rows))])
        return scores


def learner(module: nn.Module) -> EagerLearner:
    """One that has taken its first step, in which the labels are looked through."""
    held = ResidentData(CPU).hold("d", kit.dataset)
    hyper, randomness = kit.submodel_spec("one").hyperparameters, Randomness(module, 0, CPU)
    criterion, parameters = nn.CrossEntropyLoss(), list(module.parameters())
    eager = EagerLearner(Step(), hyper, module, criterion, parameters, held, randomness)
    eager([torch.arange(8)])
    return eager


@pytest.mark.parametrize(("module", "operator"), [(Counting, "aten._local_scalar_dense"), (Masked, "aten.index")])
def test_a_step_that_waits_for_values_is_not_recorded(module: type[nn.Module], operator: str) -> None:
    with pytest.raises(graphs.Unfit, match="the host has a part in its steps") as raised:
        graphs._draws_on_device(learner(module()), [torch.arange(8)])
    assert operator in str(raised.value)


def test_indices_need_no_host() -> None:
    assert graphs._draws_on_device(learner(Picking()), [torch.arange(8)]) is False


def test_random_numbers_of_the_host_cannot_be_replayed() -> None:
    with torch.random.fork_rng(devices=[]), pytest.raises(graphs.Unfit, match="draw random numbers on the host"):
        graphs._draws_on_device(learner(ZOO["mlp"]()), [torch.arange(8)])
    assert graphs._draws_on_device(learner(ZOO["cnn"]()), [torch.arange(8)]) is False


# -- the recorder of CUDA, with stand-ins for what only a GPU machine has


class Generator:
    """Two words of state that generators can share, as those of CUDA do."""

    def __init__(self, *_: object) -> None:
        self.held = [torch.zeros(2)]

    def get_state(self) -> Tensor:
        return self.held[0].clone()

    def set_state(self, state: Tensor) -> None:
        self.held[0] = state.clone()

    def graphsafe_get_state(self) -> "Generator":
        copy = Generator()
        copy.held = self.held
        return copy

    def graphsafe_set_state(self, other: "Generator") -> None:
        self.held = other.held


class Graph:
    """Spoils the state of the generator unless its capture ends well, and draws once at each replay."""

    default: Generator
    pools: list[object]

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        self.pools.append(pool)
        self.state = self.default.held
        self.state[0] = self.state[0] + 100

    def capture_end(self) -> None:
        self.state[0] = self.state[0] - 100

    def replay(self) -> None:
        self.state[0] = self.state[0] + 1

    def reset(self) -> None:
        pass


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[graphs.CudaRecorder]:
    Graph.default, Graph.pools = Generator(), []
    handles = iter(range(1, 100))
    monkeypatch.setattr(graphs, "_FAILED", [])
    monkeypatch.setattr(torch, "Generator", Generator)
    for name, value in {
        "CUDAGraph": Graph,
        "default_generators": (Graph.default,),
        "graph_pool_handle": lambda: next(handles),
        "synchronize": lambda device: None,
        "empty_cache": lambda: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    yield graphs.CudaRecorder(torch.device("cuda", 0))


def test_a_recording_draws_what_the_default_generator_would(cuda: graphs.CudaRecorder) -> None:
    drawing, other = cuda.record(lambda: None, draws=True), cuda.record(lambda: None, draws=False)
    Graph.default.set_state(torch.full((2,), 7.0))
    drawing.replay()
    other.replay()
    drawing.replay()
    assert Graph.default.get_state().tolist() == [9.0, 9.0]


def test_a_recording_that_fails_leaves_the_generator_usable_and_is_the_last(cuda: graphs.CudaRecorder) -> None:
    shared = Graph.default.held

    def fail() -> None:
        raise RuntimeError("not permitted\nmore")

    assert cuda.refuses is None
    with pytest.raises(RuntimeError):
        cuda.record(fail, draws=True)
    assert Graph.default.held is shared
    assert Graph.default.get_state().tolist() == [0.0, 0.0]
    assert cuda.refuses == "an earlier recording in this process failed: not permitted"
    assert graphs.CudaRecorder(torch.device("cuda", 0)).refuses == cuda.refuses


def test_recordings_share_a_pool_until_the_last_of_them_is_freed(cuda: graphs.CudaRecorder) -> None:
    first, second = cuda.record(lambda: None, draws=False), cuda.record(lambda: None, draws=False)
    first.free()
    third = cuda.record(lambda: None, draws=False)
    second.free()
    third.free()
    cuda.record(lambda: None, draws=False)
    assert Graph.pools == [1, 1, 1, 2]


def test_torch_still_has_what_recordings_use() -> None:
    taken = inspect.signature(torch.cuda.CUDAGraph.capture_begin).parameters
    assert {"pool", "capture_error_mode"} <= taken.keys()
    assert {"capture_end", "replay", "reset"} <= set(dir(torch.cuda.CUDAGraph))
    assert {"get_state", "set_state", "graphsafe_get_state", "graphsafe_set_state"} <= set(dir(torch.Generator))


def test_only_cuda_records() -> None:
    assert graphs.recorder_for(CPU) is None
    assert isinstance(graphs.recorder_for(torch.device("cuda", 0)), graphs.CudaRecorder)
