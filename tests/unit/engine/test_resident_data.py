import pytest
import torch

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import resident_data as resident
from unifiednn_core.engine.resident_data import ResidentData

# A device without memory of its own stands in for a GPU: what lies there is not on the host.
DEVICE = torch.device("meta")


def dataset(device: str = "cpu") -> Dataset:
    return Dataset(inputs=torch.zeros(3, 2, device=device), targets=torch.zeros(3, device=device))


@pytest.fixture(autouse=True)
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be copied from that device; a new data set stands for the copy."""
    monkeypatch.setattr(resident, "_moved", lambda _, device: dataset(device.type))


def place(data: ResidentData, sha256: str) -> str:
    held = data.peek(sha256)
    assert held is not None
    return held.inputs.device.type


def test_a_data_set_is_read_once_and_lies_on_the_device_while_it_is_used() -> None:
    data, reads = ResidentData(DEVICE), []

    def read() -> Dataset:
        reads.append(1)
        return dataset()

    one, two = data.hold("x", read), data.hold("x", read)
    assert (len(reads), one.samples, place(data, "x")) == (1, 3, "cpu"), "nothing trains yet"
    assert one.use() is two.use() or place(data, "x") == "meta"
    one.park()
    assert place(data, "x") == "meta", "the other one still learns from it"
    two.park()
    assert place(data, "x") == "cpu"
    one.release()
    assert data.peek("x") is not None
    two.release()
    two.release()
    assert data.peek("x") is None


def test_who_lets_go_while_it_is_in_use_frees_the_device_too() -> None:
    data = ResidentData(DEVICE)
    one, two = data.hold("x", dataset), data.hold("x", dataset)
    one.use()
    one.release()
    assert place(data, "x") == "cpu"
    two.use()
    assert place(data, "x") == "meta"
