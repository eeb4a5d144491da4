"""Inputs that scaling makes tiny or leaves large deserve a warning; scaled ones, tables, ids and outliers do not."""

from typing import Any

import pytest
import torch

from unifiednn_core.data.datasets import Dataset
from unifiednn_core.preflight.hyper_findings import hyper_findings
from unifiednn_core.spec.run import SubModelSpec

BYTES = torch.arange(256.0).repeat(4, 1)
UNIT = (BYTES / 255).view(4, 1, 16, 16)
DIGITS = BYTES.view(4, 1, 16, 16) % 17
NORMAL = torch.randn(640, 16, generator=torch.Generator().manual_seed(0))
TABLE = torch.tensor([[17.0, 0.0, 120.0, 59.0], [64.0, 1.0, 199.0, 7.0]])
IDS = torch.arange(4000).view(40, 100)
NORMALIZE = ({"name": "normalize", "mean": [0.5], "std": [0.25]},)


def told(inputs: torch.Tensor, **more: Any) -> list[Any]:
    submodel = SubModelSpec(name="a", model="m", train_data="d", **more)
    data = Dataset.of(inputs, torch.zeros(len(inputs), dtype=torch.int64))
    return [one for one in hyper_findings(submodel, data, data) if one.title in ("Large inputs", "Scaled twice")]


@pytest.mark.parametrize(
    ("inputs", "more", "title", "said", "fix"),
    [
        (BYTES, {}, "Large inputs", "from 0 to 255", 1 / 255),
        (BYTES.view(4, 1, 16, 16), {}, "Large inputs", "from 0 to 255", 1 / 255),
        (BYTES - 300, {"mean": 1000.0}, "Large inputs", "from -1300 to -1045", None),
        (BYTES.to(torch.uint8), {"scale": 10.0}, "Large inputs", "from 0 to 2550", 1 / 255),
        (DIGITS, {}, "Large inputs", "from 0 to 16", 1 / 16),
        (BYTES, {"transforms": NORMALIZE}, "Large inputs", "from -2 to 1018", None),
        (TABLE * 300, {}, "Large inputs", "a std for each column", None),
        (UNIT, {"scale": 1 / 255}, "Scaled twice", "scaled from 0 to 0.00392", 1.0),
        (UNIT, {"scale": 1 / 255, "transforms": NORMALIZE}, "Scaled twice", "scaled from -2 to -1.98431", None),
        (UNIT, {"std": 255.0}, "Scaled twice", "Correct scale, mean and std.", None),
        (DIGITS, {"scale": 1 / 255}, "Scaled twice", "Set scale to 1/16.", 1 / 16),
        (DIGITS.to(torch.uint8), {"scale": 1 / 255}, "Scaled twice", "Set scale to 1/16.", 1 / 16),
        (NORMAL, {"scale": 1 / 255}, "Scaled twice", "the scale is one for other data", None),
    ],
)
def test_inputs_scaled_twice_or_not_at_all_are_told_with_their_fix(
    inputs: torch.Tensor, more: dict[str, Any], title: str, said: str, fix: float | None
) -> None:
    [finding] = told(inputs, **more)
    assert (finding.severity, finding.title, finding.field) == ("warning", title, "submodels.a.scale")
    assert said in f"{finding.message} {finding.remedy}"
    assert (None if finding.fix is None else finding.fix.value) == fix
    if fix is not None:
        assert told(inputs, **more | {"scale": fix}) == []


@pytest.mark.parametrize(
    ("inputs", "more"),
    [
        (BYTES, {"scale": 1 / 255}),
        (BYTES, {"mean": 127.5, "std": 60.0}),
        (BYTES, {"transforms": ({"name": "normalize", "mean": [127.0], "std": [60.0]},)}),
        (BYTES.to(torch.uint8), {}),
        (BYTES.to(torch.uint8), {"scale": 1 / 255, "transforms": NORMALIZE}),
        (UNIT, {}),
        (UNIT, {"mean": 0.5, "std": 0.5}),
        (DIGITS, {"scale": 1 / 16}),
        (NORMAL, {}),
        (NORMAL / 1000, {}),
        (torch.cat([NORMAL, torch.full((1, 16), 30.0)]), {}),
        (TABLE, {}),
        (TABLE.long(), {"scale": 1 / 255}),
        (IDS, {}),
        (IDS.float().view(400, 10) / 5, {}),
    ],
)
def test_what_is_scaled_and_tables_and_ids_are_not(inputs: torch.Tensor, more: dict[str, Any]) -> None:
    assert told(inputs, **more) == []
