"""Floating point inputs that are as large as bytes deserve a warning; a few outliers and scaled ones do not."""

from typing import Any

import pytest
import torch

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight.hyper_findings import hyper_findings
from unifiednn_core.spec.run import SubModelSpec

BYTES = torch.arange(256.0).repeat(4, 1)
NORMAL = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))


def large(inputs: torch.Tensor, **more: Any) -> list[Any]:
    submodel = SubModelSpec(name="a", model="m", train_data="d", **more)
    data = Dataset.of(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    return [one for one in hyper_findings(submodel, data, data) if one.title == "Large inputs"]


def test_bytes_as_floats_are_told_with_their_fix() -> None:
    [finding] = large(BYTES)
    assert (finding.severity, finding.field) == ("warning", "submodels.a.scale")
    assert "from 0 to 255" in finding.message and finding.fix is not None and finding.fix.value == 1 / 255
    [negative] = large(BYTES - 300)
    assert negative.fix is None, "1/255 would not help"


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        (BYTES, {"scale": 1 / 255}),
        (BYTES, {"mean": 127.5, "std": 60.0}),
        (BYTES, {"transforms": ({"name": "normalize", "mean": [1.0], "std": [2.0]},)}),
        (BYTES.to(torch.uint8), {}),
        (NORMAL, {}),
        (torch.cat([NORMAL, torch.full((1, 16), 30.0)]), {}),
    ],
)
def test_scaled_inputs_bytes_themselves_and_outliers_are_not(inputs: torch.Tensor, more: dict[str, Any]) -> None:
    assert large(inputs, **more) == []
