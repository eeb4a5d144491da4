"""`unifiednn place`: a plan for a spec or a file, and what to do where nothing fits. It trains and keeps nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.cli_kit import unifiednn
from tests.unit.formats import kit
from unifiednn_core.base.paths import Home
from unifiednn_core.base.units import MIB

CAP = 0.015
"""MiB that one device is not enough for."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    kit.exported(folder, "cnn")
    targets = torch.randint(0, 3, (37,), generator=torch.Generator().manual_seed(0))
    torch.save({"inputs": kit.batch("cnn", 37, 0), "targets": targets}, folder / "train.pt")
    torch.save(kit.network("cnn"), folder / "layers.pt")
    hyper = {"epochs": 1, "batch_size": 8, "optimizer": "adam"}
    files = {"train_data": "train.pt", "hyperparameters": hyper}
    both = [{"name": name, "model": model, **files} for name, model in (("net", "cnn.pt2"), ("layers", "layers.pt"))]
    (folder / "spec.json").write_text(json.dumps({"device": "cpu", "submodels": both}))
    return folder


def placed(home: Home, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = unifiednn(home, "place", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_spec_is_placed_within_its_limits_and_told(home: Home, folder: Path) -> None:
    asked = (str(folder / "spec.json"), "--submodel", "net", "--devices", "2", "--cap", str(CAP))
    code, found = placed(home, *asked)
    assert (code, found["findings"], list(found["placements"])) == (0, [], ["net"])
    plan = found["placements"]["net"]["plan"]
    assert [device["cap_bytes"] for device in plan["devices"]] == [int(CAP * MIB)] * 2
    assert all(0 < device["peak_bytes"] <= int(CAP * MIB) and device["work_s"] for device in plan["devices"])
    assert plan["makespan_s"] >= plan["bound_s"] > 0 and plan["sent_bytes"]
    told = unifiednn(home, "place", *asked)
    assert told.returncode == 0 and told.stdout.count("15.4 KiB") == 2
    assert "No placement takes less than" in told.stdout
    assert json.loads(unifiednn(home, "runs", "--json").stdout) == []


def test_a_file_is_placed_with_its_data_and_a_limit_for_each_device(home: Home, folder: Path) -> None:
    file, data = str(folder / "cnn.pt2"), ("--data", str(folder / "train.pt"), "--batch", "8")
    code, found = placed(home, file, *data, "--devices", "2", "--cap", "0.01", "--cap", "1")
    [placement] = found["placements"].values()
    assert code == 0 and [one["cap_bytes"] for one in placement["plan"]["devices"]] == [int(0.01 * MIB), MIB]
    assert placement["plan"]["devices"][0]["peak_bytes"] <= int(0.01 * MIB)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("spec.json", "--submodel", "net", "--cap", "0.004"), "Allow more memory, use more devices"),
        (("spec.json", "--submodel", "layers"), "Export the network with torch.export"),
        (("spec.json", "--submodel", "other"), "no sub-model 'other'"),
        (("spec.json", "--submodel", "net", "--cap", "1", "--cap", "1", "--cap", "1"), "There are 3 limits"),
        (("cnn.pt2",), "--data"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_a_remedy(
    home: Home, folder: Path, arguments: tuple[str, ...], text: str
) -> None:
    code, found = placed(home, str(folder / arguments[0]), *arguments[1:])
    assert code == 2 and not found.get("placements")
    assert text in " ".join(f"{one['field']} {one['message']} {one['remedy']}" for one in found["findings"])
