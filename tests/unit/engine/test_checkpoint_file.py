"""A checkpoint file gives back every bit that went in, or says what is wrong with it."""

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from tests.unit.engine.checkpoint_kit import RECIPE, bits, checkpoint
from unifiednn_core.base import failpoints
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.engine import checkpoint_file as file
from unifiednn_core.engine.checkpoint import FORMAT_VERSION, Checkpoint
from unifiednn_core.spec.choices import LR_SCHEDULERS, OPTIMIZERS

ON_DISK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.uint16,
    torch.bool,
    torch.complex64,
]


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.arm(None)


def round_trip(value: Checkpoint, folder: Path) -> Checkpoint:
    path = folder / "checkpoint.safetensors"
    size_bytes = file.write(value, path)
    assert size_bytes == path.stat().st_size
    return file.read(path)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    size = math.prod(shape) * dtype.itemsize
    raw = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype is torch.bool:
        raw = bytearray(byte & 1 for byte in raw)
    flat = torch.frombuffer(raw, dtype=torch.uint8).view(dtype) if size else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    return tensor.transpose(0, 1) if draw(st.booleans()) and len(shape) > 1 else tensor  # not contiguous


floats = st.floats(allow_nan=True, allow_infinity=True)
keys = st.text(st.characters(), max_size=6) | st.integers() | st.booleans() | st.none() | st.tuples(st.integers())
leaves = st.none() | st.booleans() | st.integers() | floats | st.text(st.characters(), max_size=8) | tensors()


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    mappings = st.dictionaries(keys, children, max_size=4)
    return (
        st.lists(children, max_size=4)
        | st.lists(children, max_size=4).map(tuple)
        | mappings
        | mappings.map(OrderedDict)
        | st.dictionaries(st.integers(), st.integers(), max_size=3).map(Counter)
    )


trees = st.recursive(leaves, containers, max_leaves=12)


@ON_DISK
@given(state=st.dictionaries(st.text(st.characters(), max_size=6), trees, max_size=4), score=floats | st.none())
def test_any_tree_comes_back_to_the_bit(state: dict[str, Any], score: float | None, tmp_path: Path) -> None:
    given_checkpoint = checkpoint(state, score=score)
    found = round_trip(given_checkpoint, tmp_path)
    assert bits(found.state) == bits(state)
    assert bits(found.score) == bits(score)
    assert bits(found.recipe) == bits({**RECIPE, "torch": str(torch.__version__)})  # a subclass of str
    assert (found.submodel, found.step, found.epoch) == ("lenet", 7, 2)
    with safe_open(tmp_path / "checkpoint.safetensors", "pt") as opened:  # the library takes every file of ours
        assert opened.metadata()["unifiednn_checkpoint"] == str(FORMAT_VERSION)


def test_names_that_read_the_same_stay_apart(tmp_path: Path) -> None:
    one, two, three = (torch.tensor([float(n)]) for n in range(3))
    state = {"a": {"b": one, 0: two}, "a.b": three, "": {"": two}, "__metadata__": one, "\ud800": two}
    assert bits(round_trip(checkpoint(state), tmp_path).state) == bits(state)


