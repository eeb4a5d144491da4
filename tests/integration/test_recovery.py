"""Nothing that happens to a process loses work: a run goes on by itself, with the bits of the uninterrupted one."""

import csv
import os
import random
import signal
import time
import zipfile
from collections.abc import Callable

import pytest

from tests.integration.product import EPOCHS, STEPS_PER_EPOCH, Product, flip_a_byte
from unifiednn_core.spec.lifecycle import Event, State

NAMES = tuple(EPOCHS)
RUN_S = 3.0
"""A little more than the run takes, the start of its worker included."""
STEPS = sum(EPOCHS[name] * STEPS_PER_EPOCH[name] for name in NAMES)
TIMES = [pytest.param(place, marks=[] if place < 1 else pytest.mark.long) for place in range(10)]


def assert_whole(product: Product, alone: Callable[..., str]) -> None:
    """Completed, with the bits of the uninterrupted training, and every step counted once."""
    assert product.finish().state is State.COMPLETED, product.log()
    assert product.hashes() == {name: alone(name) for name in NAMES}
    for name in NAMES:
        assert product.row(name).steps_done == EPOCHS[name] * STEPS_PER_EPOCH[name]
        product.lost_steps(name)
        with zipfile.ZipFile(product.home.run(product.run_id) / "models" / f"{name}.zip") as archive:
            rows = csv.DictReader(archive.read("metrics.csv").decode().splitlines())
        epochs = [(int(row["epoch"]), int(row["step"])) for row in rows]
        assert epochs == [(epoch, epoch * STEPS_PER_EPOCH[name]) for epoch in range(1, EPOCHS[name] + 1)]
    assert product.messages("defect") == []


@pytest.mark.parametrize("place", TIMES)
def test_a_worker_killed_at_any_moment_loses_only_steps_after_its_checkpoints(
    product: Product, alone: Callable[..., str], place: int
) -> None:
    moment = random.Random(place)
    steps = moment.randrange(STEPS - 20)  # early enough that the worker is still there
    product.start()
    product.until(lambda: sum(product.row(name).steps_done for name in NAMES) >= steps, f"step {steps}")
    product.until(product.worker, "a worker")
    time.sleep(moment.uniform(0, 0.05))
    worker = product.worker()
    assert worker is not None
    os.kill(worker, signal.SIGSTOP)  # what is said of it now stays true until it is dead
    kept = {name: product.row(name).checkpoint_step or 0 for name in NAMES}
    done = {name: product.row(name).steps_done for name in NAMES}
    os.kill(worker, signal.SIGKILL)
    assert_whole(product, alone)
    for name in NAMES:
        assert sum(product.lost_steps(name)) <= max(0, done[name] - kept[name])


@pytest.mark.slow
def test_no_more_than_the_steps_since_the_last_period_are_trained_again(
    product: Product, alone: Callable[..., str]
) -> None:
    product.options(checkpoint={"every_s": 3600, "every_steps": 40})
    product.start_and_hold("transformer", 22)  # 23 + 12 + 21 steps of the run are done
    product.until(lambda: product.row("transformer").checkpoint_step == 5, "the checkpoint after step 40")
    product.signal_worker()
    product.go_on()
    assert_whole(product, alone)
    assert {name: product.lost_steps(name) for name in NAMES} == {"lenet": [0], "resnet": [0], "transformer": [16]}
    redone = {part.name: part.redone_steps for part in product.view.submodels}
    assert redone == {"lenet": 0, "resnet": 0, "transformer": 16}


@pytest.mark.parametrize("place", TIMES)
@pytest.mark.parametrize(
    "both", [pytest.param(False, marks=pytest.mark.long), True], ids=["server", "server and worker"]
)
def test_a_killed_server_is_followed_by_one_that_takes_up_what_it_finds(
    product: Product, alone: Callable[..., str], place: int, both: bool
) -> None:
    """The server may die before it has started the worker, while that comes up, or at any time after."""
    server = product.start_server()
    time.sleep(random.Random(f"{both} {place}").uniform(0.4, RUN_S))
    worker = product.worker()
    if both and worker is not None:
        os.kill(worker, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    attempts = {name: product.row(name).attempt for name in NAMES}
    product.start_server()
    assert_whole(product, alone)
    if not both:  # the worker has not noticed
        assert all(product.row(name).attempt == max(1, attempts[name]) for name in NAMES)


@pytest.mark.slow
def test_a_terminated_worker_keeps_everything_first(product: Product, alone: Callable[..., str]) -> None:
    product.options(checkpoint={"every_s": 3600})
    product.start_and_hold("transformer", 6)
    product.signal_worker(signal.SIGTERM)
    product.go_on()
    assert_whole(product, alone)
    assert [product.row(name).attempt for name in NAMES] == [2, 2, 2]
    assert [product.lost_steps(name) for name in NAMES] == [[0], [0], [0]]
    assert "transformer continues at step 6; 0 steps are trained again." in product.messages("recovery")


@pytest.mark.slow
def test_a_run_with_recovery_ask_waits_for_a_person(product: Product, alone: Callable[..., str]) -> None:
    product.options(recovery="ask")
    product.start_and_hold("transformer", 6)
    product.signal_worker()
    product.until(lambda: product.state() is State.INTERRUPTED, "the interruption")
    view = product.view
    assert view.actions == {Event.RESUME}
    assert view.remedy is not None and "Resume" in view.remedy
    product.restart()  # a new server does not go on by itself either
    for _ in range(2):
        product.service._supervisor.tick()
    assert product.state() is State.INTERRUPTED
    assert {product.state(name) for name in NAMES} == {State.INTERRUPTED}
    product.go_on()
    product.service.runs.resume(product.run_id)
    assert_whole(product, alone)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_skipped_and_reported(product: Product, alone: Callable[..., str]) -> None:
    product.options(checkpoint={"every_s": 3600})
    product.start_and_hold("transformer", 6, 7, 8)
    for step in (6, 7):
        product.service.runs.save(product.run_id, "transformer")
        product.go_on()
        product.until(lambda step=step: product.row("transformer").checkpoint_step == step, "the checkpoint")
    product.signal_worker()
    flip_a_byte(product.checkpoints("transformer")[-1])
    product.go_on()
    assert_whole(product, alone)
    [said] = product.messages("warning", "transformer")
    assert "at step 7 is damaged" in said
    assert "the one at step 6 is used" in said
    assert product.lost_steps("transformer") == [1]


def test_a_paused_run_lets_another_one_train_and_goes_on_with_the_same_bits(
    product: Product, alone: Callable[..., str]
) -> None:
    other = product.queue_again()
    product.start_and_hold("resnet", 5)
    product.service.runs.pause(product.run_id)
    product.go_on()
    product.until(lambda: product.state() is State.PAUSED, "the pause")
    assert {product.state(name) for name in NAMES} == {State.QUEUED}
    done = {name: product.row(name).steps_done for name in NAMES}
    assert done == {"lenet": 23, "resnet": 5, "transformer": 0}
    product.until(lambda: product.service.runs.observe(other).ended_at_s is not None, "the other run")
    assert product.service.runs.observe(other).state is State.COMPLETED
    assert {name: product.row(name).steps_done for name in NAMES} == done
    assert product.state() is State.PAUSED
    product.hold("resnet", 8)
    product.service.runs.resume(product.run_id)
    product.until_held()
    product.service.runs.save(product.run_id, "resnet")
    product.go_on()
    assert_whole(product, alone)
    assert [sum(product.lost_steps(name)) for name in NAMES] == [0, 0, 0]
    assert "Save for resnet, at step 8." in product.messages("applied"), "its own step, not one of this worker"
