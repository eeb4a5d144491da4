"""What people hand in by mistake: each gives findings and exit code 2, and nothing half-written stays behind."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.cli_kit import unifiednn
from unifiednn_core.base.paths import Home

Document = dict[str, Any]
Mistake = Callable[[Document, Path], None]


def lenet(document: Document) -> Document:
    part: Document = document["submodels"][0]
    return part


def data(document: Document, folder: Path, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    torch.save({"inputs": inputs, "targets": targets}, folder / "data.pt")
    lenet(document)["train_data"] = str(folder / "data.pt")


def no_model(document: Document, folder: Path) -> None:
    (folder / "model.pt2").write_text("this is a letter")
    lenet(document)["model"] = str(folder / "model.pt2")


def truncated_model(document: Document, folder: Path) -> None:
    content = Path(lenet(document)["model"]).read_bytes()
    (folder / "model.pt2").write_bytes(content[: len(content) // 2])
    lenet(document)["model"] = str(folder / "model.pt2")


def onnx_model(document: Document, folder: Path) -> None:
    (folder / "net.pt2").write_bytes(b"\x08\x08\x12\x07pytorch\x1a\x052.4.0:\x50\n\x10\n\x01x\n\x01w" + bytes(60))
    lenet(document)["model"] = str(folder / "net.pt2")


def excel_data(document: Document, folder: Path) -> None:
    with zipfile.ZipFile(folder / "data.pt", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    lenet(document)["train_data"] = str(folder / "data.pt")


def wrong_shape(document: Document, folder: Path) -> None:
    data(document, folder, torch.zeros(8, 3, 5, 5), torch.zeros(8, dtype=torch.int64))


def nan_in_data(document: Document, folder: Path) -> None:
    inputs = torch.zeros(8, 1, 8, 8)
    inputs[3, 0, 1, 2] = float("nan")
    data(document, folder, inputs, torch.zeros(8, dtype=torch.int64))


def labels_outside(document: Document, folder: Path) -> None:
    data(document, folder, torch.zeros(8, 1, 8, 8), torch.full((8,), 10))


def empty_data(document: Document, folder: Path) -> None:
    data(document, folder, torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64))


def unknown_optimizer(document: Document, folder: Path) -> None:
    lenet(document)["hyperparameters"]["optimizer"] = "sdg"


def negative_learning_rate(document: Document, folder: Path) -> None:
    lenet(document)["hyperparameters"]["learning_rate"] = -0.1


def same_name(document: Document, folder: Path) -> None:
    document["submodels"][1]["name"] = "lenet"


def unknown_policy(document: Document, folder: Path) -> None:
    document["policy"] = {"name": "luck"}


def no_such_gpu(document: Document, folder: Path) -> None:
    document["device"] = "cuda:7"


def wrong_architecture(document: Document, folder: Path) -> None:
    document["submodels"][1]["architecture"]["args"]["width"] = 32


@pytest.mark.parametrize(
    ("mistake", "field", "said"),
    [
        (no_model, "submodels.lenet.model", "no network"),
        (truncated_model, "submodels.lenet.model", "damaged"),
        (onnx_model, "submodels.lenet.model", "This is an ONNX network.import onnx2torch"),
        (excel_data, "submodels.lenet.train_data", "This is an Excel file.import pandas"),
        (wrong_shape, "submodels.lenet", "[3, 5, 5]"),
        (nan_in_data, "submodels.lenet.train_data", "[3, 0, 1, 2]"),
        (labels_outside, "submodels.lenet.train_data", "10"),
        (empty_data, "submodels.lenet.train_data", "has no samples"),
        (unknown_optimizer, "submodels.lenet.hyperparameters.optimizer", "Did you mean 'sgd'?"),
        (negative_learning_rate, "submodels.lenet.hyperparameters.learning_rate", "a number above 0"),
        (same_name, "submodels.lenet.name", "own name"),
        (unknown_policy, "policy.name", "round_robin"),
        (no_such_gpu, "device", "This machine has no device 'cuda:7'"),
        (wrong_architecture, "submodels.resnet.model", "compared with the architecture"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_told_and_nothing_is_left(
    home: Home, short_demo: Path, tmp_path: Path, mistake: Mistake, field: str, said: str
) -> None:
    document = json.loads(short_demo.read_text())
    mistake(document, tmp_path)
    document["submodels"] = document["submodels"][: 2 if mistake in (same_name, wrong_architecture) else 1]
    short_demo.write_text(json.dumps(document))
    done = unifiednn(home, "train", str(short_demo), "--json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    findings = [f for f in json.loads(done.stdout)["findings"] if f["severity"] == "error"]
    assert any(f["field"].startswith(field) and said in f["message"] + f["remedy"] for f in findings), findings
    assert all(f["remedy"] for f in findings)
    left = {path.relative_to(home.root).parts[0] for path in home.root.rglob("*") if path.is_file()}
    assert not left - {"checks", "store"}


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (b"\x89HDF\r\n\x1a\n" + bytes(200), (), "This is an HDF5 file, as Keras, pandas and h5py write. import h5py"),
        ("größe;label\r\n1;ja\r\n".encode("cp1252"), (), "line 1 has the byte 0xf6. Excel often saves in Windows-1252"),
        (b"# of Ada\nsize,label\n1,ja\n2,nein\n", ("--target", "label"), "begins in line 2"),
        (b"%PDF-1.7\n\xe2\n", ("--tokenizer", "words"), "This is a PDF. Save its text: pdftotext"),
    ],
)
def test_an_import_says_what_the_file_is(
    home: Home, tmp_path: Path, content: bytes, options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "data.csv").write_bytes(content)
    done = unifiednn(home, "import", str(tmp_path / "data.csv"), *options)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_disk_without_room_is_told_before_the_start(
    home: Home, short_demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The need is raised above every disk, as no test can fill one."""
    from unifiednn_core.preflight import check, kept_check
    from unifiednn_core.spec.run import load_run

    monkeypatch.setattr(kept_check, "SPARE_BYTES", 2**60)
    findings = check.check(load_run(short_demo), short_demo.parent, home).findings
    [finding] = [f for f in findings if f.severity == "error"]
    assert finding.field == "home"
    assert "Make room" in finding.remedy
