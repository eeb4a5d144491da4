"""The tables of choices, held against torch as it is installed."""

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lr_schedulers

from unifiednn_core.base.errors import BadInput
from unifiednn_core.engine.optimizers import build_criterion, build_lr_scheduler, build_optimizer
from unifiednn_core.spec.choices import (
    CLASSIFICATION,
    CRITERIA,
    LR_SCHEDULERS,
    NO_CRITERION,
    OPTIMIZERS,
    REFUSED_CRITERIA,
    REFUSED_LR_SCHEDULERS,
    REFUSED_OPTIMIZERS,
    Argument,
    Choice,
)
from unifiednn_core.spec.run import Hyperparameters, parse_hyperparameters

# What is not offered: what the loop itself gives, how torch computes (the profile says that), functions, old names.
NOT_OFFERED = {
    "params",
    "optimizer",
    "lr",
    "foreach",
    "fused",
    "capturable",
    "differentiable",
    "last_epoch",
    "size_average",
    "reduce",
    "reduction",
    "scale_fn",
    "epochs",
    "steps_per_epoch",
    "mode",
}
NEEDED: dict[str, dict[str, Any]] = {
    "cosine": {"T_max": 3},
    "step": {"step_size": 2},
    "multi_step": {"milestones": [1, 2]},
    "exponential": {"gamma": 0.9},
    "one_cycle": {"max_lr": 0.1, "total_steps": 9},
    "cosine_warm_restarts": {"T_0": 2},
    "cyclic": {"base_lr": 0.01, "max_lr": 0.1},
}
ROOMS: dict[str, tuple[Mapping[str, Choice], object]] = {
    "optimizer": (OPTIMIZERS, torch.optim),
    "criterion": (CRITERIA, nn),
    "lr_scheduler": (LR_SCHEDULERS, lr_schedulers),
}
EVERY = [(kind, name) for kind, (table, _) in ROOMS.items() for name in table if name != NO_CRITERION]


def classes_in(room: object, base: type, ending: str = "") -> set[str]:
    found = {name: value for name, value in vars(room).items() if inspect.isclass(value) and issubclass(value, base)}
    return {name for name in found if name.endswith(ending) and not name.startswith("_")} - {base.__name__}


@pytest.mark.parametrize(
    ("table", "refused", "of_torch"),
    [
        (OPTIMIZERS, REFUSED_OPTIMIZERS, classes_in(torch.optim, torch.optim.Optimizer)),
        (LR_SCHEDULERS, REFUSED_LR_SCHEDULERS, classes_in(lr_schedulers, lr_schedulers.LRScheduler)),
        (CRITERIA, REFUSED_CRITERIA, classes_in(nn, nn.Module, "Loss")),
    ],
    ids=["optimizers", "LR schedulers", "criteria"],
)
def test_everything_that_torch_has_is_offered_or_refused_with_a_reason(
    table: Mapping[str, Choice], refused: Mapping[str, str], of_torch: set[str]
) -> None:
    offered = {choice.torch_class for choice in table.values()} - {CRITERIA[NO_CRITERION].torch_class}
    offered |= {"SequentialLR"} if table is LR_SCHEDULERS else set()
    assert not offered & refused.keys()
    assert offered | refused.keys() == of_torch


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_arguments_have_torch_s_names_and_defaults_and_none_is_forgotten(kind: str, name: str) -> None:
    table, room = ROOMS[kind]
    choice = table[name]
    signature = inspect.signature(getattr(room, choice.torch_class)).parameters
    offered = {argument.name: argument for argument in choice.arguments}
    assert signature.keys() - NOT_OFFERED <= offered.keys() <= signature.keys()
    assert choice.help
    for argument in choice.arguments:
        default = signature[argument.name].default
        if default is inspect.Parameter.empty:
            assert argument.required
        else:
            assert argument.default == default
        assert argument.required or argument.default is None or argument.accepts(argument.default)


def candidates(argument: Argument) -> list[object]:
    """Values around everything that the table says of an argument."""
    bounds = [bound for bound in (argument.least, argument.most, argument.above, argument.below) if bound is not None]
    whole = argument.kind in ("integer", "integers")
    single = [near for bound in (*bounds, 0.5, 1, 3) for near in (bound - 1, bound - 0.25, bound, bound + 0.25)]
    single = [int(value) if whole else float(value) for value in single]
    if argument.kind in ("numbers", "integers"):
        return [[value] * (argument.length or 2) for value in single] + [argument.default]
    return [*single, True, False, None, *argument.options, "no such word", float("nan"), float("inf")]


def build(kind: str, name: str, args: dict[str, Any]) -> object:
    """What the product makes of it."""
    if kind == "criterion":
        return build_criterion(parse_hyperparameters({"criterion": name, "criterion_args": args}))
    parameters = [("w", nn.Parameter(torch.ones(2, 2)))]
    if kind == "optimizer":
        return build_optimizer(parameters, parse_hyperparameters({"optimizer": name, "optimizer_args": args}))
    hyperparameters = parse_hyperparameters({"lr_scheduler": {"name": name, "args": args}})
    return build_lr_scheduler(build_optimizer(parameters, Hyperparameters()), hyperparameters)


