"""Checkpoints with right hashes and harmful content, and files with code in them."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.engine.start_kit import FILE, SAMPLES, changed, checked, trained
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadCheckpoint, BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.engine import checkpoint_file
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
HOSTILE: dict[str, tuple[Callable[[Checkpoint], Checkpoint], str]] = {
    "index outside": (lambda c: changed(c, "data", order=ORDER + 10**6), "not a permutation"),
    "index twice": (lambda c: changed(c, "data", order=torch.zeros_like(ORDER)), "not a permutation"),
    "order of floats": (lambda c: changed(c, "data", order=ORDER.double()), "not a permutation"),
    "order of two dimensions": (lambda c: changed(c, "data", order=ORDER.reshape(5, 5)), "not a permutation"),
    "cursor outside": (lambda c: changed(c, "data", cursor=SAMPLES + 1), "not a permutation"),
    "negative cursor": (lambda c: changed(c, "data", cursor=-1), "not a permutation"),
    "no cursor": (lambda c: changed(c, "data", cursor=None), "not a permutation"),
    "generator": (lambda c: changed(c, "data", generator=torch.zeros(7, dtype=torch.uint8)), "another kind"),
    "rng": (lambda c: changed(c, "rng", cpu=torch.zeros(5056)), "another kind"),
    "rng of a GPU": (lambda c: changed(c, "rng", cuda=torch.zeros(9, dtype=torch.uint8)), "RNG state of the GPU"),
    "rng missing": (lambda c: replace(c, state={k: v for k, v in c.state.items() if k != "rng"}), "another kind"),
    "learning rate": (lambda c: replace(c, recipe={**c.recipe, "learning_rate": 0.0}), "learning rate"),
    "endless learning rate": (lambda c: replace(c, recipe={**c.recipe, "learning_rate": float("inf")}), "learning"),
    "LR scheduler": (lambda c: replace(c, recipe={**c.recipe, "lr_scheduler": "step"}), "another kind"),
    "no groups": (lambda c: changed(c, "optimizer", param_groups=[]), "another number of parameters"),
    "shapes": (lambda c: changed(c, "optimizer", state={0: {"exp_avg": torch.ones(9)}}), "other shapes"),
    "unknown parameter": (lambda c: changed(c, "optimizer", state={9: {"exp_avg": torch.ones(9)}}), "another kind"),
    "model": (lambda c: replace(c, state={**c.state, "model": [1]}), "no state dict"),
    "entry of the model": (lambda c: changed(c, "model", **{"0.weight": 1}), "'0.weight' is a int"),
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


class Bomb:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('it ran')",))


def test_no_code_of_a_file_runs(tmp_path: Path) -> None:
    torch.save({"0.weight": Bomb()}, tmp_path / "bomb.pt")
    (tmp_path / "bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(BadInput, match="could run code"):
        initial_state(tmp_path / "bomb.pt", "weights")
    with pytest.raises(BadInput, match="No format"):
        initial_state(tmp_path / "bomb.pkl", "weights")
    for name in ("bomb.pt", "bomb.pkl"):
        with pytest.raises(BadCheckpoint, match="not a checkpoint"):
            initial_state(tmp_path / name, "everything")