def test_tied_weights_and_views_come_back_in_value(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    state = {"model": {"tied": base, "same": base, "turned": base.t(), "row": base[1], "every": base[:, ::2]}}
    found = round_trip(checkpoint(state), tmp_path)
    assert bits(found.state) == bits(state)
    found.state["model"]["tied"].zero_()
    assert torch.equal(found.state["model"]["same"], base)


def test_weights_are_read_with_safetensors_alone(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    path = tmp_path / "c.safetensors"
    file.write(checkpoint({"model": network.state_dict()}), path)
    loaded = load_file(path)
    assert loaded.keys() == {f"model.{name}" for name in network.state_dict()}
    for name, tensor in network.state_dict().items():
        assert torch.equal(loaded[f"model.{name}"], tensor)


def test_facts_are_read_without_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    file.write(checkpoint(), path)
    flipped = bytearray(path.read_bytes())
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    assert file.peek(path) == Checkpoint(submodel="lenet", step=7, epoch=2, state={}, score=0.5, recipe=RECIPE)
    with pytest.raises(BadCheckpoint, match="changed"):
        file.read(path)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rng": {"deep": [object()]}}, r"rng\.deep\.0 is a object"),
        ({"model": {"w": torch.zeros(2, dtype=torch.complex128)}}, r"model\.w is a torch\.complex128"),
        ({"model": {"w": torch.zeros(2, 2).to_sparse()}}, r"model\.w is .*sparse"),
        ({"model": {"w": torch.zeros(2, device="meta")}}, r"model\.w is .*meta"),
        ({"data": {torch.zeros(1): 1}}, "tensor for a key"),
        ({"data": {frozenset(): 1}}, "is a frozenset"),
        ({"data": 1 << 5000}, "data is a int"),
    ],
)
def test_what_no_checkpoint_holds_is_named(value: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        file.write(checkpoint(value), tmp_path / "c.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_tree_that_contains_itself_is_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="contain itself"):
        file.write(checkpoint({"data": endless}), tmp_path / "c.safetensors")


def test_a_tensor_in_the_recipe_is_refused(tmp_path: Path) -> None:
    wrong = Checkpoint(submodel="a", step=0, epoch=0, state={}, recipe={"lr": torch.zeros(1)})
    with pytest.raises(TypeError, match="recipe"):
        file.write(wrong, tmp_path / "c.safetensors")


OPTIMIZER_ARGS: dict[str, dict[str, Any]] = {"sgd": {"momentum": 0.9}, "adam": {"amsgrad": True}}
LR_ARGS: dict[str, dict[str, Any]] = {
    "step": {"step_size": 2},
    "multi_step": {"milestones": [2, 4, 4]},
    "exponential": {"gamma": 0.9},
    "cosine": {"T_max": 9},
    "linear": {"total_iters": 8},
    "one_cycle": {"max_lr": 0.1, "total_steps": 20},
    "cosine_warm_restarts": {"T_0": 3},
    "cyclic": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3},
    "reduce_on_plateau": {"patience": 0, "factor": 0.5},
}


class Training:
    """A small network with its optimizer and LR scheduler."""

    def __init__(self, optimizer: str, lr_scheduler: str, seed: int):
        torch.manual_seed(seed)
        self.network = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
        if optimizer == "muon":  # takes matrices alone
            self.network = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False))
        of_optimizer = getattr(torch.optim, OPTIMIZERS[optimizer].torch_class)
        self.optimizer = of_optimizer(self.network.parameters(), lr=0.05, **OPTIMIZER_ARGS.get(optimizer, {}))
        of_lr = getattr(torch.optim.lr_scheduler, LR_SCHEDULERS[lr_scheduler].torch_class)
        self.lr_scheduler = of_lr(self.optimizer, **LR_ARGS.get(lr_scheduler, {}))
        self.measured = LR_SCHEDULERS[lr_scheduler].measured

    def steps(self, first: int, count: int) -> None:
        for step in range(first, first + count):
            inputs = torch.randn(6, 4, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.network(inputs).square().mean()
            loss.backward()
            self.optimizer.step()
            self.lr_scheduler.step(*([loss.item()] if self.measured else []))

    def state(self) -> dict[str, Any]:
        return {
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "lr_scheduler": self.lr_scheduler.state_dict(),
        }


@pytest.mark.parametrize(
    ("optimizer", "lr_scheduler"),
    [*((optimizer, "cosine") for optimizer in OPTIMIZERS), *(("sgd", lr_scheduler) for lr_scheduler in LR_SCHEDULERS)],
)
def test_a_training_goes_on_to_the_bit(optimizer: str, lr_scheduler: str, tmp_path: Path) -> None:
    straight = Training(optimizer, lr_scheduler, seed=1)
    straight.steps(0, 5)
    found = round_trip(checkpoint(straight.state()), tmp_path)
    assert bits(found.state) == bits(straight.state())
    straight.steps(5, 6)

    resumed = Training(optimizer, lr_scheduler, seed=2)
    resumed.network.load_state_dict(found.state["model"])
    resumed.optimizer.load_state_dict(found.state["optimizer"])
    resumed.lr_scheduler.load_state_dict(found.state["lr_scheduler"])
    resumed.steps(5, 6)
    assert bits(resumed.state()) == bits(straight.state())


@pytest.mark.parametrize("action", ["disk_full", "read_only"])
@pytest.mark.parametrize(
    ("point", "step"), [("before_write", 1), ("before_fsync", 1), ("before_rename", 1), ("after_rename", 2)]
)
def test_a_failed_write_leaves_the_old_file_or_the_new_one(point: str, step: int, action: str, tmp_path: Path) -> None:
    path = tmp_path / "c.safetensors"
    file.write(checkpoint(step=1), path)
    failpoints.arm(failpoints.Fault(f"checkpoint.{point}", action))
    with pytest.raises(OSError):
        file.write(checkpoint(step=2), path)
    assert [found.name for found in tmp_path.iterdir()] == ["c.safetensors"]
    assert file.read(path).step == step
    file.write(checkpoint(step=2), path)
    assert file.read(path).step == 2


def test_a_folder_that_is_missing_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        file.write(checkpoint(), tmp_path / "nowhere" / "c.safetensors")
