"""What goes wrong in one sub-model ends that one alone, and can be tried again."""

from collections.abc import Callable

import pytest

from tests.integration.product import EPOCHS, STEPS_PER_EPOCH, Product
from unifiednn_core.base.errors import BadInput, IllegalTransition
from unifiednn_core.spec.lifecycle import Event, State

Alone = Callable[..., str]


def assert_others_are_whole(product: Product, alone: Alone, failed: str) -> None:
    for name in EPOCHS:
        if name != failed:
            assert product.state(name) is State.COMPLETED
            assert product.row(name).state_sha256 == alone(name)
            product.lost_steps(name)


def assert_failed_alone(product: Product, alone: Alone, failed: str, cause: str, remedy: str) -> None:
    """One has failed with cause and remedy, in the document, too; all others are whole."""
    view = product.finish()
    assert view.state is State.FAILED
    assert view.cause is not None and failed in view.cause
    [part] = [part for part in view.submodels if part.name == failed]
    assert part.state is State.FAILED
    assert part.actions == {Event.RETRY}
    told = product.service.runs.document(product.run_id)["submodels"][failed]  # type: ignore[index]
    assert told["status"] == "failed"
    assert cause in told["cause"]
    assert remedy in told["remedy"]
    assert told["model_path"] is None
    assert_others_are_whole(product, alone, failed)
    assert product.messages("defect") == []


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_cured_by_a_smaller_learning_rate(product: Product, alone: Alone) -> None:
    product.hyperparameters("lenet", learning_rate=1e30)
    product.start()
    assert_failed_alone(product, alone, "lenet", "The loss of lenet is", "smaller learning rate")
    with pytest.raises(BadInput) as refused:
        product.service.runs.retry(product.run_id, "lenet", learning_rate=-1.0)
    assert refused.value.findings[0].field == "learning_rate"
    with pytest.raises(IllegalTransition):
        product.service.runs.retry(product.run_id, "resnet")
    product.service.runs.retry(product.run_id, "lenet", learning_rate=0.05)
    assert product.finish().state is State.COMPLETED
    assert product.hashes() == {name: alone(name) for name in EPOCHS}  # it had kept nothing, and began anew
    document = product.service.runs.document(product.run_id)
    assert document["status"] == "completed"
    assert document["submodels"]["lenet"]["cause"] is None  # type: ignore[index]
    assert product.view.spec["submodels"][0]["hyperparameters"]["learning_rate"] == 0.05  # type: ignore[index]


def test_too_little_memory_is_cured_by_a_batch_split_while_the_others_train_on(product: Product, alone: Alone) -> None:
    product.options(lanes=1, checkpoint={"every_s": 3600, "every_steps": 25})
    product.mishap("resnet", "out_of_memory", 7)
    product.start_and_hold("transformer", 30)
    product.until(lambda: product.state("resnet") is State.FAILED, "the failure")
    assert product.state() is State.RUNNING
    assert "batch split" in (product.row("resnet").remedy or "")
    product.until(lambda: product.row("resnet").checkpoint_step == 2, "the checkpoint")
    product.service.runs.retry(product.run_id, "resnet", batch_split=2)
    product.go_on()
    assert product.finish().state is State.COMPLETED
    assert_others_are_whole(product, alone, "resnet")
    assert (product.row("resnet").attempt, product.row("lenet").attempt) == (2, 1)
    assert product.lost_steps("resnet") == [6 - 2]
    assert product.row("resnet").steps_done == EPOCHS["resnet"] * STEPS_PER_EPOCH["resnet"]
    assert product.view.submodels[1].batch_split == 2


def test_a_retry_from_the_start_forgets_what_was_learnt(product: Product, alone: Alone) -> None:
    product.mishap("resnet", "raise", 15)
    product.start()
    assert_failed_alone(product, alone, "resnet", "RuntimeError: shapes do not fit", "full traceback")
    assert "shapes do not fit" in product.log()
    assert product.checkpoints("resnet")
    product.environment.clear()
    product.service.runs.retry(product.run_id, "resnet", from_start=True)
    assert product.finish().state is State.COMPLETED
    assert product.hashes() == {name: alone(name) for name in EPOCHS}
    assert product.lost_steps("resnet") == [14]


def test_a_retry_goes_on_from_the_last_checkpoint_with_the_same_bits(product: Product, alone: Alone) -> None:
    """Also where a new worker is needed for it, and where that one is killed at once."""
    product.options(lanes=1, checkpoint={"every_s": 3600, "every_steps": 50})
    product.mishap("resnet", "raise", 15)
    product.start()
    product.finish()
    product.until(lambda: product.row("resnet").checkpoint_step == 12, "the checkpoint")
    product.environment.clear()
    product.service.runs.retry(product.run_id, "resnet")
    product.start_and_hold("resnet", 18)
    product.signal_worker()
    product.go_on()
    assert product.finish().state is State.COMPLETED
    assert product.hashes() == {name: alone(name) for name in EPOCHS}
    assert product.lost_steps("resnet")[0] == 14 - 12


def test_an_endless_step_is_ended_with_its_worker(product: Product, alone: Alone) -> None:
    product.options(step_limit_s=2.0)
    product.mishap("lenet", "hang", 30)
    product.start()
    assert_failed_alone(product, alone, "lenet", "took longer than 2 s", "step_limit_s")
    assert all(sum(product.lost_steps(name)) < 30 for name in EPOCHS)


def test_data_that_change_in_memory_are_told_to_all_that_used_them(product: Product) -> None:
    """Those that ended before keep their models, in doubt; who trains on them at the end fails."""
    product.options(lanes=1)  # they end in one order
    product.mishap("transformer", "spoil", 40)
    product.start()
    view = product.finish()
    states = {part.name: (part.state, part.in_doubt) for part in view.submodels}
    done = (State.COMPLETED, True)
    assert states == {"lenet": (State.FAILED, False), "resnet": done, "transformer": done}  # lenet ends last
    for part in view.submodels:
        assert part.cause == f"The data set 'few_train.pt' changed in memory while {part.name} used it."
        assert part.remedy is not None and "cannot be trusted" in part.remedy
        assert part.cause in product.messages("error", part.name)[0]
        assert (part.artifact is None) is (part.name == "lenet")


KILLED = "5 workers in a row died at step 20 of transformer. Last:"
CRASHED = "3 workers in a row died at {} of transformer, in the operator aten.div.Tensor_mode. Last:"


@pytest.mark.parametrize(
    ("action", "step", "cause"),
    [
        pytest.param("die", 20, KILLED, marks=pytest.mark.long),
        pytest.param("divide", 20, CRASHED.format("step 20"), marks=pytest.mark.long),
        ("divide in evaluation", 23, CRASHED.format("evaluation after step 23")),
    ],
)
def test_a_network_at_which_workers_die_again_and_again_is_taken_out(
    product: Product, alone: Alone, action: str, step: int, cause: str
) -> None:
    """The first crash tells the step, the second one the operator; the third is the second one at that operator."""
    product.mishap("transformer", action, step)
    product.start()
    assert_failed_alone(product, alone, "transformer", cause, "batch split")
    crashes = product.log().count("Fatal Python error: Floating point exception")
    assert crashes == (0 if action == "die" else 3)
    product.service.runs.retry(product.run_id, "transformer", batch_split=2)
    assert product.finish().state is State.COMPLETED
    assert_others_are_whole(product, alone, "transformer")