# Pairs that torch holds against each other; its own complaint becomes a finding of the dry run.
TOGETHER = {("optimizer", "sgd", "nesterov"), ("optimizer", "rprop", "etas")}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_what_the_table_accepts_torch_takes_and_the_rest_is_a_finding_at_the_argument(kind: str, name: str) -> None:
    choice = ROOMS[kind][0][name]
    assert build(kind, name, NEEDED.get(name, {}))
    field = "lr_scheduler.args" if kind == "lr_scheduler" else f"{kind}_args"
    for argument in choice.arguments:
        for value in candidates(argument):
            args = {**NEEDED.get(name, {}), argument.name: value}
            if not argument.accepts(value):
                with pytest.raises(BadInput) as raised:
                    build(kind, name, args)
                [finding] = raised.value.findings
                assert finding.field == f"{field}.{argument.name}"
                assert argument.takes in str(finding)
            elif (kind, name, argument.name) not in TOGETHER:
                assert build(kind, name, args)


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_the_name_of_torch_s_class_is_the_short_name(kind: str, name: str) -> None:
    torch_class, args = ROOMS[kind][0][name].torch_class, NEEDED.get(name, {})
    if kind == "lr_scheduler":
        asked = parse_hyperparameters({"lr_scheduler": {"name": torch_class, "args": args}}).lr_scheduler
        assert asked is not None and asked.name == name
    else:
        assert getattr(parse_hyperparameters({kind: torch_class}), kind) == name


@pytest.mark.parametrize(
    ("document", "said"),
    [
        *(({"optimizer": name}, reason) for name, reason in REFUSED_OPTIMIZERS.items()),
        *(({"criterion": name.lower()}, reason) for name, reason in REFUSED_CRITERIA.items()),
        *(({"lr_scheduler": {"name": name}}, reason) for name, reason in REFUSED_LR_SCHEDULERS.items()),
    ],
)
def test_what_cannot_be_offered_is_refused_with_the_reason(document: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_hyperparameters(document)
    assert said in str(raised.value)


def test_class_weights_are_tensors_of_the_criterion() -> None:
    built = build_criterion(parse_hyperparameters({"criterion_args": {"weight": [1, 2.5]}}))
    assert torch.equal(dict(built.named_buffers())["weight"], torch.tensor([1.0, 2.5]))


def test_there_is_an_accuracy_where_targets_are_classes() -> None:
    assert {"cross_entropy", "nll", "multi_margin"} == CLASSIFICATION


def spans() -> list[str]:
    return [name for name, choice in LR_SCHEDULERS.items() if choice.span]


@pytest.mark.parametrize("name", spans())
def test_an_lr_scheduler_does_after_its_span_what_the_table_says(name: str) -> None:
    choice = LR_SCHEDULERS[name]
    asked = parse_hyperparameters({"lr_scheduler": {"name": name, "args": NEEDED[name]}})
    span = NEEDED[name][choice.span]
    assert asked.failing_after == ((choice.torch_class, choice.span, span) if choice.afterwards == "fails" else None)
    optimizer = build_optimizer([("w", nn.Parameter(torch.ones(2, 2)))], asked)
    lr_scheduler = build_lr_scheduler(optimizer, asked)
    assert lr_scheduler is not None
    optimizer.step()
    for _ in range(span):
        lr_scheduler.step()
    last = optimizer.param_groups[0]["lr"]
    if choice.afterwards == "fails":
        with pytest.raises(ValueError, match="total"):
            lr_scheduler.step()
    else:
        lr_scheduler.step()
        assert optimizer.param_groups[0]["lr"] > last


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_table_says_which_optimizer_takes_its_learning_rate_once(name: str) -> None:
    moved = []
    for factor in (1, 10):
        weight = nn.Parameter(torch.full((2, 2), 0.5))
        optimizer = build_optimizer([("w", weight)], parse_hyperparameters({"optimizer": name}))
        for step in range(3):
            weight.grad = torch.eye(2) + step
            optimizer.step()
            if step == 0:
                optimizer.param_groups[0]["lr"] *= factor
        moved.append(weight.detach().clone())
    assert torch.equal(*moved) == OPTIMIZERS[name].rate_once


def test_lists_of_numbers_become_what_torch_takes() -> None:
    """Adam refuses betas of which one is a whole number."""
    asked = parse_hyperparameters({"optimizer": "adam", "optimizer_args": {"betas": [0, 0.5]}})
    assert asked.optimizer_args == {"betas": [0.0, 0.5]}
    assert build_optimizer([("w", nn.Parameter(torch.ones(2, 2)))], asked)
