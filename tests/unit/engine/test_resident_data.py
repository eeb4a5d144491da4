import pytest
import torch

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import HOST, ResidentData

# A device without memory of its own stands in for a GPU: what lies there is not on the host.
DEVICE = torch.device("meta")


def dataset(device: str = "cpu") -> Dataset:
    return Dataset.of(inputs=torch.zeros(3, 2, device=device), targets=torch.zeros(3, device=device))


@pytest.fixture(autouse=True)
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be copied from that device; a new data set stands for the copy."""
    monkeypatch.setattr(Dataset, "to", lambda _, device: dataset(device.type))


def place(data: ResidentData, sha256: str) -> str:
    held = data.peek(sha256)
    assert held is not None
    return held.first.device.type


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


def test_a_checksum_tells_whether_the_bytes_are_those_that_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    data, dataset = ResidentData(HOST), Dataset.of(inputs=torch.arange(6.0).view(3, 2), targets=torch.arange(3))
    lease = data.hold("x", lambda: dataset)
    assert lease.use().checksum is not None
    assert lease.intact
    for held in (dataset.first, dataset.targets):
        held[0], held[1] = held[1].clone(), held[0].clone()  # the same numbers in another place
        assert not lease.intact
        held[0], held[1] = held[1].clone(), held[0].clone()
        assert lease.intact


@pytest.mark.parametrize("samples", [slice(1, 3), slice(2, 99), torch.tensor([2, 0])])
def test_a_batch_shares_no_memory_with_its_data_set(samples: slice | torch.Tensor) -> None:
    """Whatever the layout of the data: transposed, one row for all samples, channels last."""
    layouts = (
        torch.rand(4, 3).t(),
        torch.rand(1, 4).expand(3, 4),
        torch.rand(3, 2, 2, 2).to(memory_format=torch.channels_last),
    )
    for inputs in layouts:
        dataset = Dataset.of(inputs=inputs, targets=torch.arange(3))
        before = dataset.sha256()
        batch = dataset.batch(samples)
        for whole, part in zip((inputs, dataset.targets), (*batch.inputs.values(), batch.targets), strict=True):
            assert torch.equal(part, whole[samples])
            assert part.is_contiguous()
            part.zero_()
        assert dataset.sha256() == before


def test_who_lets_go_while_it_is_in_use_frees_the_device_too() -> None:
    data = ResidentData(DEVICE)
    one, two = data.hold("x", dataset), data.hold("x", dataset)
    one.use()
    one.release()
    assert place(data, "x") == "cpu"
    two.use()
    assert place(data, "x") == "meta"
