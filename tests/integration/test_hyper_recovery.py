"""Killed inside an epoch of groups of batches, inside the warm-up, while patience is counted: not one bit is other."""

import json
from pathlib import Path

import pytest
import torch

from sample_models import build
from tests.integration import vanilla_loop
from tests.integration.conftest import write_spec
from tests.integration.product import EPOCHS, Template
from unifiednn_core.base.paths import Home
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.runtime import supervisor
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import Hyperparameters

# 23 batches are 6 steps; it stops after 3 epochs, which are 18 steps.
COMBINED = {
    "epochs": 9,
    "accumulation_steps": 4,
    "batch_split": 3,
    "warm_up": {"steps": 15},
    "gradient_clipping": {"norm": 0.3},
    "early_stopping": {"patience": 2, "min_delta": 100},
    "lr_scheduler": {"name": "reduce_on_plateau", "args": {"patience": 0, "threshold": 0.9}},
}


@pytest.mark.long
@pytest.mark.parametrize("step", [9, 13])
def test_a_killed_worker_changes_not_one_bit_of_groups_warm_up_and_patience(
    step: int, samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "TICK_S", 0.1)
    path = write_spec(samples, tmp_path, epochs=EPOCHS, checkpoint={"every_s": 30, "every_steps": 4})
    document = json.loads(path.read_text())
    document["policy"] = {"name": "round_robin", "unit": "steps", "amount": 2}
    document["submodels"] = [part for part in document["submodels"] if part["name"] != "transformer"]
    [lenet] = [part for part in document["submodels"] if part["name"] == "lenet"]
    lenet["hyperparameters"] |= COMBINED
    path.write_text(json.dumps(document))
    hyper = Hyperparameters.model_validate(lenet["hyperparameters"])
    train, test = (torch.load(samples / f"digits_{which}.pt", weights_only=True) for which in ("train", "test"))
    pairs = [(data["inputs"].to(torch.float32) * lenet["scale"], data["targets"]) for data in (train, test)]
    plain = vanilla_loop.train(build.initial_module("lenet"), hyper, pairs[0], test=pairs[1])
    with Template.submit(path, tmp_path).copied(Home(tmp_path / "killed")) as product:
        product.start_and_hold("lenet", step)
        product.signal_worker()
        product.go_on()
        product.finish()
        row = product.row("lenet")
        assert (row.state, row.steps_done, row.attempt) == (State.COMPLETED, len(plain.losses), 2)
        assert row.state_sha256 == state_sha256(plain.module.state_dict())
    assert len(plain.losses) == 18
