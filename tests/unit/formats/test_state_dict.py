import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput, HostileFile
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.registry import FORMATS, format_named, sniff
from unifiednn_core.formats.state_dict import SAFETENSORS, STATE_DICT, WeightsFormat
from unifiednn_core.spec.run import ArchitectureSpec

LENET = ArchitectureSpec(name="lenet", args={"batch_norm": True})
CONTAINERS = [STATE_DICT, SAFETENSORS]


def weights() -> dict[str, Tensor]:
    return dict(registry.build(LENET.name, LENET.args).state_dict())


def save(weights_format: Any, state_dict: Any, folder: Path, suffix: str | None = None) -> Path:
    path = folder / f"m{suffix or weights_format.suffixes[0]}"
    if weights_format is STATE_DICT:
        torch.save(state_dict, path)
    else:
        save_file(state_dict, path)
    return path


@pytest.mark.parametrize("weights_format", CONTAINERS)
def test_building_gives_the_weights_of_the_file_and_draws_no_random_number(
    weights_format: WeightsFormat, tmp_path: Path
) -> None:
    given = weights()
    definition = weights_format.read(save(weights_format, given, tmp_path), LENET)
    before = torch.get_rng_state()
    module = definition.build()
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(tensor, given[key]) for key, tensor in module.state_dict().items())
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())


@pytest.mark.parametrize("weights_format", CONTAINERS)
def test_without_an_architecture_the_finding_lists_the_known_ones(
    weights_format: WeightsFormat, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        weights_format.read(save(weights_format, weights(), tmp_path), None)
    (finding,) = caught.value.findings
    assert finding.field == "architecture"
    assert all(name in finding.remedy for name in registry.names())


def test_every_weight_that_does_not_fit_is_named(tmp_path: Path) -> None:
    given = weights()
    (first, second, third, *_) = given
    given["surplus"] = given.pop(first)
    given[second] = torch.zeros(2, 2)
    given[third] = given[third].double()
    with pytest.raises(BadInput) as caught:
        STATE_DICT.read(save(STATE_DICT, given, tmp_path), LENET)
    text = str(caught.value)
    assert {finding.title for finding in caught.value.findings} == {
        "Weights missing",
        "Weights unknown",
        "Weights differ",
    }
    assert all(f"'{key}'" in text for key in (first, second, third, "surplus"))


@pytest.mark.parametrize("content", [[1, 2], {}, {"state_dict": {}}, {1: torch.ones(1)}, {"a": 3}, torch.ones(2)])
def test_what_is_no_state_dict_is_a_finding(content: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="state dict"):
        STATE_DICT.read(save(STATE_DICT, content, tmp_path), LENET)


def test_a_pickled_network_is_a_finding_with_the_way_to_save_it(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "m.pt")
    with pytest.raises(BadInput) as caught:
        STATE_DICT.read(tmp_path / "m.pt", LENET)
    assert "state_dict()" in caught.value.findings[0].remedy


class Payload:
    def __init__(self, canary: Path):
        self.canary = canary

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, (str(self.canary),)


def test_a_payload_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    torch.save({"w": Payload(canary)}, tmp_path / "m.pt")
    with pytest.raises(BadInput):
        STATE_DICT.read(tmp_path / "m.pt", LENET)
    assert not canary.exists()


def test_a_few_bytes_that_claim_to_be_a_giant_tensor_are_refused(tmp_path: Path) -> None:
    given = weights()
    given[next(iter(given))] = torch.zeros(1).expand(10**6, 10**6)
    with pytest.raises(HostileFile, match="fewer bytes"):
        STATE_DICT.read(save(STATE_DICT, given, tmp_path), LENET)


@pytest.mark.parametrize("tensor", [torch.ones(2).to_sparse(), torch.ones(2, device="meta"), torch.ones(2) * 1j])
def test_only_plain_tensors_are_taken(tensor: Tensor, tmp_path: Path) -> None:
    with pytest.raises((HostileFile, BadInput)):
        STATE_DICT.read(save(STATE_DICT, {"w": tensor}, tmp_path), LENET)


@pytest.mark.parametrize("weights_format", CONTAINERS)
@pytest.mark.parametrize("kept", [0, 1, 100, 5000])
def test_a_file_that_is_cut_short_is_refused(weights_format: WeightsFormat, kept: int, tmp_path: Path) -> None:
    path = save(weights_format, weights(), tmp_path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises((BadInput, HostileFile)):
        weights_format.read(path, LENET)


def test_a_delivery_loads_in_a_fresh_process_from_its_own_files_alone(tmp_path: Path) -> None:
    given, scripts = weights(), {}
    for weights_format, suffix in ((STATE_DICT, ".pt"), (STATE_DICT, ".pth"), (SAFETENSORS, ".safetensors")):
        definition = weights_format.read(save(weights_format, given, tmp_path, suffix), LENET)
        folder = tmp_path / f"out{suffix}"
        folder.mkdir()
        delivery = weights_format.write(definition, given, folder, "trained")
        plain = ["trained.pt"] if suffix == ".safetensors" else []  # what torch alone can load
        assert [path.name for path in delivery.files] == [f"trained{suffix}", "architecture.py", *plain]
        scripts[str(folder)] = delivery.load_script
    script = f"""
import os, sys, torch
for folder, script in {scripts!r}.items():
    os.chdir(folder)
    sys.path[0] = folder
    sys.modules.pop("architecture", None)
    found = {{}}
    exec(script, found)
    assert not found["model"].training
    torch.save(found["model"].state_dict(), "found")
assert not any(name.startswith("unifiednn") for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for folder in scripts:
        found = torch.load(Path(folder) / "found")
        assert all(torch.equal(found[key], tensor) for key, tensor in given.items())


def test_an_unknown_format_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(BadInput) as caught:
        format_named("onnx")
    assert all(known.name in caught.value.findings[0].remedy for known in FORMATS)


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x80\x04.", b"\x10\0\0\0\0\0\0\0{"])
def test_no_format_knows_foreign_bytes(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(content)
    assert sniff(tmp_path / "m.pt2") is None
