from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.formats import kit
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.formats.architectures import registry
from unifiednn_core.formats.base import Definition, count_parameters, size_bytes
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.preflight import measure as room
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.measure import measure
from unifiednn_core.preflight.prediction import MemoryNeed
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.run import SubModelSpec

SAMPLES = 140
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "lenet": {"image_size": 8, "batch_norm": True},
    "resnet": {"blocks": [1, 1, 1, 1], "width": 4, "channels": 1},
    "transformer": {"layers": 1},
}


def spec(**hyperparameters: Any) -> SubModelSpec:
    given = {"batch_size": 16, "optimizer": "adam"} | hyperparameters
    document = {"name": "one", "model": "m", "train_data": "d", "test_data": "t", "hyperparameters": given}
    return SubModelSpec.model_validate(document)


def dataset(inputs: torch.Tensor, classes: int = kit.CLASSES) -> Dataset:
    return Dataset.of(inputs=inputs, targets=torch.arange(len(inputs)) % classes)


def definition(module: nn.Module) -> Definition:
    return Definition(
        format="kit",
        path=Path("kit"),
        build=lambda: module,
        parameters=count_parameters(module),
        weights_bytes=size_bytes(module.state_dict()),
    )


def trial(network: str, **hyperparameters: Any) -> Trial:
    """A network of the kit or of the registry, with its data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # how well activations compress depends on the weights
        if network in ARCHITECTURES:
            module, inputs = registry.build(network, ARCHITECTURES[network]), torch.rand(SAMPLES, *kit.IMAGES)
        else:
            module, inputs = kit.network(network), kit.batch(network, SAMPLES)
    return Trial(spec(**hyperparameters), definition(module), dataset(inputs), dataset(inputs[:20]))


def found(a_trial: Trial, device: str = "cpu") -> MemoryNeed:
    return measure(a_trial, dry_run(a_trial), device, ["train", "test"])


@pytest.mark.parametrize("network", [*ARCHITECTURES, *kit.NETWORKS])
@pytest.mark.parametrize("split", [1, 4])
def test_two_small_batches_tell_the_whole_one(network: str, split: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(trial(network, batch_size=128, batch_split=split))
    monkeypatch.setattr(room, "WHOLE_BATCH_BYTES", 0)
    from_small_ones = found(trial(network, batch_size=128, batch_split=split))
    assert (whole.fitted, from_small_ones.fitted) == (False, True)
    rounding = 0.1 if network == "lstm" else 0.01  # oneDNN rounds what it keeps of a recurrent layer
    assert from_small_ones.transient_bytes == pytest.approx(whole.transient_bytes, rel=rounding)


@pytest.mark.parametrize("network", ["resnet", "transformer", "lstm"])
def test_parts_of_a_batch_need_what_running_them_needs(network: str) -> None:
    whole = found(trial(network, batch_size=64))
    for split in (2, 4, 8):
        assert whole.transient_of(64, split) == pytest.approx(
            found(trial(network, batch_size=64, batch_split=split)).transient_bytes, rel=0.1
        )
    assert whole.transient_of(64, 8) < whole.transient_of(64, 1)


def test_every_part_of_it_is_the_size_of_its_tensors() -> None:
    a_trial = trial("resnet")
    module, need = a_trial.definition.build(), found(a_trial)
    tensors = [*module.parameters(), *module.buffers()]
    weights_bytes = sum(tensor.nbytes for tensor in module.parameters())
    rounding = 64 * len(tensors)
    assert weights_bytes <= need.gradients_bytes <= weights_bytes + rounding
    assert sum(t.nbytes for t in tensors) <= need.weights_bytes <= sum(t.nbytes for t in tensors) + rounding
    assert 2 * weights_bytes <= need.optimizer_bytes <= 2 * weights_bytes + 3 * rounding
    labels_bytes = 8 * SAMPLES + -8 * SAMPLES % 64
    assert need.data == {
        "train": 4 * 64 * SAMPLES + labels_bytes,
        "test": 8 * 20 + -8 * 20 % 64,  # its inputs are a view of the training data's
    }


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad", "adadelta", "nadam", "radam"])
def test_every_optimizer_is_counted_on_both_kinds_of_device(optimizer: str) -> None:
    host, card = (found(trial("cnn", optimizer=optimizer), device) for device in ("cpu", "cuda"))
    assert card.gradients_bytes >= host.gradients_bytes > 0
    assert (host.optimizer_bytes > 0) == (card.optimizer_bytes > 0) == (optimizer != "sgd")
    assert card.transient_bytes > 0


def test_on_a_gpu_an_optimizer_takes_all_weights_at_once_which_needs_more() -> None:
    def update_bytes(device: str) -> int:
        a_trial = trial("resnet", batch_size=2)
        return found(a_trial, device).transient_bytes

    weights_bytes = found(trial("resnet")).gradients_bytes
    assert update_bytes("cuda") > update_bytes("cpu")
    assert update_bytes("cuda") >= weights_bytes


def test_an_exported_network_needs_what_the_same_one_needs_as_a_module(tmp_path: Path) -> None:
    path = kit.exported(tmp_path, "residual")
    inputs = kit.batch("residual", SAMPLES)
    exported = Trial(spec(), ExportedFormat().read(path, None), dataset(inputs), dataset(inputs[:20]))
    module = trial("residual")
    ours, theirs = found(exported), found(module)
    assert ours.gradients_bytes == theirs.gradients_bytes
    assert ours.weights_bytes == pytest.approx(theirs.weights_bytes, abs=2048)  # constants lie apart
    assert ours.transient_bytes == pytest.approx(theirs.transient_bytes, rel=0.15)


def test_the_network_needs_more_with_each_sample_and_the_batch_is_never_larger_than_the_data() -> None:
    sizes = [found(trial("transformer", batch_size=size)).transient_bytes for size in (1, 8, 32, 128, SAMPLES, 1000)]
    assert sizes == sorted(sizes)
    assert sizes[-1] == sizes[-2]


def test_without_test_data_no_evaluation_counts() -> None:
    with_test = trial("cnn", batch_size=64, batch_split=64)
    without = Trial(with_test.spec, with_test.definition, with_test.train, None)
    assert found(with_test).evaluation
    need = measure(without, dry_run(without), "cpu", ["train"])
    assert need.evaluation == {}
    assert need.transient_bytes < found(with_test).transient_bytes


class InPieces(nn.Module):
    """Takes four samples at a time, so that there are more operators in a larger batch."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.head = nn.Flatten(), nn.Linear(64, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.head(torch.tanh(self.flatten(piece))) for piece in images.split(4)])


def test_where_operators_depend_on_the_batch_it_is_taken_to_grow_with_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = torch.rand(128, *kit.IMAGES)

    def need() -> MemoryNeed:
        pieces = definition(InPieces())
        return found(Trial(spec(batch_size=128, optimizer="sgd"), pieces, dataset(inputs), dataset(inputs)))

    whole = need()
    monkeypatch.setattr(room, "WHOLE_BATCH_BYTES", 0)
    assert need().fitted
    assert whole.transient_bytes <= need().transient_bytes <= 1.5 * whole.transient_bytes


def test_the_default_rng_is_left_as_it_was() -> None:
    a_trial = trial("attention")
    tried = dry_run(a_trial)
    before = torch.get_rng_state()
    measure(a_trial, tried, "cpu", ["train", "test"])
    assert torch.equal(before, torch.get_rng_state())
