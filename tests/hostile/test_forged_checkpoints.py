"""Checkpoints that no run has written, with right hashes: refused, or nothing but numbers of them is taken."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.hostile.forging import Forgery, forged, forgeries, nodes
from tests.unit.engine.checkpoint_kit import bits
from tests.unit.engine.start_kit import SAMPLES, changed, definition_of, submodel
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadCheckpoint, BadInput, Diverged
from unifiednn_core.engine import checkpoint_check, checkpoint_file, optimizers, start
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.start import check_start
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.spec.run import SubModelSpec

# The attacks that worked


WIDE = {"optimizer": "sgd", "optimizer_args": {"momentum": 1.0}, "epochs": 9, "batch_size": 8}


def wide() -> SubModel:
    """One matrix of 16,384 weights; a momentum of 1 that meets no gradient stays what it was, to the bit."""
    torch.manual_seed(3)
    return submodel(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 256, bias=False)), WIDE)


def after_a_step(part: SubModel) -> Checkpoint:
    with part.world():
        part.step()
    return part.capture()


def short_momentum(whole: Checkpoint) -> Checkpoint:
    [group] = whole.state["optimizer"]["param_groups"]
    state = {0: {"momentum_buffer": torch.zeros(1, 1)}}
    return changed(whole, "optimizer", state=state, param_groups=[{**group, "fused": True}])


def believe_everything(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """What the engine did before."""
    for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
        group.update({key: value for key, value in saved.items() if key != "params"})
    for index, entries in state["state"].items():
        optimizer.state[optimizer.param_groups[0]["params"][index]] = dict(entries)


def in_a_child(work: Callable[[], int]) -> int | None:
    """The number that a fork of this process finds; None if it dies."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writer, str(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    os.waitpid(pid, 0)
    return int(found) if found else None


def test_a_short_momentum_for_the_fused_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = after_a_step(wide())
    hostile, part = short_momentum(honest), wide()
    with pytest.raises(BadCheckpoint, match=r"True as optimizer.param_groups.0.fused; None belongs there"):
        part.restore(hostile)
    state = hostile.state["optimizer"]["state"]
    with pytest.raises(BadCheckpoint, match=r"float32 \[1, 1\] as optimizer.state.0.momentum_buffer; float32"):
        part.restore(changed(honest, "optimizer", state=state))

    def foreign() -> int:
        part.restore(hostile)
        weight = part.module.get_parameter("1.weight")
        before = weight.detach().clone()
        weight.grad = torch.zeros_like(weight)
        part.optimizer.step()
        return int((weight != before).sum())

    monkeypatch.setattr(checkpoint_check, "check", lambda *_: None)
    assert in_a_child(foreign) in (0, None)  # no flag of the file is taken; other kernels compare sizes
    monkeypatch.setattr(optimizers, "restore_state", believe_everything)
    assert in_a_child(foreign) != 0  # control: the memory of others, or the end of the process


def far_state(seed: int = 5) -> torch.Tensor:
    """An RNG state whose next output lies behind its last word."""
    state = torch.Generator().manual_seed(seed).get_state()
    state[8:12], state[16:24] = (torch.tensor([n]).view(torch.uint8)[:size] for n, size in ((624, 4), (624, 8)))
    return state


@pytest.mark.parametrize(("part", "entry"), [("rng", "cpu"), ("data", "generator")])
def test_a_generator_that_reads_behind_its_state_is_refused(part: str, entry: str) -> None:
    generator = torch.Generator()
    generator.set_state(far_state())  # control: torch takes it,
    torch.randint(2, (1,), generator=generator)
    assert int(generator.get_state()[16:24].view(torch.int64)) > 624  # and reads outside its 624 words
    with pytest.raises(BadCheckpoint, match=f"RNG state {part}.{entry} in which no generator can be"):
        wide().restore(changed(after_a_step(wide()), part, **{entry: far_state()}))


def test_an_lr_scheduler_takes_no_attribute_of_a_file() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    hostile = lr_scheduler.state_dict() | {"optimizer": None, "step": None, "gamma": -1.0, "last_epoch": 7}
    optimizers.restore_lr_scheduler(lr_scheduler, hostile)
    assert lr_scheduler.optimizer is optimizer and callable(lr_scheduler.step)
    assert (lr_scheduler.gamma, lr_scheduler.last_epoch) == (0.1, 7)
    lr_scheduler.load_state_dict(hostile)  # control: torch takes them all
    assert lr_scheduler.optimizer is None and lr_scheduler.step is None


def test_weights_that_share_memory_are_copied_and_such_as_do_not_fit_are_refused() -> None:
    """However a file lays them out."""
    own, memory = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), torch.arange(12.0)
    fitting = {name: tensor.clone() for name, tensor in own.state_dict().items()}
    crossing = {"0.weight": memory[:9].view(3, 3).T, "0.bias": memory[8:11], "1.weight": memory[:1].expand(3)}
    start.load_weights(own, fitting | crossing)
    tensors = list(own.state_dict().values())
    assert len({tensor.untyped_storage().data_ptr() for tensor in (*tensors, memory)}) == len(tensors) + 1
    assert all(tensor.is_contiguous() for tensor in tensors)
    before = bits({**own.state_dict()})
    for wrong in (memory[:1], memory[:3].double(), memory[:3].view(3, 1), memory[:3].int(), None, "w"):
        with pytest.raises(BadCheckpoint, match=r"'0\.bias' is"):
            start.load_weights(own, fitting | {"0.bias": wrong})
    assert bits({**own.state_dict()}) == before


