"""Formats of other packages join ours, by entry point or in one process."""

import struct
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.unit.plugins import install
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import registry
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.testing.formats import check_format

MODULE = """
from pathlib import Path
import torch
from torch import nn
from unifiednn_core.formats.base import Definition, Delivery

MAGIC = b"TOY1"

class Toy:
    \"\"\"A linear layer of 4 inputs and 2 outputs as ten raw numbers.\"\"\"

    name, suffixes = "toy", (".toy",)

    def sniff(self, path):
        with path.open("rb") as file:
            return file.read(4) == MAGIC

    def read(self, path, architecture):
        def build():
            with torch.random.fork_rng(devices=[]):
                module = nn.Linear(4, 2)
            module.load_state_dict(self.read_state_dict(path))
            return module
        return Definition(format=self.name, path=path, build=build, parameters=10, weights_bytes=40)

    def write(self, definition, state_dict, folder, stem):
        path = folder / f"{stem}.toy"
        path.write_bytes(MAGIC + b"".join(state_dict[name].numpy().tobytes() for name in ("weight", "bias")))
        return Delivery(files=(path,), load_script="import torch")

    def read_state_dict(self, path):
        numbers = torch.frombuffer(bytearray(path.read_bytes()[4:]), dtype=torch.float32)
        return {"weight": numbers[:8].reshape(2, 4).clone(), "bias": numbers[8:].clone()}

class Clumsy(Toy):
    name = "clumsy"
    def sniff(self, path):
        raise RuntimeError("a bug")

class Impostor:
    name, suffixes = "impostor", (".toy",)

class Double(Toy):
    name = "pt2"
"""


@pytest.fixture
def clean() -> Iterator[None]:
    """Forget what a test adds to the registry."""
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()
    registry._REGISTERED.clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean: None) -> Path:
    """Another package, as pip installs it, with one good format and three that cannot be used."""
    points = {"toy": "Toy", "impostor": "Impostor", "double": "Double", "gone": "Gone"}
    install(tmp_path, "toy_format", MODULE, registry.ENTRY_POINTS, points)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = tmp_path / "model.toy"
    model.write_bytes(b"TOY1" + struct.pack("<10f", *range(10)))
    return model


def test_a_format_of_another_package_reads_files_like_ours(installed: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = registry.sniff(installed)
    assert found is not None
    assert [known.name for known in registry.formats()] == [*(known.name for known in registry.FORMATS), "toy"]
    assert [record.getMessage() for record in caplog.records] == [
        f"The model format '{name}' (toy_format:{cls}) cannot be used."
        for name, cls in (("impostor", "Impostor"), ("double", "Double"), ("gone", "Gone"))
    ]
    check_format(found, installed)


def test_a_format_that_fails_to_recognise_a_file_stops_no_other(
    installed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry.register_format(import_module("toy_format").Clumsy)
    installed.write_bytes(b"foreign")
    assert registry.sniff(installed) is None
    assert caplog.records[-1].getMessage() == "The model format 'clumsy' failed on model.toy."


def test_an_unknown_name_and_an_unknown_file_are_answered_with_all_formats(installed: Path) -> None:
    with pytest.raises(BadInput) as caught:
        registry.format_named("onnx")
    assert caught.value.findings[0].remedy.endswith("module, huggingface, toy.")
    foreign = installed.with_name("foreign")
    foreign.write_bytes(b"\0\1\2")
    assert ".toy" in registry.unknown(foreign).findings[0].remedy


def test_a_notebook_registers_a_format_in_its_process(clean: None) -> None:
    class Mine(ExportedFormat):
        name = "mine"

    assert registry.register_format(Mine) is Mine
    assert registry.format_named("mine").name == "mine"
    with pytest.raises(ValueError, match="'pt2' is taken"):
        registry.register_format(ExportedFormat)
    with pytest.raises(TypeError, match="is not a format"):
        registry.register_format(Path)  # type: ignore[type-var]
