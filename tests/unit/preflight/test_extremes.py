"""A number that is out of range in one sample alone is found: on a GPU it would end the process."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.engine.start_kit import definition_of
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.formats.base import Input
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec

SAMPLES, RARE = 24, 20
MASKS = {"name": "horizontal_flip", "masks": True}


class Words(nn.Module):
    """Scores of `classes` for each of 50 ids."""

    def __init__(self, classes: int = 50) -> None:
        super().__init__()
        self.body, self.head = nn.Embedding(50, 4), nn.Linear(4, classes)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.body(ids)).movedim(-1, 1)  # type: ignore[no-any-return]


class OwnLoss(nn.Module):
    """The loss is computed inside of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 5)

    def forward(self, rows: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.head(rows), targets)


class OwnWords(nn.Module):
    """A language model with its loss; the targets come first."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(50, 9)

    def forward(self, targets: Tensor, ids: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.scores(ids).movedim(-1, 1), targets)


class Two(nn.Module):
    """Scores of five classes, and auxiliary ones of four."""

    def __init__(self) -> None:
        super().__init__()
        self.main, self.aux = nn.Linear(6, 5), nn.Linear(6, 4)

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.main(rows), self.aux(rows)


class Columns(nn.Module):
    """A table whose columns have embeddings of their own, of 50 and of 8 ids."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Embedding(50, 4), nn.Embedding(8, 4), nn.Linear(4, 5)

    def forward(self, rows: Tensor) -> Tensor:
        scores: Tensor = self.head(self.first(rows[:, 0]) + self.second(rows[:, 1]))
        return scores


@dataclass(frozen=True)
class Job:
    """A sub-model that is right, and a number that makes it wrong in one sample, or another entry of its spec."""

    build: Callable[[], nn.Module]
    data: Dataset
    wrong: int | None
    title: str
    spec: dict[str, Any]
    inputs: tuple[str, ...] = ("inputs",)
    outputs: tuple[str, ...] = ("outputs",)
    worse: dict[str, Any] | None = None

    def check(self, *, wrong: bool) -> None:
        """Try it; raises `BadInput`."""
        data, spec = self.data, self.spec
        if wrong and self.wrong is not None:
            entry = next(iter(data.inputs.values())) if data.targets is None else data.targets
            entry = entry.clone()
            entry[RARE] = self.wrong
            data = Dataset({"inputs": entry}, None) if data.targets is None else replace(data, targets=entry)
        if wrong and self.worse is not None:
            spec = {**spec, **self.worse}
        hyper = {"batch_size": 8, **spec.get("hyperparameters", {})}
        asked = {"name": "one", "model": "m", "train_data": "d", **spec, "hyperparameters": hyper}
        inputs = tuple(Input(name) for name in self.inputs)
        definition = replace(definition_of(self.build), inputs=inputs, outputs=self.outputs)
        torch.manual_seed(0)
        dry_run(Trial(SubModelSpec.model_validate(asked), definition, data, data))


def masking(**args: Any) -> dict[str, Any]:
    return {"transforms": [{"name": "token_masking", "mask": 49, **args}]}


def own(**hyper: Any) -> dict[str, Any]:
    return {"hyperparameters": {"criterion": "none", **hyper}}


