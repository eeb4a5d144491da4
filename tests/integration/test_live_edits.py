"""What people ask of a run takes effect once, whatever happens in between, and changes no bits of the others."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.integration.product import EPOCHS, STEPS_PER_EPOCH, Product
from unifiednn_core.base.errors import BadInput
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import PolicySpec, RunSpec

Alone = Callable[..., str]
TWO_STEPS = {"name": "round_robin", "unit": "steps", "amount": 2}


def assert_completed(product: Product, alone: Alone, **epochs: int) -> None:
    """Every sub-model has the bits of its training alone; `epochs` names those that were changed."""
    assert product.finish().state is State.COMPLETED
    assert {name: product.row(name).state_sha256 for name in EPOCHS} == {
        name: alone(name, epochs.get(name, EPOCHS[name])) for name in EPOCHS
    }
    for part in product.view.submodels:
        product.lost_steps(part.name)
    assert product.messages("defect") == []


def assert_once(product: Product, *said: str) -> None:
    """Each command was asked for once, and took effect once."""
    assert product.messages("command") == [f"Requested: {what}." for what in said]
    applied = product.messages("applied")
    assert len(applied) == len(said)
    for what in said:
        taken = re.compile(rf"{re.escape(what)}(, at step \d+)?\.", re.IGNORECASE)
        assert len([message for message in applied if taken.fullmatch(message)]) == said.count(what), applied
    assert product.view.waiting_commands == ()


def slices(product: Product, name: str) -> list[int]:
    return [part.steps for part in product.view.schedule if part.submodel == name]


def ends(product: Product) -> list[str]:
    """Sub-models in the order in which they ended."""
    return sorted(EPOCHS, key=lambda name: product.row(name).ended_at_s or 0.0)


def test_one_is_paused_inside_an_epoch_and_the_others_do_not_notice(product: Product, alone: Alone) -> None:
    product.options(policy=TWO_STEPS)
    product.start_and_hold("transformer", 7)
    product.service.runs.pause(product.run_id, "transformer")
    product.go_on()
    product.until(lambda: product.state("transformer") is State.PAUSED, "the pause")
    assert (product.row("transformer").steps_done, product.row("transformer").checkpoint_step) == (7, 7)
    product.until(lambda: {product.state("lenet"), product.state("resnet")} == {State.COMPLETED}, "the others")
    assert product.row("transformer").steps_done == 7
    assert product.state() is State.RUNNING
    for name in ("lenet", "resnet"):
        steps = EPOCHS[name] * STEPS_PER_EPOCH[name]
        assert slices(product, name) == [2] * (steps // 2) + [1] * (steps % 2)
    product.service.runs.resume(product.run_id, "transformer")
    assert_completed(product, alone)
    assert {name: product.row(name).attempt for name in EPOCHS} == dict.fromkeys(EPOCHS, 1)
    assert_once(product, "pause for transformer", "resume for transformer")


@pytest.mark.parametrize(
    "obeyed", [False, pytest.param(True, marks=pytest.mark.long)], ids=["worker killed before it heard of it", "after"]
)
def test_a_pause_outlives_the_worker(product: Product, alone: Alone, obeyed: bool) -> None:
    product.options(policy=TWO_STEPS)
    product.start_and_hold("transformer", 7)
    product.service.runs.pause(product.run_id, "transformer")
    if obeyed:
        product.go_on()
        product.until(lambda: product.state("transformer") is State.PAUSED, "the pause")
        product.signal_worker()
    else:
        product.until(lambda: product.checkpoints("transformer"), "the checkpoint of step 5, written by another thread")
        product.signal_worker()
        product.go_on()
    product.until(lambda: {product.state("lenet"), product.state("resnet")} == {State.COMPLETED}, "the others")
    assert product.state("transformer") is State.PAUSED
    assert product.row("transformer").attempt == 2
    kept = checkpoint_file.read(product.checkpoints("transformer")[-1]).step
    assert (product.row("transformer").steps_done, product.row("transformer").checkpoint_step) == (kept, kept)
    assert kept == 7 if obeyed else kept <= 6
    product.service.runs.resume(product.run_id, "transformer")
    assert_completed(product, alone)
    assert_once(product, "pause for transformer", "resume for transformer")


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["resnet", None])
def test_a_checkpoint_is_written_when_somebody_asks_for_it(product: Product, alone: Alone, whom: str | None) -> None:
    product.options(checkpoint={"every_s": 3600}, policy=TWO_STEPS)
    product.start_and_hold("resnet", 7)
    assert [product.checkpoints(name) for name in EPOCHS] == [[], [], []]
    product.service.runs.save(product.run_id, whom)
    product.go_on()
    product.until(lambda: product.messages("applied"), "the checkpoint")
    last = {name: product.row(name).steps_total for name in EPOCHS}  # those of the end may be there already
    kept = {
        name: [one for path in product.checkpoints(name) if (one := checkpoint_file.read(path)).step < last[name]]
        for name in EPOCHS
    }
    assert all(one.submodel == name for name, found in kept.items() for one in found)
    assert product.service.runs.checkpoint(product.run_id, "resnet") == product.checkpoints("resnet")[-1]
    assert {name: [one.step for one in found] for name, found in kept.items()} == {
        "lenet": [] if whom else [8],
        "transformer": [] if whom else [6],
        "resnet": [7],
    }
    assert_completed(product, alone)
    assert_once(product, "save for resnet" if whom else "save")


def test_what_is_discarded_leaves_nothing(product: Product, alone: Alone) -> None:
    product.start_and_hold("transformer", 12)
    product.until(lambda: product.checkpoints("transformer"), "a checkpoint")
    product.service.runs.discard(product.run_id, "transformer")
    product.signal_worker()
    product.go_on()
    assert product.finish().state is State.COMPLETED
    assert product.state("transformer") is State.STOPPED
    folder = product.home.run(product.run_id)
    product.until(lambda: product.worker() is None, "the end of the worker")
    assert [path for path in folder.rglob("*") if "transformer" in str(path.relative_to(folder))] == []
    row = product.row("transformer")
    assert (row.artifact, row.state_sha256, row.checkpoint, row.checkpoint_step) == (None, None, None, None)
    assert "discarded" in (row.cause or "")
    assert [product.row(name).state_sha256 for name in ("lenet", "resnet")] == [alone("lenet"), alone("resnet")]


@pytest.mark.slow
def test_a_discarded_run_leaves_no_models(product: Product) -> None:
    product.start_and_hold("resnet", 7)
    product.until(lambda: product.checkpoints("resnet"), "a checkpoint")
    product.service.runs.discard(product.run_id)
    product.go_on()
    assert product.finish().state is State.STOPPED
    product.until(lambda: product.worker() is None, "the end of the worker")
    assert {product.state(name) for name in EPOCHS} == {State.STOPPED}
    kept = product.home.run(product.run_id).rglob("*")
    assert [path for path in kept if path.suffix in (".safetensors", ".zip", ".pt2")] == []


@pytest.mark.slow
def test_edits_outlive_a_worker_that_was_killed_before_it_heard_of_them(product: Product, alone: Alone) -> None:
    product.options(policy={"name": "fcfs"})
    product.service.runs.reorder(product.run_id, ["transformer", "lenet", "resnet"])
    product.start_and_hold("transformer", 3)
    product.service.runs.set_epochs(product.run_id, "lenet", 4)
    product.service.runs.set_policy(product.run_id, PolicySpec(name="priority"))
    product.service.runs.reorder(product.run_id, ["lenet", "resnet", "transformer"])
    product.service.runs.set_priority(product.run_id, "resnet", -1)
    assert len(product.view.waiting_commands) == 4
    with pytest.raises(BadInput, match="total_steps"):
        product.service.runs.set_epochs(product.run_id, "transformer", 3)
    product.signal_worker()
    product.go_on()
    assert_completed(product, alone, lenet=4)
    assert ends(product)[0] == "resnet"
    assert [part.name for part in product.view.submodels] == ["lenet", "resnet", "transformer"]
    assert_once(
        product,
        "order transformer, lenet, resnet",
        "epochs 4 for lenet",
        "policy priority",
        "order lenet, resnet, transformer",
        "priority -1 for resnet",
    )


def test_a_network_joins_a_run(product: Product, alone: Alone) -> None:
    """Its bits are those of its training alone, and nobody else's change."""
    changed: Mapping[str, Any] = {"seed": 70, "epochs": 2}
    spec = RunSpec.model_validate(product.service.store.runs.get(product.run_id)[0].spec)
    hyperparameters = spec.submodels[0].hyperparameters.model_copy(update=changed)
    joining = spec.submodels[0].model_copy(update={"name": "late", "hyperparameters": hyperparameters})
    product.start_and_hold("resnet", 7)
    product.service.runs.add_submodel(product.run_id, joining)
    assert product.state("late") is State.QUEUED
    product.signal_worker()
    product.go_on()
    assert_completed(product, alone)
    assert product.row("late").state_sha256 == alone("lenet", **changed)
    assert product.row("late").steps_done == 2 * STEPS_PER_EPOCH["lenet"]
    assert product.view.submodels[-1].name == "late"
    assert slices(product, "late")
    assert_once(product, "add late")
    with pytest.raises(BadInput, match="would be called 'late'"):
        product.service.runs.add_submodel(product.run_id, joining)


