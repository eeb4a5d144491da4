"""Every kind of data file, converted, split and trained on, against a plain loop over the numbers that went in."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.integration import vanilla_loop
from unifiednn_core.data import conversion
from unifiednn_core.data.conversion import split
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.data.values import SplitPlan
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats import registry
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.spec.run import SubModelSpec

SAMPLES, CLASSES, SEED, SCALE, BATCH_SIZE, EPOCHS = 30, 3, 5, 1 / 255, 8, 2
SHAPE = (1, 4, 4)
CPU = torch.device("cpu")
Writer = Callable[[Path, Tensor, Tensor], object]


def numbers() -> tuple[Tensor, Tensor]:
    """Grey images of bytes, class by class, as a zip of folders orders them."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(0, 256, (SAMPLES, *SHAPE), dtype=torch.uint8, generator=generator)
    return inputs, torch.arange(SAMPLES) * CLASSES // SAMPLES


def csv(path: Path, inputs: Tensor, targets: Tensor) -> None:
    rows = [
        ",".join(map(str, [*row.flatten().tolist(), "abc"[label]])) for row, label in zip(inputs, targets, strict=True)
    ]
    path.write_text("\n".join([",".join([*(f"p{n}" for n in range(16)), "label"]), *rows]))


def table(path: Path, inputs: Tensor, targets: Tensor) -> None:
    columns = {f"p{n}": column.numpy() for n, column in enumerate(inputs.flatten(1).T)}
    parquet.write_table(pa.table({**columns, "target": targets.numpy()}), path)


def images(path: Path, inputs: Tensor, targets: Tensor) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for number, (pixels, label) in enumerate(zip(inputs, targets, strict=True)):
            content = io.BytesIO()
            Image.fromarray(pixels[0].numpy()).save(content, "PNG")
            archive.writestr(f"class {int(label)}/{number}.png", content.getvalue())


WRITERS: dict[str, Writer] = {
    "data.pt": lambda path, inputs, targets: torch.save({"inputs": inputs, "targets": targets}, path),
    "data.safetensors": lambda path, inputs, targets: save_file({"inputs": inputs, "targets": targets}, path),
    "data.npz": lambda path, inputs, targets: np.savez(path, inputs=inputs, targets=targets),
    "packed.npz": lambda path, inputs, targets: np.savez_compressed(path, inputs=inputs, targets=targets),
    "data.csv": csv,
    "data.parquet": table,
    "images.zip": images,
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_split_trains_as_a_plain_loop_does(name: str, tmp_path: Path) -> None:
    inputs, targets = numbers()
    path = tmp_path / name
    WRITERS[name](path, inputs, targets)
    if conversion.is_needed(path):
        conversion.convert(path, tmp_path / "converted")
        path = tmp_path / "converted"
    paths = split(path, SplitPlan(test_share=0.2, seed=1), tmp_path)
    train, test = (read_dataset(paths[part]) for part in ("train", "test"))
    is_table = train.first.dim() == 2
    assert train.first.dtype is (torch.float32 if is_table else torch.uint8)
    tested = torch.zeros(SAMPLES, dtype=torch.bool)
    generator = torch.Generator().manual_seed(1)
    for label in range(CLASSES):
        group = (targets == label).nonzero().squeeze(1)
        tested[group[torch.randperm(len(group), generator=generator)[:2]]] = True
    for part, chosen in ((train, ~tested), (test, tested)):
        assert torch.equal(part.first.reshape(-1, 16), inputs[chosen].reshape(-1, 16).to(part.first.dtype))
        assert torch.equal(part.targets, targets[chosen])
    hyper = {"epochs": EPOCHS, "batch_size": BATCH_SIZE, "optimizer": "adam", "learning_rate": 0.01, "seed": SEED}
    spec = SubModelSpec.model_validate(
        {"name": "one", "model": "m", "train_data": "d", "scale": SCALE, "hyperparameters": hyper}
    )
    torch.manual_seed(3)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.2), nn.Linear(8, CLASSES))
    torch.save(network, tmp_path / "m.pt")
    state, losses = trained(spec, train, test, tmp_path / "m.pt")
    plain = vanilla_loop.train(network, spec.hyperparameters, (inputs[~tested].float() * SCALE, targets[~tested]))
    assert losses == plain.losses and state_sha256(state) == state_sha256(network.state_dict())


def trained(spec: SubModelSpec, train: Dataset, test: Dataset, model: Path) -> tuple[dict[str, Tensor], list[float]]:
    definition = registry.format_named("module").read(model, None)
    data = ResidentData(CPU)
    held = [data.hold(key, lambda dataset=dataset: dataset) for key, dataset in (("train", train), ("test", test))]
    submodel = SubModel(spec, definition, seed=SEED, train=held[0], test=held[1], device=CPU)
    losses = []
    while not submodel.finished:
        with submodel.world():
            losses.append(submodel.step().loss.item())
            if submodel.at_epoch_end:
                submodel.end_epoch()
    return dict(submodel.module.state_dict()), losses
