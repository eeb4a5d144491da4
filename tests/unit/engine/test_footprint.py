import gc

import pytest
import torch
from torch import nn

from tests.integration.kit import Session, submodel_spec
from unifiednn_core.engine.events import Ended, Released, Report, Stepped
from unifiednn_core.engine.submodel import stored_bytes
from unifiednn_core.machine import allocator
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed
from unifiednn_core.scheduling.round_robin import RoundRobin

EPOCHS = {"a": 1, "b": 3}


def test_what_shares_storage_counts_once() -> None:
    whole = torch.zeros(10)
    assert stored_bytes([whole, whole[2:], whole.view(2, 5), torch.zeros(3, dtype=torch.int64)]) == 40 + 24
    assert stored_bytes([]) == 0


@pytest.mark.parametrize(
    ("optimizer", "args", "of_weights"), [("sgd", {}, 0), ("sgd", {"momentum": 0.9}, 1), ("adam", {}, 2)]
)
def test_the_footprint_is_exact_to_the_byte(optimizer: str, args: dict[str, float], of_weights: int) -> None:
    spec = submodel_spec("a", optimizer=optimizer, optimizer_args=args)
    [submodel] = Session([("plain", spec)], FirstComeFirstServed()).hybrid.submodels
    weights_bytes = sum(parameter.nbytes for parameter in submodel.module.parameters())
    assert submodel.footprint == Footprint(weights_bytes)
    with submodel.world():
        assert submodel.footprint == Footprint(weights_bytes, weights_bytes, 0, placed=True)
        submodel.step()
        assert submodel.footprint.gradients_bytes == weights_bytes
    counters = 4 * len(list(submodel.module.parameters())) if optimizer == "adam" else 0  # on the host, as are all here
    assert submodel.footprint == Footprint(weights_bytes, 0, of_weights * weights_bytes + counters, placed=True)


def test_idle_ones_hold_no_gradients_and_ended_ones_nothing() -> None:
    seen: list[tuple[Report, dict[str, Footprint]]] = []
    networks = [("plain", submodel_spec(name, optimizer="adam", epochs=epochs)) for name, epochs in EPOCHS.items()]
    policy = RoundRobin(unit="steps", amount=2)
    Session(networks, policy, lambda session, report: seen.append((report, session.engine.footprints()))).run()
    ended: set[str] = set()
    stepped: set[str] = set()
    for report, footprints in seen:
        match report:
            case Stepped(submodel=name):
                stepped.add(name)
                assert footprints[name].gradients_bytes > 0
                assert footprints[name].optimizer_bytes > 2 * footprints[name].weights_bytes
                assert all(not footprints[other].gradients_bytes for other in footprints if other != name)
            case Released():
                assert all(not footprint.gradients_bytes for footprint in footprints.values())
            case Ended(submodel=name):
                ended.add(name)
        assert not ended & footprints.keys()
        assert all(not footprint.optimizer_bytes for name, footprint in footprints.items() if name not in stepped)
    assert ended == {"a", "b"}


def test_the_tensors_of_an_ended_sub_model_are_free_before_the_next_one_steps() -> None:
    """Despite the reference cycles of networks, LR schedulers and optimizers, and without garbage collection."""
    sizes: dict[str, list[int]] = {"a": [], "b": []}
    modules: dict[str, nn.Module] = {}

    def look(session: Session, report: Report) -> None:
        for name in session.hybrid.names:
            modules[name] = session.hybrid.submodel(name).module
        if isinstance(report, Stepped):
            for name, module in modules.items():
                sizes[name].append(stored_bytes([*module.parameters(), *module.buffers()]))

    gc.disable()
    try:
        networks = [
            ("plain", submodel_spec(name, lr_scheduler={"name": "step", "args": {"step_size": 1}})) for name in "ab"
        ]
        session = Session(networks, FirstComeFirstServed(), look)
        session.engine._free_on_end = True  # as that of a worker
        session.run()
    finally:
        gc.enable()
    of_a = sum(isinstance(report, Stepped) and report.submodel == "a" for report in session.reports)
    assert all(sizes["a"][:of_a])
    assert not any(sizes["a"][of_a:]), "its memory is free at once"
    assert session.data.placed_bytes == 0


def test_memory_of_the_host_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(allocator, "release", lambda: given.append(0))
    networks = [("plain", submodel_spec(name)) for name in "ab"]
    session = Session(networks, FirstComeFirstServed())
    session.run()
    assert given.count(0) >= 2, "after each end"
