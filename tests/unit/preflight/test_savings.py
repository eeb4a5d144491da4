"""The check says what techniques save by leaving them out, and warns of one that saves nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.unit.preflight.test_need import definition
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight import technique_check
from unifiednn_core.preflight.check import least_part_of, measured_times
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.measure import measure
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial, Tried
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.build import NONE

DATA = Dataset.of(torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(32) % 4)


def convolutions() -> nn.Module:
    deep = [layer for _ in range(8) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
    return nn.Sequential(nn.Conv2d(1, 8, 1), nn.ReLU(), *deep, nn.Flatten(), nn.Linear(512, 4))


def smooth() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def trial_of(network: nn.Module, *techniques: object) -> Trial:
    hyper = {"batch_size": 32, "techniques": list(techniques)}
    document = {"name": "one", "model": "m", "train_data": "d", "hyperparameters": hyper}
    return Trial(SubModelSpec.model_validate(document), definition(network), DATA, None)


def measured(trial: Trial, tried: Tried) -> MemoryNeed:
    return measure(trial, tried, "cpu", ["d"])


def test_what_a_technique_saves_is_the_difference_to_a_step_without_it():
    trial = trial_of(convolutions(), "compression")
    tried = dry_run(trial)
    memory, found = measured(trial, tried), technique_check.without(trial, tried, measured)
    plain = trial_of(convolutions())
    assert found.memory == measured(plain, dry_run(plain))
    assert found.transient_bytes > 1.1 * memory.transient_bytes
    assert found.without_one == {"compression": found.transient_bytes}
    assert technique_check.useless(trial, memory, found) == []


def test_a_technique_without_use_is_told_with_the_remedy():
    trial = trial_of(smooth(), "compression")
    tried = dry_run(trial)
    memory, found = measured(trial, tried), technique_check.without(trial, tried, measured)
    [told] = technique_check.useless(trial, memory, found)
    assert (told.severity, told.remedy) == ("warning", "Leave it out.")
    assert told.field == "submodels.one.hyperparameters.techniques"
    assert told.fix is not None and (told.fix.verb, told.fix.value) == ("remove", "compression")
    assert told.message.startswith("Activation compression ")


def test_dropit_promises_nothing_where_relu_keeps_what_it_drops():
    def told(**asked: object) -> list[tuple[str, str]]:
        trial = trial_of(convolutions(), {"name": "dropit", "keep": 0.1, **asked})
        tried = dry_run(trial)
        memory, found = measured(trial, tried), technique_check.without(trial, tried, measured)
        return [(one.message, one.remedy) for one in technique_check.useless(trial, memory, found)]

    [(message, remedy)] = told(form="published")
    assert message.startswith("DropIT makes the temporary memory of a step of one larger (")
    assert remedy == 'Leave it out, or set "form" to "deduplicated".'
    assert told() == []


def test_a_sub_model_without_its_techniques_is_one_that_never_had_any():
    trial = trial_of(convolutions(), {"name": "compression", "bfloat16": True})
    left, tried = technique_check.left_out(trial, dry_run(trial))
    assert left.spec == trial_of(convolutions()).spec
    assert tried.techniques == NONE and dry_run(trial).techniques.active


@pytest.mark.parametrize("saves, told", [("step", 1), ("rest", 0)])
def test_what_saves_between_turns_is_not_judged_by_a_step(saves, told, monkeypatch):
    trial = trial_of(smooth(), "compression")
    tried = dry_run(trial)
    monkeypatch.setattr(type(trial.spec.hyperparameters.techniques[0]), "saves", saves)
    memory, found = measured(trial, tried), technique_check.without(trial, tried, measured)
    assert len(technique_check.useless(trial, memory, found)) == told


def test_virtual_nodes_need_the_memory_of_their_largest_share_and_of_as_many_as_compute_at_once():
    def memory(network: Callable[[], nn.Module] = convolutions, **asked: object) -> MemoryNeed:
        trial = trial_of(network(), {"name": "virtual_nodes", **asked})
        return measure(trial, dry_run(trial), "cpu", ["d"])

    whole, equal, unequal = memory(nodes=1), memory(nodes=4), memory(nodes=4, shares=[5, 1, 1, 1])
    plain = trial_of(convolutions())
    split = measure(plain, dry_run(plain), "cpu", ["d"]).changed(batch_split=4)
    assert equal.transient_bytes == split.transient_bytes
    assert equal.transient_bytes < 0.4 * whole.transient_bytes
    assert equal.transient_bytes < unequal.transient_bytes < whole.transient_bytes
    two = memory(nodes=4, devices=2)
    assert two.transient_bytes == 2 * equal.transient_bytes + equal.gradients_bytes
    assert memory(nodes=4, devices=9).transient_bytes == two.with_devices(4).transient_bytes
    in_turn = memory(lambda: nn.Sequential(convolutions(), nn.Dropout(0.5)), nodes=4, devices=2)
    assert in_turn.with_devices(1).transient_bytes == in_turn.transient_bytes


@pytest.mark.parametrize("small, least", [(nn.Identity(), 1), (nn.BatchNorm1d(4), 2), (nn.BatchNorm2d(1), 1)])
def test_a_check_finds_out_how_small_a_part_may_be_and_how_long_one_takes(small: nn.Module, least: int):
    first = [small] if isinstance(small, nn.BatchNorm2d) else []
    last = [] if first else [small]
    network = nn.Sequential(*first, nn.Flatten(), nn.Linear(64, 4), *last)
    trial = trial_of(network, {"name": "virtual_nodes", "nodes": 2, "shares": "measured", "devices": 3})
    tried = dry_run(trial)
    times = measured_times(trial, tried)
    assert [set(table) for table in times] == 3 * [{8, 16, 32}]
    assert all(time > 0 for table in times for time in table.values())
    assert least_part_of(trial, tried) == least
    assert measured_times(trial_of(smooth(), "virtual_nodes"), tried) == ()
