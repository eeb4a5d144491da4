"""The profile `fast`: lower precision, scaled losses and fused optimizers, and what a checkpoint keeps of them."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.engine.checkpoint_kit import bits
from tests.unit.engine.start_kit import SAMPLES, changed, definition_of
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadCheckpoint
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import submodel as submodels
from unifiednn_core.engine.checkpoint_check import recipe_of
from unifiednn_core.engine.computing import Computing
from unifiednn_core.engine.optimizers import build_optimizer, update
from unifiednn_core.engine.resident_data import HOST, ResidentData
from unifiednn_core.engine.step import Step
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats import guard
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.spec.run import Hyperparameters, SubModelSpec

A, B = torch.ones(2, 3, 3), torch.ones(3, 3)
CALLS: dict[str, tuple[Any, ...]] = {
    **{f"conv{n}d": (torch.ones(1, 1, *[3] * n), torch.ones(1, 1, *[1] * n)) for n in (1, 2, 3)},
    "prelu": (B, torch.ones(1)),
    "linear": (B, B),
    "matmul": (B, B),
    "mm": (B, B),
    "bmm": (A, A),
    "addmm": (B, B, B),
    "baddbmm": (A, A, A),
    "addbmm": (B, A, A),
    "scaled_dot_product_attention": (A, A, A),
}
CALLS |= {f"conv_transpose{n}d": CALLS[f"conv{n}d"] for n in (1, 2, 3)}


def test_autocast_lowers_what_the_guard_lowers() -> None:
    """So a contract sees what the kernel gets."""
    assert {packet.__name__ for packet in guard.LOWERED} == CALLS.keys()
    with torch.autocast("cpu", torch.bfloat16):
        for name, args in CALLS.items():
            assert getattr(torch.ops.aten, name)(*args).dtype is torch.bfloat16, name


@pytest.mark.parametrize("name", ["cnn", "residual", "attention"])
def test_a_network_of_a_file_computes_in_bfloat16_as_torch_lets_it(name: str, tmp_path: Path) -> None:
    """At its first call, which is checked node by node, and at later ones."""
    ours = ExportedFormat().read(kit.exported(tmp_path, name), None).build()
    theirs, inputs, seen = kit.network(name), kit.batch(name, 5), []
    calm = copy.deepcopy(ours).eval()
    plain = calm(inputs)
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(calm(inputs).float(), plain)
    assert torch.equal(calm(inputs), plain)
    for network in (theirs, ours, ours):
        network.zero_grad()
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = network(inputs)
        outputs.float().sum().backward()
        gradients = {key: one.grad for key, one in network.named_parameters()}
        seen.append((outputs, gradients))
    assert bits(seen[1]) == bits(seen[2])
    if name != "attention":  # one kernel with a dropout of its own in the module, several in the file
        assert bits(seen[0]) == bits(seen[1])


def trained(computing: Computing, steps: int, start: Any = None, **hyper: Any) -> SubModel:
    """A sub-model that computes in a way that only a GPU has otherwise."""
    asked = {"epochs": 9, "batch_size": 8, "optimizer": "adamw", "gradient_clipping": {"norm": 0.1}, **hyper}
    spec = SubModelSpec(name="x", model="m", train_data="d", hyperparameters=Hyperparameters.model_validate(asked))
    inputs = torch.randn(SAMPLES, *kit.IMAGES, generator=torch.Generator().manual_seed(2))
    held = ResidentData(HOST).hold("train", lambda: Dataset.of(inputs, torch.arange(SAMPLES) % 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submodels.Computing, "of", lambda *_, **__: computing)
        build: Callable[[], torch.nn.Module] = partial(kit.network, "cnn", 5)
        part = SubModel(spec, definition_of(build), seed=1, train=held, test=held, device=HOST)
    if start is not None:
        part.restore(start)
    with part.world():
        for _ in range(steps):
            part.step()
            if part.at_epoch_end:
                part.end_epoch()
    return part


WAYS = {
    "bfloat16": (Computing(autocast=torch.bfloat16), {"precision": "bfloat16"}),
    "float16": (Computing(autocast=torch.float16), {"precision": "float16", "warm_up": {"steps": 5}}),
    "channels last": (Computing(channels_last=True, fused=True), {"ema": {"decay": 0.5}}),
    "fused": (Computing(fused=True), {"lr_scheduler": {"name": "exponential", "args": {"gamma": 0.5}}}),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_computing_goes_on_from_a_checkpoint_to_the_bit_and_is_marked(way: str) -> None:
    computing, hyper = WAYS[way]
    whole, half = trained(computing, 7, **hyper), trained(computing, 3, **hyper).capture()
    again = trained(computing, 4, half, **hyper).capture()
    assert bits(again.state) == bits(whole.capture().state)
    assert recipe_of(half).fast and ("scaler" in half.state) == (way == "float16")
    assert [group["fused"] for group in half.state["optimizer"]["param_groups"]] == [None]
    exact = trained(Computing(), 7, **{**hyper, "precision": "float32"})
    assert not recipe_of(exact.capture()).fast
    assert bits(exact.capture().state["model"]) != bits(again.state["model"])
    for own, its in zip(exact.module.parameters(), whole.module.parameters(), strict=True):
        assert torch.allclose(own, its, atol=0.1)


def test_a_scaler_that_no_run_has_written_is_refused() -> None:
    computing, hyper = WAYS["float16"]
    half = trained(computing, 3, **hyper).capture()
    for entry in ({"scale": float("nan")}, {"growth_factor": 9.0}, {"_growth_tracker": 10**6}, {"more": 1}):
        with pytest.raises(BadCheckpoint, match="scaler"):
            trained(computing, 0, changed(half, "scaler", **entry), **hyper)
    without = {key: part for key, part in half.state.items() if key != "scaler"}
    assert trained(computing, 1, replace(half, state=without), **hyper).steps_done == 4  # of a run with other precision
    other = trained(Computing(), 1, half, **{**hyper, "precision": "float32"})
    assert "scaler" not in other.capture().state


def test_a_cpu_computes_otherwise_only_where_its_owner_asks() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda", 0)
    asked = Hyperparameters(precision="bfloat16", optimizer="adam")
    assert Computing.of(asked, cpu, fast=False).exact and Computing.of(asked, gpu, fast=False).exact
    assert Computing.of(Hyperparameters(), cpu, fast=True).exact
    assert Computing.of(asked, cpu, fast=True) == Computing("cpu", torch.bfloat16)
    assert Computing.of(asked, gpu, fast=True) == Computing(
        "cuda", torch.bfloat16, channels_last=True, fused=True, tf32=True
    )
    assert not Computing.of(Hyperparameters(optimizer="rprop"), gpu, fast=True).fused


def test_weights_have_their_channels_last_where_the_network_takes_that() -> None:
    """The state of the optimizer lies as they do, also from a checkpoint; a view refuses such images."""
    computing = Computing(channels_last=True, fused=True)
    half = trained(computing, 3)
    again = trained(computing, 1, half.capture())
    for part in (half, again):
        weight = part.module.get_parameter("0.weight")
        assert weight.is_contiguous(memory_format=torch.channels_last)
        assert part.optimizer.state[weight]["exp_avg"].stride() == weight.stride()
        assert half.capture().state["model"]["0.weight"].is_contiguous()

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(1, 4, 3)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(images)
            return found.view(len(found), -1)

    network, batch = Rows(), Batch({"inputs": torch.randn(3, *kit.IMAGES)})
    assert computing.laid_out(network, Step(), batch) == Computing(fused=True)
    assert network.conv.weight.is_contiguous() and network.training


def test_a_fused_kernel_gets_gradients_that_lie_as_their_weights() -> None:
    hyper = Hyperparameters(optimizer="adam")
    weight, same = (torch.nn.Parameter(torch.arange(6.0).view(2, 3)) for _ in range(2))
    weight.grad, same.grad = torch.arange(6.0).view(3, 2).T, torch.arange(6.0).view(3, 2).T.contiguous()
    for one in (weight, same):
        update(build_optimizer([("w", one)], hyper, fused=True), [one], hyper, 1)
    assert torch.equal(weight, same)
