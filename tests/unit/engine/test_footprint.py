import pytest
import torch

from tests.integration.kit import Session, submodel_spec
from unifiednn_core.engine.submodel import stored_bytes
from unifiednn_core.machine import allocator
from unifiednn_core.machine.breakdown import Footprint
from unifiednn_core.scheduling.fcfs import FirstComeFirstServed


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


def test_memory_of_the_host_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(allocator, "release", lambda: given.append(0))
    networks = [("plain", submodel_spec(name)) for name in "ab"]
    session = Session(networks, FirstComeFirstServed())
    session.run()
    assert given.count(0) >= 2, "after each end"
