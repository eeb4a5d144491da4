"""The lines of load.py prepare samples as an evaluation does, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.separator import script, step_of
from unifiednn_core.formats.base import Definition, Input
from unifiednn_core.spec.run import SubModelSpec

TARGETS = torch.zeros(4, dtype=torch.int64)
IMAGES = {"inputs": torch.arange(4 * 3 * 6 * 5, dtype=torch.uint8).view(4, 3, 6, 5)}
IDS = torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0], [8, 9, 3, 0], [1, 0, 0, 0]])
TEXTS = {"ids": IDS, "mask": IDS.ne(0).float(), "pixels": torch.arange(24, dtype=torch.uint8).view(4, 6)}
SCALED = {"scale": 1 / 255, "mean": 0.4, "std": 0.3}
NORMALIZE = {"name": "normalize", "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
FLIP = {"name": "horizontal_flip"}


def resize(mode: str, **more: Any) -> dict[str, Any]:
    return {"name": "resize", "size": [4, 7], "interpolation": mode, **more}


def described(*names: str) -> Definition:
    return Definition(
        format="", path=Path("m"), build=nn.Identity, parameters=0, weights_bytes=0, inputs=tuple(map(Input, names))
    )


@pytest.mark.parametrize(
    ("inputs", "entries"),
    [
        (IMAGES, {"scale": 1 / 255}),
        (IMAGES, {"mean": 3.5}),
        (IMAGES, SCALED),
        (IMAGES, {**SCALED, "transforms": [FLIP, NORMALIZE, resize("bilinear")]}),
        (IMAGES, {**SCALED, "transforms": [resize("bicubic", antialias=False), NORMALIZE]}),
        (IMAGES, {"transforms": [resize("nearest")]}),
        (IMAGES, {**SCALED, "transforms": [resize("nearest-exact")]}),
        ({"inputs": IDS}, {"transforms": [{"name": "trim"}]}),
        (TEXTS, {**SCALED, "transforms": [{"name": "trim", "input": "ids", "others": True}]}),
        (TEXTS, {"inputs": {"x": "ids"}, "transforms": [{"name": "trim"}]}),
    ],
)
def test_samples_are_prepared_as_in_an_evaluation(inputs: dict[str, Tensor], entries: dict[str, Any]) -> None:
    names = list(entries.get("inputs", [])) + sorted(set(inputs) - {*entries.get("inputs", {}).values()})
    spec = SubModelSpec.model_validate({"name": "n", "model": "m", "train_data": "d", **entries})
    definition, facts = described(*names), Dataset(inputs, TARGETS).facts
    step = step_of(spec, definition, facts)
    assert step is not None
    own: dict[str, Any] = {"torch": torch, "model": lambda *given: given}
    exec(script(spec, definition, "model({all})", facts), own)  # noqa: S102
    given = {name: one.clone() for name, one in inputs.items()}
    answered = own["answer"](given if len(given) > 1 else given["inputs"])
    wanted = step.given(step.prepare(Batch(dict(inputs), TARGETS), training=False))
    assert len(answered) == len(wanted)
    for ours, theirs in zip(answered, wanted, strict=True):
        assert theirs is not None and ours.dtype is theirs.dtype and torch.equal(ours, theirs)


def test_a_network_that_takes_targets_or_is_a_part_answers_for_no_file() -> None:
    spec = SubModelSpec.model_validate({"name": "n", "model": "m", "train_data": "d", "inputs": {"y": "targets"}})
    facts = Dataset(IMAGES, TARGETS).facts
    assert script(spec, described("inputs", "y"), "model({all})", facts) == ""
    assert script(spec.model_copy(update={"inputs": {}}), described("inputs"), "", facts) == ""
    assert script(spec.model_copy(update={"inputs": {}}), described("inputs"), "model({all})", {}) == ""