IMAGES = Dataset.of(torch.rand(SAMPLES, 3, 4, 4), torch.arange(SAMPLES * 16).view(SAMPLES, 4, 4) % 4)
ROWS = Dataset.of(torch.rand(SAMPLES, 6), torch.arange(SAMPLES) % 4)
IDS = Dataset({"inputs": torch.arange(SAMPLES * 5).view(SAMPLES, 5) % 8}, None)
PADDED = torch.where(torch.arange(5) < 4, IDS.inputs["inputs"], 50)
CROP = {"name": "random_crop", "padding": 1, "masks": True}
OUT, LABELS = "Inputs out of range", "Labels outside the classes"
JOBS = {
    "masks that are flipped": Job(lambda: nn.Conv2d(3, 4, 1), IMAGES, 255, LABELS, {"transforms": [MASKS]}),
    "the border of masks": Job(
        lambda: nn.Conv2d(3, 4, 1),
        IMAGES,
        None,
        LABELS,
        {"transforms": [CROP]},
        worse={"transforms": [{**CROP, "mask_fill": 4}], "hyperparameters": {"batch_size": 1}},
    ),
    "random ids": Job(Words, IDS, None, OUT, masking(vocabulary=50), worse=masking(vocabulary=51, p=0.2, random=0.01)),
    "the mask": Job(Words, IDS, None, OUT, masking(random=0.0), worse=masking(random=0.0, p=0.2, masked=0.01, mask=50)),
    "ids that are predicted": Job(lambda: Words(9), IDS, 30, LABELS, masking(random=0.0)),
    "ids of a language model": Job(lambda: Words(9), IDS, 30, LABELS, {"targets": "next"}),
    "labels of a loss inside": Job(OwnLoss, ROWS, 9, "Targets out of range", own(), inputs=("inputs", "targets")),
    "negative labels": Job(
        OwnLoss,
        replace(ROWS, targets=torch.where(torch.arange(SAMPLES) == 15, -100, torch.arange(SAMPLES) % 4)),
        -5,
        "Targets out of range",
        own(),
        inputs=("inputs", "targets"),
    ),
    "ids of a loss inside": Job(
        OwnWords, IDS, 30, "Targets out of range", {**own(), "targets": "next"}, inputs=("targets", "inputs")
    ),
    "auxiliary scores": Job(Two, ROWS, 4, LABELS, {"auxiliary": {"aux": 0.3}}, outputs=("main", "aux")),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_number_out_of_range_is_found_wherever_it_is(name: str) -> None:
    job = JOBS[name]
    job.check(wrong=False)
    with pytest.raises(BadInput) as error:
        job.check(wrong=True)
    assert error.value.findings[0].title == job.title


def test_padding_that_a_transform_cuts_from_some_batches_is_tried_all_the_same() -> None:
    """All samples of the batch at the ends of the range are equally long, so that their padding is cut off."""
    cut = {"transforms": [{"name": "trim", "pad": 50}]}
    short = Dataset.of(torch.where(torch.arange(SAMPLES)[:, None] < RARE, PADDED, PADDED % 8), ROWS.targets % 4)  # type: ignore[operator]

    class Mean(Words):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids).mean(2)

    with pytest.raises(BadInput, match="to 50 as input"):
        Job(lambda: Mean(4), short, None, OUT, cut).check(wrong=False)


def test_each_column_of_a_table_has_a_range_of_its_own() -> None:
    table = torch.stack([torch.arange(SAMPLES) + 20, torch.arange(SAMPLES) % 8], 1)
    Job(Columns, Dataset.of(table, ROWS.targets), None, "", {}).check(wrong=False)  # type: ignore[arg-type]
    table[RARE, 1] = 9
    for dtype in (torch.int64, torch.int32):
        with pytest.raises(BadInput, match="index out of range"):
            Job(Columns, Dataset.of(table.to(dtype), ROWS.targets), None, "", {}).check(wrong=False)  # type: ignore[arg-type]


def test_special_ids_are_never_predicted() -> None:
    ids = IDS.inputs["inputs"].clone()
    ids[RARE] = 30
    Job(lambda: Words(9), Dataset({"inputs": ids}, None), None, "", masking(random=0.0, special=[30])).check(
        wrong=False
    )


@pytest.mark.parametrize(
    ("job", "place"),
    [
        (Job(lambda: nn.Linear(6, 5), ROWS, None, "", {"hyperparameters": {"class_weights": "balanced"}}), "weights"),
        (Job(lambda: nn.Linear(6, 5), ROWS, None, "", own()), "hyperparameters.criterion"),
        (Job(Two, ROWS, None, "", {"auxiliary": {"main": 0.3}}, outputs=("main", "aux")), "auxiliary"),
    ],
    ids=["class weights", "no loss", "auxiliary"],
)
def test_what_does_not_fit_the_outputs_is_a_finding_at_its_place(job: Job, place: str) -> None:
    with pytest.raises(BadInput) as error:
        job.check(wrong=False)
    [finding] = error.value.findings
    assert finding.field.endswith(place)
    assert "tensor" not in finding.message


def test_one_value_for_each_sample_is_a_loss() -> None:
    for network in (nn.Linear(6, 1), nn.Sequential(nn.Linear(6, 1), nn.Flatten(0))):
        Job(lambda network=network: network, ROWS, None, "", own()).check(wrong=False)  # type: ignore[misc]
