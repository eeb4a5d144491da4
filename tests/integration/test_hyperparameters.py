"""Each thing that hyper-parameters can ask for, tried by itself in the engine."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.integration.kit import CPU, Session, dataset, submodel_spec
from tests.integration.vanilla_loop import Trained
from tests.unit.engine.start_kit import definition_of
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.events import Captured, Stepped
from unifiednn_core.engine.optimizers import build_criterion
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.spec.choices import CRITERIA
from unifiednn_core.spec.lifecycle import Event
from unifiednn_core.spec.run import CheckpointSpec, Hyperparameters, SubModelSpec

OUTPUTS = 4
LAST: dict[str, Callable[[], nn.Module]] = {
    "nll": lambda: nn.LogSoftmax(1),
    "kl_div": lambda: nn.LogSoftmax(1),
    "bce": nn.Sigmoid,
}
ARGS: dict[str, dict[str, Any]] = {
    "cosine": {"T_max": 2},
    "step": {"step_size": 1},
    "multi_step": {"milestones": [1]},
    "exponential": {"gamma": 0.5},
    "one_cycle": {"max_lr": 0.1, "total_steps": 10},
    "cosine_warm_restarts": {"T_0": 1},
    "cyclic": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 2},
    "reduce_on_plateau": {"patience": 0, "threshold": 0.5},
    "warmup_cosine": {"num_warmup_steps": 2, "num_training_steps": 8},
    "warmup_linear": {"num_warmup_steps": 3, "num_training_steps": 7},
    "warmup_polynomial": {"num_warmup_steps": 1, "num_training_steps": 6, "power": 2.0},
    "warmup_constant": {"num_warmup_steps": 2},
    "cross_entropy": {"weight": [1, 2, 3, 0.5], "label_smoothing": 0.1},
    "bce_with_logits": {"pos_weight": [1, 2, 3, 0.5]},
    "kl_div": {"reduction": "batchmean"},
}


def network(criterion: str) -> nn.Sequential:
    """A network of matrices alone, which every optimizer takes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layers = nn.Flatten(), nn.Linear(36, 6, bias=False), nn.Tanh(), nn.Linear(6, OUTPUTS, bias=False)
        return nn.Sequential(*layers, *([LAST[criterion]()] if criterion in LAST else []))


def data_for(criterion: str, samples: int = 37, seed: int = 0) -> Dataset:
    """Data whose targets are what the criterion takes."""
    data = dataset(samples, seed)
    generator = torch.Generator().manual_seed(seed)
    shares = torch.rand(samples, OUTPUTS, generator=generator)
    targets = {
        "classes": data.targets,
        "values": shares / shares.sum(1, keepdim=True),
        "shares": shares.round(),
        "signs": shares.round() * 2 - 1,
        "counts": (shares * 5).round(),
        "lists": torch.stack([data.targets, *[torch.full((samples,), -1)] * (OUTPUTS - 1)], 1),
    }
    return Dataset.of(inputs=data.first, targets=targets[CRITERIA[criterion].targets])


def train(
    hyper: Hyperparameters, train_data: Dataset, test_data: Dataset | None, checkpoint: CheckpointSpec | None = None
) -> tuple[Trained, Session]:
    data = ResidentData(CPU)
    test = None if test_data is None else data.hold("test", lambda: test_data)
    spec = SubModelSpec(name="x", model="m", train_data="d", hyperparameters=hyper)
    held, definition = data.hold("train", lambda: train_data), definition_of(partial(network, hyper.criterion))
    one = SubModel(spec, definition, seed=hyper.seed or 0, train=held, test=test, device=CPU)
    session = Session((), FirstComeFirstServed(), ready=[one], checkpoint=checkpoint).run()
    return Trained(one.module, one.optimizer, one.lr_scheduler, session.losses("x")), session


def asked(**changes: Any) -> Hyperparameters:
    given = {"epochs": 2, "batch_size": 8, "seed": 3, "learning_rate": 0.05, "optimizer_args": {}}
    if "optimizer" not in changes:
        given["optimizer_args"] = {"momentum": 0.5}
    return Hyperparameters.model_validate({**given, **changes})


def pair(data: Dataset) -> tuple[Tensor, Tensor]:
    return data.first, data.targets


def test_checkpoints_lie_between_steps_and_hold_no_gradient() -> None:
    data = data_for("cross_entropy")
    every = CheckpointSpec(every_steps=1)
    trained, session = train(asked(accumulation_steps=2, epochs=1), data, None, every)
    taken = [report.checkpoint for report in session.of(Captured)]
    assert [(one.step, one.state["data"]["cursor"]) for one in taken] == [(1, 16), (2, 32)]
    assert all(parameter.grad is None for parameter in trained.module.parameters())