@pytest.mark.long
def test_other_logical_devices_change_no_bit_of_virtual_nodes_also_where_a_worker_is_killed(
    product: Product, alone: Alone
) -> None:
    """Four nodes have the bits of a batch in four parts, for a network that draws nothing."""
    product.options(policy=TWO_STEPS)
    product.hyperparameters("lenet", techniques=[{"name": "virtual_nodes", "nodes": 4, "devices": 2}])
    product.start_and_hold("lenet", 3, 40)
    product.service.runs.set_devices(product.run_id, "lenet", 4)
    product.go_on()
    product.service.runs.set_devices(product.run_id, "lenet", 1)
    product.signal_worker()
    product.go_on()
    assert product.finish().state is State.COMPLETED
    assert product.row("resnet").state_sha256 == alone("resnet")
    assert_once(product, "devices 4 for lenet", "devices 1 for lenet")
    spec = RunSpec.model_validate(product.view.spec)
    [lenet] = [part for part in spec.submodels if part.name == "lenet"]
    assert lenet.hyperparameters.nodes is not None and lenet.hyperparameters.nodes.devices == 1
    split = lenet.hyperparameters.model_copy(update={"techniques": [], "batch_split": 4})
    other = spec.model_copy(update={"submodels": (lenet.model_copy(update={"hyperparameters": split}),)})
    run_id = product.service.runs.submit(other)
    product.until(lambda: product.service.runs.observe(run_id).state is State.COMPLETED, "the batch in four parts")
    [row] = product.service.store.runs.get(run_id)[1]
    assert product.row("lenet").state_sha256 == row.state_sha256 != alone("lenet")