# All that can be changed

MULTI_STEP = {"name": "multi_step", "args": {"milestones": [1, 9]}}
ONE_CYCLE = {"name": "one_cycle", "per": "step", "args": {"max_lr": 0.1, "total_steps": 40}}
WARM_RESTARTS = {"name": "cosine_warm_restarts", "args": {"T_0": 1}}
SEQUENCE = {
    "name": "sequence",
    "of": [{"name": "linear"}, {"name": "exponential", "args": {"gamma": 0.5}}],
    "milestones": [2],
}
STOPPING = {"early_stopping": {"metric": "train_loss", "patience": 9}}
GROUPS = {"parameter_groups": [{"names": "*.bias", "learning_rate": 0.5}]}
BASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "adam": ("residual", {"optimizer": "adam", "lr_scheduler": MULTI_STEP}, 9),
    "cycled": ("cnn", {"optimizer": "sgd", "lr_scheduler": ONE_CYCLE, "optimizer_args": {"momentum": 0.9}}, 2),
    "plateau": ("cnn", {"optimizer": "adafactor", "lr_scheduler": {"name": "reduce_on_plateau"}, **STOPPING}, 8),
    "groups": ("cnn", {"optimizer": "adam", "ema": {"decay": 0.5}, "lr_scheduler": SEQUENCE, **GROUPS}, 9),
    "restarts": ("cnn", {"optimizer": "nadam", "lr_scheduler": WARM_RESTARTS}, 4),
}
"""Network, hyper-parameters, and steps before the checkpoint."""


def begun(base: str) -> SubModel:
    network, hyper, _ = BASES[base]
    return submodel(partial(kit.network, network, 5), {"epochs": 9, "batch_size": 8} | hyper)


@cache
def honest(base: str) -> Checkpoint:
    part = begun(base)
    with part.world():
        for _ in range(BASES[base][2]):
            part.step()
            if part.at_epoch_end:
                part.end_epoch()
    return part.capture()


@cache
def all_forgeries(base: str) -> list[Forgery]:
    return forgeries(honest(base))


def outcome(base: str, forgery: Forgery, path: Path) -> str:
    """What becomes of a forged file at intake and in the engine."""
    try:
        checkpoint_file.write(forged(honest(base), forgery), path)
    except Exception:  # no file can hold that
        return "no file"
    part = begun(base)
    hyper = part.spec.hyperparameters.model_dump(mode="json")
    start = {"file": path.name, "take": "everything"}
    spec = SubModelSpec(name="x", model="m", train_data="d", hyperparameters=hyper, start_from=start)
    build = partial(kit.network, BASES[base][0], 5)
    try:
        _, definition = check_start(spec, definition_of(build), SAMPLES, path, "cpu")
        definition.build()
        passed = True
    except BadInput as refused:
        assert all(finding.message and finding.remedy for finding in refused.findings)
        passed = False
    try:
        read = checkpoint_file.read(path)
        part.restore(read)
    except BadCheckpoint:
        assert not passed, "intake let it through"
        return "refused"
    if forgery.path[:2] != ("recipe", "learning_rate"):  # it scales all rates
        require_nothing_else(forgery, part.capture(), honest(base), read)
    with part.world(), suppress(Diverged):  # the worst that numbers can do
        part.step()
    return "taken" if passed else "refused at intake"


def require_nothing_else(forgery: Forgery, now: Checkpoint, before: Checkpoint, read: Checkpoint) -> None:
    """Every value is that of the honest checkpoint, or in the changed place that of the file."""
    place = (*forgery.path, *forgery.gone)[1:] if forgery.path[0] == "state" else None
    own, old, new = (dict(nodes(one.state)) for one in (now, before, read))
    for path in own.keys() | old.keys():
        ours, theirs, its = (tree.get(path, ...) for tree in (own, old, new))
        if isinstance(ours, dict | list | tuple):
            continue
        inside = place is not None and path[: len(place)] == place
        assert bits(ours) == bits(theirs) or (inside and bits(ours) == bits(its)), (forgery, path)


@given(data=st.data())
@settings(max_examples=80)
def test_one_change_anywhere(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = data.draw(st.sampled_from(sorted(BASES)))
    forgery = data.draw(st.sampled_from(all_forgeries(base)))
    outcome(base, forgery, tmp_path_factory.getbasetemp() / "forged.safetensors")


def test_the_changes_would_be_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control: without the check most of them end in an error, or change more than their place."""
    sample = [forgery for forgery in all_forgeries("plateau") if forgery.path[0] == "state"][::97]

    def noticed() -> int:
        found = 0
        for forgery in sample:
            try:
                outcome("plateau", forgery, tmp_path / "forged.safetensors")
            except Exception:
                found += 1
        return found

    assert noticed() == 0
    monkeypatch.setattr(start, "check", lambda *_: None)
    monkeypatch.setattr(checkpoint_check, "check", lambda *_: None)
    assert (in_a_child(noticed) or len(sample)) > len(sample) / 3


@pytest.mark.long
@pytest.mark.parametrize("base", BASES)
def test_every_change_everywhere(base: str, tmp_path: Path) -> None:
    found = Counter(outcome(base, forgery, tmp_path / "forged.safetensors") for forgery in all_forgeries(base))
    assert found["refused"] > found["taken"] > 0
