"""Codes of classes: fixed by their seed, distant, in the range of what they stand for."""

import pytest
import torch
from torch import Tensor

from unifiednn_core.data.batch import Batch
from unifiednn_core.techniques import sil


def codes(classes: int = 10, width: int = 64, **how: float) -> Tensor:
    given = {"seed": 3, "cut": 1, "least": 0.0, "scale": 2.0} | how
    return sil.codes(classes, (width,), **given)  # type: ignore[arg-type]


def test_codes_follow_from_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first = codes()
    torch.manual_seed(99)
    assert torch.equal(first, codes())
    assert torch.equal(codes(4), first[:4])  # however many classes there are
    assert not torch.equal(first, codes(seed=4)) and not torch.equal(first, codes(cut=2))
    torch.set_rng_state(state)
    codes()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("least", [0.0, -1.0])
def test_codes_are_distant_and_in_range(least: float) -> None:
    rows = codes(40, 32, least=least)
    assert set(rows.flatten().tolist()) == {2.0, 2.0 * least}
    apart = (rows[:, None] != rows[None]).sum(2)
    apart.fill_diagonal_(32)
    assert int(apart.min()) >= sil.LEAST_DISTANCE * 32


def test_near_codes_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it some of 40 codes of 32 entries are too close: the property above can fail."""
    monkeypatch.setattr(sil, "TRIES", 1)
    rows = codes(40, 32)
    apart = (rows[:, None] != rows[None]).sum(2)
    apart.fill_diagonal_(32)
    assert int(apart.min()) < sil.LEAST_DISTANCE * 32


def test_more_classes_than_distant_codes_still_differ_where_they_can() -> None:
    assert len({tuple(row) for row in codes(8, 3).tolist()}) == 8


def test_a_batch_gets_codes_by_its_classes_alone() -> None:
    rows, classes = codes(5, 8), torch.tensor([3, 0, 3])
    for inputs in (torch.zeros(3, 2), torch.ones(3, 2)):
        batch = Batch({"inputs": inputs}, classes)
        [clean, noisy] = sil.CodedInputs.of(rows, 0.5, 0.0)
        coded = clean(batch, None)
        assert torch.equal(coded.inputs["inputs"], rows[classes]) and coded.targets is classes
        assert noisy.draws and noisy.training_only and not clean.draws
        drawn = noisy(coded, torch.Generator().manual_seed(1)).inputs["inputs"]
        assert bool((drawn >= 0).all()) and not torch.equal(drawn, rows[classes])
        coded = sil.CodedTargets.of(rows)(batch, None)
        assert coded.inputs["inputs"] is inputs and coded.targets is not None
        assert torch.equal(coded.targets, rows[classes])
    assert len(sil.CodedInputs.of(rows, 0.0, 0.0)) == 1


def test_codes_are_copied_to_a_device_once() -> None:
    """Steps are recorded as CUDA graphs after some that are not, and a recorded step must not copy from the host."""
    coded = sil.CodedTargets.of(codes(5, 8))
    batches = [Batch({"inputs": torch.rand(4, 8)}, torch.tensor([3, 0, 3, 1])) for _ in range(2)]
    placed = [(coded(batch, None), coded.table.placed[torch.device("cpu")])[1] for batch in batches]
    assert placed[0] is placed[1]
