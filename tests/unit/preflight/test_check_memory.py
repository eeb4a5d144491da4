"""A check, and the start of a worker, go through a data set in blocks: they hold no tensor as large as it is."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.unit.preflight.test_need import definition
from unifiednn_core.data import datasets
from unifiednn_core.data.balance import data_order
from unifiednn_core.data.datasets import Dataset, targets_in_blocks
from unifiednn_core.engine import optimizers
from unifiednn_core.engine.binding import training_step
from unifiednn_core.engine.learning import Scorer
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.hyper_findings import hyper_findings
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec
from unifiednn_core.techniques.live_bytes import LiveBytes

SAMPLES, LENGTH, CLASSES = 8192, 512, 5
IDS = torch.arange(SAMPLES * LENGTH, dtype=torch.int32).view(SAMPLES, LENGTH) % CLASSES
DATA = Dataset.of(IDS, IDS.long())
MOST_BYTES = IDS.nbytes


class Tagger(nn.Module):
    """Scores [batch, classes, length] of each id."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Embedding(CLASSES, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.scores(ids).transpose(1, 2)
        return found


def spec(targets: str = "stored", **hyperparameters: object) -> SubModelSpec:
    document = {"name": "one", "model": "m", "train_data": "d", "targets": targets}
    return SubModelSpec.model_validate({**document, "hyperparameters": {"batch_size": 8, **hyperparameters}})


def tried(targets: str) -> object:
    return dry_run(Trial(spec(targets), definition(Tagger()), DATA, DATA))


def counted(targets: str) -> object:
    asked = spec(targets)
    lease = ResidentData(torch.device("cpu")).hold("d", lambda: DATA)
    scorer = Scorer(asked.hyperparameters, training_step(asked, definition(Tagger()), ("inputs",)))
    assert scorer.ignored_in(lease) is None
    labels = LENGTH - (targets == "next")
    return scorer.counted(lease, slice(0, 8)) == (8, 8 * labels)


WORK: dict[str, Callable[[], object]] = {
    "dry run": lambda: tried("stored"),
    "dry run of the next token": lambda: tried("next"),
    "labels that count": lambda: counted("stored"),
    "next tokens that count": lambda: counted("next"),
    "findings": lambda: hyper_findings(spec(criterion_args={"ignore_index": 2, "weight": [1.0, 0.0]}), DATA, None),
    "balanced classes": lambda: optimizers.build_criterion(
        spec(class_weights="balanced").hyperparameters, targets_in_blocks(DATA)
    ),
    "lengths": lambda: data_order(spec(sampler={"name": "by_length"}).hyperparameters, DATA),
}


def held_bytes(work: Callable[[], object]) -> int:
    live = LiveBytes()
    live.track(DATA.entries.values())
    before = live.current_bytes
    with live:
        assert work()
    return max(live.timeline) - before


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_nothing_as_large_as_the_data_set_is_made(work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The data have eight blocks."""
    flat = held_bytes(work)
    monkeypatch.setattr(datasets, "rows_per_block", lambda _: SAMPLES)
    assert 0 < flat < MOST_BYTES and held_bytes(work) > 3 * flat


def test_a_label_outside_in_any_block_is_found(tmp_path: Path) -> None:
    wrong = IDS.long().clone()
    wrong[-1, -1], wrong[-3, 7] = 7, -4
    trial = Trial(spec(), definition(Tagger()), Dataset.of(IDS, wrong), None)
    with pytest.raises(Exception, match="2 targets are outside, such as -4"):
        dry_run(trial)
