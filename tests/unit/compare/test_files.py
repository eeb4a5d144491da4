from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import TensorDataset

from tests.unit.compare.kit import data, job_in
from unifiednn_core.compare.vanilla import read_data, read_network, write_weights
from unifiednn_core.data.conversion import convert, is_needed
from unifiednn_core.formats.weights import host_copy, state_sha256


@pytest.mark.parametrize("container", ["pt", "safetensors", "npz"])
def test_data_are_read_by_their_bytes_and_keep_their_small_type(container: str, tmp_path: Path) -> None:
    path = tmp_path / "content"  # files by content have no suffix
    content = data() | {"targets": data()["targets"].to(torch.int32)}
    if container == "pt":
        torch.save(content, path)
    elif container == "safetensors":
        save_file(content, path)
    else:
        with path.open("wb") as file:
            np.savez(file, **{name: tensor.numpy() for name, tensor in content.items()})
    inputs, targets = read_data(str(path)).values()
    assert torch.equal(inputs, content["inputs"])
    assert inputs.dtype == torch.uint8
    assert torch.equal(targets, data()["targets"])
    assert targets.dtype == torch.int64


def test_targets_that_are_real_numbers_stay_so(tmp_path: Path) -> None:
    torch.save({"inputs": torch.zeros(2, 1), "targets": torch.rand(2)}, tmp_path / "content")
    assert read_data(str(tmp_path / "content"))["targets"].dtype == torch.float32


def test_the_network_has_the_weights_of_the_file(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    module, step = read_network(job, ["inputs", "targets"])
    assert step.plain
    assert module.training
    assert state_sha256(module.state_dict()) == state_sha256(load_file(job.model))


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="size mismatch"):
        read_network(job_in(tmp_path, architecture_args={"width": 6}), ["inputs"])


def test_tied_and_partial_weights_are_written_each_in_full(tmp_path: Path) -> None:
    module = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False), nn.BatchNorm1d(3)])
    module[1].weight = module[0].weight
    module.register_buffer("part", torch.arange(10.0)[2:5])
    module.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
    digest = write_weights(module, tmp_path / "weights.safetensors")
    assert digest == state_sha256(host_copy(module.state_dict()))
    assert digest == state_sha256(load_file(tmp_path / "weights.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["weights.safetensors"]


def test_several_inputs_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    rows = {"inputs.b": np.zeros((2, 1)), "targets": np.zeros(2), "inputs.a": np.ones((2, 1))}
    np.savez(tmp_path / "content.npz", **rows)
    assert list(read_data(str(tmp_path / "content.npz"))) == ["a", "b", "targets"]


def test_data_under_other_names_are_converted_because_a_script_would_not_know_them(tmp_path: Path) -> None:
    x, y = torch.ones(2, 1), torch.zeros(2, dtype=torch.int64)
    written = {"named": {"x": x, "y": y}, "pair": (x, y), "dataset": TensorDataset(x, y)}
    for name, content in written.items():
        torch.save(content, tmp_path / name)
        assert is_needed(tmp_path / name), name
        convert(tmp_path / name, tmp_path / "converted")
        assert list(read_data(str(tmp_path / "converted"))) == ["inputs", "targets"]
    torch.save({"inputs": x, "targets": y}, tmp_path / "plain")
    assert not is_needed(tmp_path / "plain")
