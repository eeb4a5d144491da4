"""Checkpoints with right hashes and harmful content, and files with code in them."""

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.engine.start_kit import FILE, SAMPLES, changed, checked, trained
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadCheckpoint, BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine import start as engine_start
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.start import initial_state


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    kit.exported(folder, "cnn")
    inputs, targets = torch.randn(SAMPLES, *kit.IMAGES), torch.arange(SAMPLES) % 3
    torch.save({"inputs": inputs, "targets": targets}, folder / "train.pt")
    return folder


ORDER = torch.arange(SAMPLES)


KIND = {"type": "cpu", "torch": "2.9", "name": "CPU"}


def of_kinds(*rows: dict[str, Any]) -> Callable[[Checkpoint], Checkpoint]:
    return lambda whole: replace(whole, recipe={**whole.recipe, "kinds": [*rows]})


def of_optimizer(index: int, **entries: Any) -> Callable[[Checkpoint], Checkpoint]:
    def change(whole: Checkpoint) -> Checkpoint:
        state = whole.state["optimizer"]["state"]
        return changed(whole, "optimizer", state={**state, index: {**state.get(index, {}), **entries}})

    return change


HOSTILE: dict[str, tuple[Callable[[Checkpoint], Checkpoint], str]] = {
    "index outside": (lambda c: changed(c, "data", order=ORDER + 10**6), "not a permutation"),
    "index twice": (lambda c: changed(c, "data", order=torch.zeros_like(ORDER)), "not a permutation"),
    "order of floats": (lambda c: changed(c, "data", order=ORDER.double()), "float64 [25] as data.order"),
    "order of two dimensions": (lambda c: changed(c, "data", order=ORDER.reshape(5, 5)), "int64 [5, 5] as data.order"),
    "cursor outside": (lambda c: changed(c, "data", cursor=SAMPLES + 1), "26 as data.cursor; a whole number from 1"),
    "cursor at the end": (lambda c: changed(c, "data", cursor=SAMPLES), "25 as data.cursor"),
    "cursor in a step": (lambda c: changed(c, "data", cursor=9), "9 as data.cursor; a whole number of steps"),
    "negative cursor": (lambda c: changed(c, "data", cursor=-1), "-1 as data.cursor"),
    "no cursor": (lambda c: changed(c, "data", cursor=None), "None as data.cursor"),
    "generator": (lambda c: changed(c, "data", generator=torch.zeros(7, dtype=torch.uint8)), "[7] as data.generator"),
    "rng": (lambda c: changed(c, "rng", cpu=torch.zeros(5056)), "float32 [5056] as rng.cpu; uint8 [5056]"),
    "rng of zeros": (lambda c: changed(c, "rng", cpu=torch.zeros(5056, dtype=torch.uint8)), "no generator can be"),
    "rng of a GPU": (lambda c: changed(c, "rng", cuda=torch.zeros(9, dtype=torch.uint8)), "uint8 [9] as rng.cuda"),
    "offset of a GPU": (lambda c: changed(c, "rng", cuda=torch.ones(16, dtype=torch.uint8)), "no generator can be"),
    "rng missing": (lambda c: replace(c, state={k: v for k, v in c.state.items() if k != "rng"}), "lacks state.rng"),
    "learning rate": (lambda c: replace(c, recipe={**c.recipe, "learning_rate": 0.0}), "greater than 0"),
    "endless learning rate": (lambda c: replace(c, recipe={**c.recipe, "learning_rate": float("inf")}), "finite"),
    "LR scheduler": (lambda c: replace(c, recipe={**c.recipe, "lr_scheduler": "step"}), "'recipe.lr_scheduler'"),
    "recipe": (lambda c: replace(c, recipe={**c.recipe, "more": 1}), "'more' in recipe"),
    "torch": (lambda c: replace(c, recipe={**c.recipe, "torch": "2\u202e"}), "'2\\u202e' as recipe.torch; a word"),
    "kinds": (of_kinds({"name": "x"}), "lacks recipe.kinds.0.type"),
    "no kinds": (lambda c: replace(c, recipe={**c.recipe, "kinds": []}), "a list of 1 to 16 kinds"),
    "many kinds": (of_kinds(*[KIND] * 17), "a list of 1 to 16 kinds"),
    "a kind of more": (of_kinds({**KIND, "more": "x"}), "'more' in recipe.kinds.0"),
    "a kind of a terminal": (of_kinds(KIND, {**KIND, "name": "\x1b[2J"}), "as recipe.kinds.1.name; a short text"),
    "a kind of HTML": (of_kinds({**KIND, "driver": "<b>"}), "'<b>' as recipe.kinds.0.driver"),
    "a kind of many words": (of_kinds({**KIND, "cudnn": "9" * 81}), "as recipe.kinds.0.cudnn; a short text"),
    "a kind of no words": (of_kinds({**KIND, "cuda": ""}), "'' as recipe.kinds.0.cuda"),
    "a kind of none": (of_kinds({**KIND, "cuda": None}), "None as recipe.kinds.0.cuda"),
    "a kind of true threads": (of_kinds({**KIND, "threads": True}), "True as recipe.kinds.0.threads"),
    "a kind of no threads": (of_kinds({**KIND, "threads": 0}), "0 as recipe.kinds.0.threads"),
    "no groups": (lambda c: changed(c, "optimizer", param_groups=[]), "a list as optimizer.param_groups"),
    "shapes": (of_optimizer(0, exp_avg=torch.ones(9)), "as optimizer.state.0.exp_avg; float32 [4, 1, 3, 3]"),
    "unknown parameter": (of_optimizer(9, exp_avg=torch.ones(9)), "9 as a key of optimizer.state"),
    "endless moment": (of_optimizer(3, exp_avg=torch.full((3,), math.inf)), "optimizer.state.3.exp_avg that are NaN"),
    "model": (lambda c: replace(c, state={**c.state, "model": [1]}), "no state dict"),
    "entry of the model": (lambda c: changed(c, "model", **{"0.weight": 1}), "'0.weight' is 1, not float32"),
    "weights not finite": (lambda c: changed(c, "model", **{"0.bias": torch.full((4,), math.nan)}), "NaN or infinite"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_state_that_no_run_has_written_is_refused(case: str, folder: Path, tmp_path: Path, home: Home) -> None:
    """Its hashes are right, as an attacker would have them."""
    change, message = HOSTILE[case]
    checkpoint_file.write(change(trained()), tmp_path / "hostile.safetensors")
    before = torch.get_rng_state()
    (finding,) = checked(folder, home, {"file": str(tmp_path / "hostile.safetensors")}).findings
    assert finding.field == FILE and message in finding.message
    assert torch.equal(torch.get_rng_state(), before)


class Picking(nn.Module):
    """Uses whole numbers of its state dict as indices. On a GPU a wrong one would end all trainings."""

    picked: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("picked", torch.arange(9))
        self.head = nn.Linear(9, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(images.flatten(1)[:, self.picked])
        return scores


def test_the_dry_run_uses_the_indices_of_the_start(
    folder: Path, tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Picking()
    model = kit.export(tmp_path / "picking.pt2", network, torch.zeros(3, *kit.IMAGES))
    found = {}
    for last in (63, 64):
        weights = {**network.state_dict(), "picked": torch.arange(9) + last - 8}
        torch.save(weights, tmp_path / "weights.pt")
        start = {"file": str(tmp_path / "weights.pt"), "take": "weights"}
        found[last] = checked(folder, home, start, model=str(model)).findings
    assert found[63] == ()
    assert [finding.severity for finding in found[64]] == ["error"] and "out of" in found[64][0].message
    monkeypatch.setattr(engine_start, "_begun", lambda definition, *_: definition)  # control
    assert checked(folder, home, start, model=str(model)).findings == ()


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it ran')",))


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    torch.save({"0.weight": Bomb()}, tmp_path / "bomb.pt")
    (tmp_path / "bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match=r"under '0.weight' a Python object"):
        initial_state(tmp_path / "bomb.pt", "weights")
    with pytest.raises(BadInput, match=r"A pickle of Python is a program\. The server"):
        initial_state(tmp_path / "bomb.pkl", "weights")
    for name in ("bomb.pt", "bomb.pkl"):
        with pytest.raises(BadCheckpoint, match="not a checkpoint"):
            initial_state(tmp_path / name, "everything")
