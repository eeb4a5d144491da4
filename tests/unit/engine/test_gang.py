"""Members of a gang train as they would alone, up to rounding, and what happens to one happens to no other."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.integration.kit import CPU, dataset, definition, submodel_spec
from tests.unit.engine.recorders import FakeRecorder
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import batched, fused
from unifiednn_core.engine.events import Stepped
from unifiednn_core.engine.gang import Gang, StackedSgd
from unifiednn_core.engine.process_state import ProcessState
from unifiednn_core.engine.randomness import Randomness
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.step_program import state_of
from unifiednn_core.engine.submodel import SubModel

EACH_EPOCH = {"name": "step", "args": {"step_size": 1}}
CLIPPED = {"gradient_clipping": {"norm": 0.1}, "warm_up": {"steps": 3}}
ASKED: dict[str, dict[str, Any]] = {
    "slow": {"learning_rate": 0.001, "seed": 1},
    "momentum": {"learning_rate": 0.02, "seed": 2, "optimizer_args": {"momentum": 0.9, "weight_decay": 0.01}},
    "adam": {"learning_rate": 0.003, "seed": 3, "optimizer": "adam", "lr_scheduler": EACH_EPOCH},
    "clipped": {"learning_rate": 0.004, "seed": 4, "optimizer": "rmsprop", **CLIPPED},
}
# The gradient of a bias before batch norm is rounding noise, which Adam scales up; only its mean follows it.
NOISE = ("0.bias", "1.running_mean")


def submodels(network: str = "cnn", asked: Any = None, data: Dataset | None = None) -> list[SubModel]:
    """A sub-model for each entry of `asked`, with initial weights of its own."""
    return [
        SubModel(
            submodel_spec(name, **hyperparameters),
            definition(network, seed=place),
            seed=place,
            train=ResidentData(CPU).hold("train", lambda: data or dataset()),
            test=None,
            device=CPU,
        )
        for place, (name, hyperparameters) in enumerate((asked or ASKED).items())
    ]


def gang_of(members: Sequence[SubModel], fused_s: float = 1.0) -> Gang:
    """A gang for which a fused step takes so many seconds, and two those of its members one by one."""
    clock_s = [0.0]

    def now_s() -> float:  # time passes between two readings: before and after a step
        fuses = len(gang._trial_s[True]) < len(gang._trial_s[False])
        clock_s.append(clock_s[-1] + (fused_s if fuses else 2.0))
        return clock_s[-2]

    gang = Gang.of(members, fast=True, now_s=now_s)
    assert isinstance(gang, Gang), gang
    return gang


def worlds(members: Sequence[SubModel]) -> ExitStack:
    stack = ExitStack()
    for member in members:
        stack.enter_context(member.world())
    return stack


def train(members: Sequence[SubModel], steps: int, gang: Gang | None = None) -> None:
    """Take steps, as a gang or one by one, and close epochs."""
    for _ in range(steps):
        done = {one.name: one.step() for one in members} if gang is None else gang.step()
        assert all(isinstance(one, Stepped) for one in done.values()), done
        for one in members:
            if one.at_epoch_end:
                one.end_epoch()


def assert_close(some: Sequence[SubModel], others: Sequence[SubModel], most: float) -> None:
    for one, other in zip(some, others, strict=True):
        assert one.steps_done == other.steps_done and one.epochs_done == other.epochs_done
        found, alone = (
            {name: tensor for name, tensor in each.module.state_dict().items() if most == 0.0 or name not in NOISE}
            for each in (one, other)
        )
        torch.testing.assert_close(found, alone, rtol=most, atol=most)
        figure, wanted = one.last, other.last
        if figure is not None and wanted is not None:
            assert figure.train_accuracy == wanted.train_accuracy and figure.learning_rate == wanted.learning_rate
            assert figure.train_loss == pytest.approx(wanted.train_loss, rel=most)


@pytest.mark.parametrize("network", ["cnn", "plain"])
def test_each_member_trains_as_alone_with_its_own_optimizer_order_and_statistics(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused: list[object] = []
    fuse = Gang._fuse
    monkeypatch.setattr(Gang, "_fuse", lambda *given: fused.append(fuse(*given)) or fused[-1])  # type: ignore[func-returns-value]
    together, alone = submodels(network), submodels(network)
    with worlds(together), worlds(alone):
        gang = gang_of(together)
        train(together, 9, gang)  # batches of 8 of 37 samples: each fifth one is smaller, and there are two epochs
        train(alone, 9)
    assert gang.dissolved is None and gang.names == tuple(ASKED)
    assert_close(together, alone, 1e-4)
    again = submodels(network)
    for one, other, fresh in zip(together, alone, again, strict=True):
        assert one.capture().recipe["profile"] == "fast" and "profile" not in other.capture().recipe
        fresh.restore(one.capture())
        assert fresh.capture().recipe["profile"] == "fast", "what was fast once stays fast"
    assert fused and None not in fused, "on some processors fused steps have the bits of each one alone"


def test_members_share_no_memory_between_steps() -> None:
    together = submodels()
    with worlds(together):
        gang = gang_of(together)
        train(together, 3, gang)
    seen: set[int] = set()
    for one in together:
        own = {tensor.untyped_storage().data_ptr() for tensor in one.module.state_dict().values()}
        assert not own & seen and all(parameter.grad is None for parameter in one.module.parameters())
        assert all(t.untyped_storage().nbytes() == t.nbytes for t in one.module.state_dict().values())
        seen |= own


def test_an_error_of_one_member_dissolves_the_gang_and_ends_this_member_alone() -> None:
    broken = dataset()
    broken.targets[:] = 99
    members = [*submodels(), *submodels(asked={"broken": {"seed": 9}}, data=broken)]
    with worlds(members):
        gang = gang_of(members[:4])
        gang._members.append(members[4])  # as if its data had become wrong only now
        gang._states["broken"] = state_of(members[4].module, members[4].criterion)
        done = gang.step()
    assert isinstance(done.pop("broken"), IndexError)
    assert all(isinstance(one, Stepped) for one in done.values())
    assert gang.dissolved is not None and "A fused step failed" in gang.dissolved


def test_a_wrong_batched_form_dissolves_the_gang_at_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    together, alone = submodels(), submodels()

    def shifted(op: Any, x: batched.Stacked, *rest: Any) -> batched.Stacked:
        return x.like(op(x.tensor + 1e-3, *rest), wide=x.wide)

    monkeypatch.setattr(batched, "BATCHED", {**batched.BATCHED, "relu": shifted})
    with worlds(together), worlds(alone):
        gang = gang_of(together)
        train(together, 6, gang)
        train(alone, 6)
    assert gang.dissolved is not None and "Fused gradients differ" in gang.dissolved
    assert_close(together, alone, 0.0)


def test_rounding_alone_does_not_dissolve_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused.Fused, "error", lambda self, states: 0.01)
    together, alone = submodels(), submodels()
    with worlds(together), worlds(alone):
        gang = gang_of(together)
        train(together, 2, gang)
        train(alone, 2)
    assert gang.dissolved is None
    assert_close(together, alone, 1e-5)


@pytest.mark.parametrize(
    ("network", "change", "said"),
    [
        ("cnn", {"batch_size": 9}, "differ in batch size, criterion or training data"),
        ("cnn", {"criterion_args": {"label_smoothing": 0.1}}, "differ in batch size, criterion or training data"),
        ("cnn", {"batch_split": 2}, "several passes"),
        ("cnn", {"accumulation_steps": 2}, "several passes"),
        ("mlp", {}, "draws random numbers"),
    ],
)
def test_sub_models_that_cannot_step_as_one_are_told_why(network: str, change: dict[str, Any], said: str) -> None:
    members = submodels(network, {"one": {}, "other": change})
    with worlds(members):
        assert said in str(Gang.of(members, fast=True))
        assert "at least two members" in str(Gang.of(members[:1], fast=True))


def recorder_of(members: Sequence[SubModel], gain: float = 3.0) -> FakeRecorder:
    """A recorder for the steps of a gang."""
    whole: Any = SimpleNamespace(
        module=nn.ModuleList(one.module for one in members), _randomness=Randomness(nn.Identity(), 0, CPU)
    )
    return FakeRecorder(whole, gain)


def train_recorded(members: Sequence[SubModel], steps: int, gang: Gang, recorder: FakeRecorder) -> None:
    for _ in range(steps):
        if gang.prepare_recording(recorder):
            gang.record_step(recorder)
        train(members, 1, gang)


def test_an_exact_gang_gives_each_member_the_bits_of_its_own_steps() -> None:
    together, alone = submodels(), submodels()
    recorder = recorder_of(together)
    with worlds(together), worlds(alone):
        gang = Gang.of(together, fast=False)
        assert isinstance(gang, Gang)
        train_recorded(together, 9, gang, recorder)
        train(alone, 9)
        assert_close(together, alone, 0.0)
        assert recorder.recorded == 1 and recorder.replays > 4 and gang.gain == 3.0 and gang.dissolved is None
        gang.drop("adam")
        assert recorder.freed == 1
        left, others = ([one for one in some if one.name != "adam"] for some in (together, alone))
        fewer = recorder_of(left)
        train_recorded(left, 7, gang, fewer)
        train(others, 7)
    assert fewer.recorded == 1 and fewer.replays > 0
    assert_close(left, others, 0.0)
    assert "profile" not in left[0].capture().recipe


@pytest.mark.parametrize("rude_from", [0, 3])
def test_settings_that_one_member_changes_reach_no_other(rude_from: int) -> None:
    together, alone = submodels(), submodels()
    seen: set[str] = set()

    def change(module: nn.Module, given: object) -> None:
        if together[0].steps_done >= rude_from:
            torch.set_float32_matmul_precision("medium")

    together[0].module.register_forward_pre_hook(change)
    together[1].module.register_forward_pre_hook(lambda *_: seen.add(torch.get_float32_matmul_precision()))
    said = "slow changes settings of the process, which its neighbours would compute with: precision of float32."
    with worlds(together), worlds(alone), ProcessState(CPU):
        gang = Gang.of(together, fast=False)
        if rude_from:
            assert isinstance(gang, Gang)
            train(together, 6, gang)
            train(alone, 6)
            assert gang.dissolved == said and seen == {"highest"}
            assert_close(together[1:], alone[1:], 0.0)
        else:
            assert gang == said and torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("gain", [3.0, 1.05])
def test_an_exact_gang_that_computes_otherwise_or_is_not_faster_is_dissolved(gain: float) -> None:
    together, alone = submodels(), submodels()
    recorder = recorder_of(together, gain)
    if gain > 1.1:
        recorder.spoil = lambda gradients: gradients[-1].add_(1e-7)
    with worlds(together), worlds(alone):
        gang = Gang.of(together, fast=False)
        assert isinstance(gang, Gang)
        train_recorded(together, 6, gang, recorder)
        train(alone, 6)
    said = "its replayed steps give other bits" if gain > 1.1 else "only 1.05 times as fast"
    assert gang.dissolved is not None and said in gang.dissolved
    assert_close(together, alone, 0.0)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"momentum": 0.8, "dampening": 0.1},
    ],
    ids=str,
)
def test_the_updates_of_sgd_with_several_learning_rates_are_a_few_launches(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = {"name": "step", "args": {"step_size": 1, "gamma": 0.5}}
    more = {"optimizer_args": asked, "warm_up": {"steps": 7}, "lr_scheduler": schedule, "epochs": 5}
    names = {f"n{place}": {"learning_rate": 0.01 * (place + 1), "seed": place, **more} for place in range(3)}
    together, alone = submodels("plain", names), submodels("plain", names)
    launched, launch = [], StackedSgd._launch
    monkeypatch.setattr(StackedSgd, "_launch", lambda self, *given: launched.append(1) or launch(self, *given))
    with worlds(together), worlds(alone):
        gang = gang_of(together)
        train(together, 20, gang)
        train(alone, 20)
    assert len(launched) > 5 and gang.dissolved is None
    assert_close(together, alone, 1e-5)
    for one, other in zip(together, alone, strict=True):
        mine, its = one.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"]
        assert (
            mine.keys() == its.keys() and one.optimizer.param_groups[0]["lr"] == other.optimizer.param_groups[0]["lr"]
        )


@pytest.mark.parametrize("change", [{"optimizer": "adam"}, {"gradient_clipping": {"norm": 1}}, {"momentum": 0.5}])
def test_members_whose_updates_differ_in_more_keep_their_own_optimizers(change: dict[str, Any]) -> None:
    change = {"optimizer_args": change} if "momentum" in change else change
    members = submodels("plain", {"one": {}, "other": change})
    with worlds(members):
        train(members, 1)
        assert StackedSgd(members, exact=True)() is False


def test_a_stacked_update_with_other_bits_is_not_used_where_bits_count(monkeypatch: pytest.MonkeyPatch) -> None:
    members, alone = submodels("plain", {"one": {}, "other": {}}), submodels("plain", {"one": {}, "other": {}})
    launch = StackedSgd._launch

    def off(self: Any, parameters: Any, *given: Any) -> None:
        launch(self, parameters, *given)
        parameters[0].add_(1e-7)

    monkeypatch.setattr(StackedSgd, "_launch", off)
    with worlds(members), worlds(alone):
        update = StackedSgd(members, exact=True)
        for one in members:
            one.learner(one.next_batches())
        assert update() is True, "their own optimizers have made it"
        assert update() is False
        for one in alone:
            one.step()
        for one, other in zip(members, alone, strict=True):
            torch.testing.assert_close(one.module.state_dict(), other.module.state_dict(), rtol=0, atol=0)
