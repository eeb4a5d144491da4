"""Every optimizer, criterion and LR scheduler, with everything that can be combined: the bits of a plain loop.

All train in one hybrid that changes its sub-model after each step; each goes on from a checkpoint file that was written
inside an epoch, inside the warm-up and while patience is counted; and each is trained by the plain script.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration import vanilla_loop
from tests.integration.kit import CPU, Session
from tests.integration.test_hyperparameters import ARGS, asked, data_for, network, pair
from tests.integration.vanilla_loop import Trained
from tests.unit.engine.start_kit import definition_of
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import vanilla
from unifiednn_core.compare.arms import BaselineFiles, job_of
from unifiednn_core.compare.vanilla import ProgressWriter
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.engine.checkpoint import Checkpoint
from unifiednn_core.engine.events import Captured
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.step import Step
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.choices import CLASSIFICATION, CRITERIA, LR_FORMULAS, LR_SCHEDULERS, OPTIMIZERS
from unifiednn_core.spec.hyperparameters import at_learning_rate
from unifiednn_core.spec.run import CheckpointSpec, Hyperparameters, RunSpec, SubModelSpec
from unifiednn_core.store.schema import SubModelRow

# 37 samples are 5 batches of 8: a step of 3 of them, and one of the 2 that are left; 8 steps in 4 epochs.
GROUPED: dict[str, Any] = {
    "epochs": 4,
    "accumulation_steps": 3,
    "batch_split": 2,
    "warm_up": {"steps": 7},
    "gradient_clipping": {"norm": 0.05},
    "early_stopping": {"metric": "train_loss", "patience": 3, "min_delta": 1e-9},
}
# 4 batches, the smaller one left out; 8 steps in 2 epochs.
SINGLE: dict[str, Any] = {
    "epochs": 2,
    "drop_last": True,
    "warm_up": {"steps": 7},
    "gradient_clipping": {"value": 0.002},
    "early_stopping": {"patience": 1, "min_delta": 100},
}
STEPS = 8
CHECKPOINTS_AT = (5, pytest.param(3, marks=pytest.mark.long))
SCHEDULES = ARGS | {"one_cycle": {"max_lr": 0.1, "total_steps": STEPS}}
UP_AND_DOWN: dict[str, Any] = {
    "name": "sequence",
    "of": [
        {"name": "linear", "args": {"start_factor": 0.1, "total_iters": 1}},
        {"name": "cosine", "args": {"T_max": 3}},
    ],
    "milestones": [1],
}
PLATEAU = {"name": "reduce_on_plateau", "args": ARGS["reduce_on_plateau"]}
THREE: dict[str, Any] = {
    "name": "sequence",
    "of": [
        {"name": "warmup_constant", "args": {"num_warmup_steps": 2}},
        {"name": "cosine_warm_restarts", "args": {"T_0": 1, "eta_min": 0.001}},
        {"name": "multi_step", "args": {"milestones": [1]}},
    ],
    "milestones": [2, 4],
    "per": "step",
}
# The network has the parameters 1.weight and 3.weight.
SLOW: dict[str, Any] = {"names": "1.*", "learning_rate": 0.002, "weight_decay": 0.1}
FROZEN: dict[str, Any] = {"names": ["none", "1.w?ight"], "frozen": True}


GROUPS = [("sgd", FROZEN), ("adam", SLOW), ("adamw", FROZEN), ("muon", SLOW), ("sgd", {"names": "3*", "momentum": 0})]


def everything() -> list[Hyperparameters]:
    found = []
    for combined in (GROUPED, SINGLE):
        found += [asked(optimizer=name, **combined) for name in OPTIMIZERS]
        found += [asked(criterion=name, criterion_args=ARGS.get(name, {}), **combined) for name in CRITERIA]
        for name, choice in LR_SCHEDULERS.items():
            for per in ("epoch",) if choice.measured else ("epoch", "step"):
                schedule = {"name": name, "args": SCHEDULES.get(name, {}), "per": per}
                found.append(asked(lr_scheduler=schedule, optimizer="adamw", **combined))
        for name in LR_FORMULAS:
            schedule = {"name": name, "args": ARGS[name], "per": "step"}
            found.append(asked(lr_scheduler=schedule, parameter_groups=[SLOW], **combined))
        found += [asked(lr_scheduler=schedule, optimizer="adamw", **combined) for schedule in (UP_AND_DOWN, THREE)]
        found += [asked(optimizer=name, parameter_groups=[group], **combined) for name, group in GROUPS]
        found.append(asked(ema={"decay": 0.7}, parameter_groups=[FROZEN], lr_scheduler=PLATEAU, **combined))
        found.append(asked(ema={"decay": 0.9}, optimizer="adam", **combined))
        found += [asked(criterion=name, class_weights="balanced", **combined) for name in sorted(CLASSIFICATION)]
        found.append(asked(sampler={"name": "balanced"}, class_weights="balanced", **combined))
        found.append(
            asked(lr_scheduler=UP_AND_DOWN, parameter_groups=[SLOW, {"names": "*", "momentum": 0.9}], **combined)
        )
    return found


EVERY = {f"net{place}": hyper for place, hyper in enumerate(everything())}


def hybrid(
    asked_for: Mapping[str, Hyperparameters], restored: Mapping[str, Checkpoint], every_steps: int | None = None
) -> tuple[dict[str, Trained], list[Checkpoint]]:
    """Train all in one hybrid, one step at a time; what became of each, and every checkpoint."""
    data = ResidentData(CPU)
    kept = {name: submodel(name, hyper, data) for name, hyper in asked_for.items()}
    period = None if every_steps is None else CheckpointSpec(every_steps=every_steps)
    policy = RoundRobin(unit="steps", amount=1)
    session = Session((), policy, ready=kept.values(), restored=restored, checkpoint=period).run()
    trained = {name: _trained(one, session.losses(name)) for name, one in kept.items()}
    return trained, [report.checkpoint for report in session.of(Captured)]


def _trained(one: SubModel | vanilla.PlainScript, losses: list[float]) -> Trained:
    averaged = None if one.averaged is None else one.averaged.module
    return Trained(one.module, one.optimizer, one.lr_scheduler, losses, averaged)


def submodel(name: str, hyper: Hyperparameters, data: ResidentData, *, fast: bool = False) -> SubModel:
    spec = SubModelSpec(name=name, model="m", train_data="d", hyperparameters=hyper)
    kind = CRITERIA[hyper.criterion].targets
    train = data.hold(f"train {kind}", lambda: data_for(hyper.criterion))
    test = data.hold(f"test {kind}", lambda: data_for(hyper.criterion, 20, seed=1))
    definition = definition_of(partial(network, hyper.criterion))
    return SubModel(spec, definition, seed=hyper.seed or 0, train=train, test=test, device=CPU, fast=fast)


@pytest.fixture(scope="module")
def plain() -> dict[str, Trained]:
    """Everything by the plain loop."""
    return {name: plain_loop(hyper) for name, hyper in EVERY.items()}


def plain_loop(hyper: Hyperparameters) -> Trained:
    train, test = pair(data_for(hyper.criterion)), pair(data_for(hyper.criterion, 20, seed=1))
    return vanilla_loop.train(network(hyper.criterion), hyper, train, test=test)


def differing(trained: Mapping[str, Trained], expected: Mapping[str, Trained]) -> dict[str, Sequence[str]]:
    found = {}
    for name, one in trained.items():
        ours, theirs = one.bits(), expected[name].bits()
        wrong = sorted(where for where in ours.keys() | theirs.keys() if ours.get(where) != theirs.get(where))
        if wrong:
            found[f"{name} {EVERY[name].model_dump(exclude_defaults=True)}"] = wrong
    return found


@cache
def whole(step: int) -> tuple[dict[str, Trained], list[Checkpoint]]:
    """Everything in one hybrid, with a checkpoint of each after so many steps of it."""
    return hybrid(EVERY, {}, every_steps=step * len(EVERY))


def test_everything_in_one_hybrid_trains_to_the_bits_of_plain_loops(plain: dict[str, Trained]) -> None:
    trained, _ = whole(5)
    assert not differing(trained, plain)
    assert {len(one.losses) for one in trained.values()} == {STEPS}


@pytest.mark.parametrize("step", CHECKPOINTS_AT)
def test_everything_goes_on_from_a_file_that_was_written_inside_an_epoch(
    step: int, plain: dict[str, Trained], tmp_path: Path
) -> None:
    _, taken = whole(step)
    restored = {}
    for checkpoint in (one for one in taken if one.step == step):
        checkpoint_file.write(checkpoint, tmp_path / checkpoint.submodel)
        restored[checkpoint.submodel] = checkpoint_file.read(tmp_path / checkpoint.submodel)
    assert restored.keys() == EVERY.keys()
    trained, _ = hybrid(EVERY, restored)
    joined = {name: replace(one, losses=plain[name].losses[:step] + one.losses) for name, one in trained.items()}
    assert not differing(joined, plain)


def test_everything_trains_to_the_same_bits_by_the_plain_script(
    plain: dict[str, Trained], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network is given to it: no format carries networks without biases, which every optimizer takes."""
    trained = {}
    for name, hyper in EVERY.items():
        kind = CRITERIA[hyper.criterion].targets
        for file, samples, seed in (("train", 37, 0), ("test", 20, 1)):
            data, path = data_for(hyper.criterion, samples, seed), home.file(f"{file}-{kind}")
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save({"inputs": data.first, "targets": data.targets}, path)
        monkeypatch.setattr(vanilla, "read_network", lambda *_, hyper=hyper: (network(hyper.criterion), Step()))
        trained[name] = by_script(home, hyper, f"train-{kind}", f"test-{kind}")
    assert not differing(trained, plain)