def test_a_warm_up_is_a_share_of_what_the_lr_scheduler_says() -> None:
    schedule = {"name": "step", "args": {"step_size": 1, "gamma": 0.5}}
    _, session = train(asked(epochs=4, warm_up={"steps": 15}, lr_scheduler=schedule), data_for("cross_entropy"), None)
    assert [row.learning_rate for row in session.epochs("x")] == [0.05 * (5 / 15), 0.025 * (10 / 15), 0.0125, 0.00625]


@pytest.mark.parametrize("with_test", [True, False])
def test_a_plateau_is_seen_in_the_test_loss_or_without_it_in_that_of_the_training(with_test: bool) -> None:
    schedule = {"name": "ReduceLROnPlateau", "args": {"patience": 0, "factor": 0.5, "threshold": 0.9}}
    data, test = data_for("cross_entropy"), data_for("cross_entropy", 20, seed=1)
    trained, session = train(asked(epochs=3, lr_scheduler=schedule), data, test if with_test else None)
    rows = session.epochs("x")
    assert trained.lr_scheduler is not None
    best = rows[0].test_loss if with_test else rows[0].train_loss
    assert trained.lr_scheduler.state_dict()["best"] == best
    assert [row.learning_rate for row in rows] == [0.05, 0.05, 0.025]


STOPPING = {"metric": "test_loss", "patience": 2, "min_delta": 100.0}


def test_a_training_that_improves_no_more_is_complete_before_its_last_epoch() -> None:
    data, test = data_for("cross_entropy"), data_for("cross_entropy", 20, seed=1)
    trained, session = train(asked(epochs=9, early_stopping=STOPPING), data, test)
    end = session.ended["x"]
    assert (end.event, end.cause, len(session.epochs("x"))) == (Event.COMPLETE, None, 3)
    assert end.checkpoint is not None and end.checkpoint.epoch == 3
    assert trained.bits() == train(asked(epochs=3), data, test)[0].bits()


def test_one_that_has_stopped_is_complete_at_once_where_it_goes_on_from_its_last_checkpoint() -> None:
    networks = [("mlp", submodel_spec("a", epochs=9, early_stopping=STOPPING))]
    first = Session(networks, FirstComeFirstServed()).run()
    [end] = first.ended.values()
    assert end.checkpoint is not None
    again = Session(networks, FirstComeFirstServed(), restored={"a": end.checkpoint}).run()
    assert (again.steps, again.ended["a"].event) == (0, Event.COMPLETE)
    assert again.hashes() == first.hashes()
    other = [("mlp", submodel_spec("a", epochs=9, early_stopping=STOPPING | {"metric": "train_loss"}))]
    anew = Session(other, FirstComeFirstServed(), restored={"a": end.checkpoint}).run()
    assert [row.epoch for row in anew.epochs("a")] == [4, 5, 6], "another metric is judged from its first epoch on"


@pytest.mark.parametrize("given", [True, False])
def test_answers_that_are_to_be_ignored_count_neither_in_accuracy_nor_in_loss(given: bool) -> None:
    """Also with torch's default of -100; batches of 8 have 8 or fewer answers that count."""
    data, label = data_for("cross_entropy"), 9 if given else -100
    hidden = Dataset.of(inputs=data.first, targets=torch.where(torch.arange(37) % 3 < 2, data.targets, label))
    args = {"criterion_args": {"ignore_index": label}} if given else {}
    hyper = asked(**args, batch_size=8, epochs=1, learning_rate=1e-9)
    trained, session = train(hyper, hidden, hidden)
    [row] = session.epochs("x")
    counts = hidden.targets != label
    outputs, targets = trained.module.eval()(data.first[counts]), data.targets[counts]
    assert row.test_accuracy == row.train_accuracy == (outputs.argmax(1) == targets).sum().item() / len(targets)
    assert row.test_loss == pytest.approx(nn.functional.cross_entropy(outputs, targets).item(), rel=1e-6)
    assert sum(report.labels for report in session.of(Stepped)) == len(targets) == 25


def test_outputs_that_are_no_probabilities_fail_before_a_gpu_ends_the_process() -> None:
    criterion = build_criterion(asked(criterion="bce"))
    right, targets = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0])
    assert criterion(right, targets) == 0
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match="between 0 and 1"):
            criterion(torch.tensor([0.0, wrong]), targets)