def by_script(home: Home, hyper: Hyperparameters, train: str, test: str | None = None, steps: int = STEPS) -> Trained:
    """What the script of a baseline makes of these files."""
    part = SubModelSpec(name="x", model="m", train_data=train, test_data=test, hyperparameters=hyper)
    profile = "exact" if hyper.precision == "float32" else "fast"
    spec = RunSpec(submodels=(part,), device="cpu", threads=1, profile=profile)
    row = SubModelRow(name="x", model_format="pt2", steps_total=steps)
    job = replace(job_of(BaselineFiles(home, "run"), spec, part, row, threads=1, peers=1), parent_pid=None)
    stream = StringIO()
    with torch.random.fork_rng(devices=[]):
        script = vanilla.PlainScript(job, ProgressWriter(stream, 1))
        script.train()
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    losses = [row["loss"] for row in told if row["kind"] == "step"]
    return _trained(script, losses)


def test_in_bfloat16_hybrid_and_plain_script_round_alike_on_a_cpu(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict relies on that: on a GPU the order of sums may differ."""
    plateau = {"lr_scheduler": PLATEAU, "optimizer": "adam", "ema": {"decay": 0.5}}
    hyper, exact = (asked(precision=name, **GROUPED, **plateau) for name in ("bfloat16", "float32"))
    for file, samples, seed in (("train", 37, 0), ("test", 20, 1)):
        data, path = data_for(hyper.criterion, samples, seed), home.file(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save({"inputs": data.first, "targets": data.targets}, path)
    monkeypatch.setattr(vanilla, "read_network", lambda *_: (network(hyper.criterion), Step()))
    script, part = by_script(home, hyper, "train", "test"), submodel("x", hyper, ResidentData(CPU), fast=True)
    losses = []
    with part.world():
        for _ in range(STEPS):
            losses.append(part.step().loss.item())
            if part.at_epoch_end:
                part.end_epoch()
        assert part.finished
    ours = _trained(part, losses).bits()
    assert ours == script.bits()
    assert ours != plain_loop(exact).bits()
    assert part.capture().recipe["profile"] == "fast"


def test_another_learning_rate_from_a_checkpoint_on_is_that_share_of_the_whole_schedule() -> None:
    """Twice the rate: a power of two, so that all that follows is exactly the double."""
    flat = {"epochs": 6, "batch_size": 37, "learning_rate": 0.01}
    schedules = SCHEDULES | {"reduce_on_plateau": {"patience": 0, "threshold": 0.9, "min_lr": 1e-6}}
    before = {}
    for name, choice in (LR_SCHEDULERS | LR_FORMULAS).items():
        for per in ("epoch",) if choice.measured else ("epoch", "step"):
            schedule = {"name": name, "args": schedules.get(name, {}), "per": per}
            before[f"{name}-{per}"] = asked(lr_scheduler=schedule, **flat)
    before |= {f"sequence-{place}": asked(lr_scheduler=it, **flat) for place, it in enumerate((UP_AND_DOWN, THREE))}
    slow = [{**SLOW, "weight_decay": 0.0}]
    before["groups"] = asked(lr_scheduler=UP_AND_DOWN, parameter_groups=[{"names": "1.*"}, *slow], **flat)
    changed = {
        name: Hyperparameters.model_validate(hyper.model_dump() | at_learning_rate(hyper, 0.02))
        for name, hyper in before.items()
    }
    _, taken = hybrid(before, {}, every_steps=len(before))
    at_two = {one.submodel: one for one in taken if one.step == 2}
    rates, later = (
        {(one.submodel, one.step): one.state["metrics"]["last"]["learning_rate"] for one in all_taken}
        for all_taken in (taken, hybrid(changed, at_two, every_steps=len(before))[1])
    )
    assert later == {(name, step): 2 * rate for (name, step), rate in rates.items() if step > 2}


def test_another_learning_rate_reaches_every_optimizer() -> None:
    before = {name: asked(optimizer=name, epochs=2, batch_size=37) for name in OPTIMIZERS}
    changed = {name: asked(optimizer=name, epochs=2, batch_size=37, learning_rate=1e-7) for name in OPTIMIZERS}
    usual, taken = hybrid(before, {}, every_steps=len(before))
    restored = {one.submodel: one for one in taken if one.step == 1}
    slow, _ = hybrid(changed, restored)
    for name, one in slow.items():
        first = restored[name].state["model"]["1.weight"]
        moved, usually = ((each.module.get_parameter("1.weight") - first).abs().max() for each in (one, usual[name]))
        assert moved < usually / 100, name
