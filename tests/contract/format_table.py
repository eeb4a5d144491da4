"""Trains a network in a format inside a hybrid, and compares with plain torch."""

import inspect
import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tests.contract.format_networks import SAMPLES, Case
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.separator import Separated, probes_path, separate
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.registry import FORMATS, format_named, sniff
from unifiednn_core.formats.weights import host_copy
from unifiednn_core.preflight.certify import certify
from unifiednn_core.preflight.pack.request import parse_example
from unifiednn_core.preflight.pack.work import write_file
from unifiednn_core.preflight.report import CertifyJob
from unifiednn_core.spec.run import ArchitectureSpec, SubModelSpec

EQUAL = "bit-equal"
FUSED = (
    "weights are bit-equal; the test loss may differ by rounding, for in evaluation plain torch runs a "
    "TransformerEncoderLayer as one fused operation"
)
STEPS, BATCH_SIZE, SEED, EPOCHS = 3, 4, 5, 2
CPU = torch.device("cpu")


def cell(case: Case, format_name: str, folder: Path) -> str:
    """`bit-equal`, or why the network cannot be taken; raises `AssertionError` where the bits differ."""
    given = written(case, format_name, folder)
    if isinstance(given, str):
        return given
    path, architecture = given
    known = sniff(path)
    assert known is not None and known.name == format_name, f"{path.name} is taken for {known}"
    try:
        definition = known.read(path, architecture)
    except BadInput as error:
        return error.findings[0].message.split(". ")[0].replace("|", "/").rstrip(".")
    eager = case.network()
    start = definition.build().state_dict()
    eager.load_state_dict(start)
    figures, state = trained_in_hybrid(case, definition, folder)
    expected_figures = trained_alone(case, eager)
    assert [row[0] for row in figures] == [row[0] for row in expected_figures], "losses in training differ"
    expected = eager.state_dict()
    assert state.keys() == expected.keys()
    for key, value in expected.items():
        assert value.dtype == state[key].dtype and torch.equal(value, state[key]), f"{key} differs"
    if not (format_name == "pt2" and any(isinstance(part, nn.TransformerEncoderLayer) for part in eager.modules())):
        assert figures == expected_figures, f"{figures} and {expected_figures}"
        return EQUAL
    assert np.allclose(figures, expected_figures, rtol=1e-6, atol=0), f"{figures} and {expected_figures}"
    return FUSED


def written(case: Case, format_name: str, folder: Path) -> tuple[Path, ArchitectureSpec | None] | str:
    """The network as a file of the format; a text where the format has no words for it."""
    eager = case.network()
    if format_name in ("state_dict", "safetensors"):
        if case.architecture is None:
            return "weights alone do not name their network, and the registry has no such architecture"
        path = folder / f"m.{'pt' if format_name == 'state_dict' else 'safetensors'}"
        (torch.save if format_name == "state_dict" else save_file)(host_copy(eager.state_dict()), path)
        return path, case.architecture
    if format_name == "pt2":
        if not case.is_packed:
            return kit.export(folder / "m.pt2", eager, case.data(0)[0][:3]), None
        example = parse_example([f"{name}={sizes}" for name, sizes in _shapes(case)], batch=3)
        with torch.random.fork_rng(devices=[]):
            write_file(case.network(), example, case.title, folder / "m.pt2")
        return folder / "m.pt2", None
    if format_name == "module":
        torch.save(eager, folder / "m.pt")
        return folder / "m.pt", None
    if not case.config:
        return "a config.json can only name networks of the transformers library"
    (folder / "m.json").write_text(json.dumps(dict(case.config)))
    return folder / "m.json", None


def _shapes(case: Case) -> list[tuple[str, str]]:
    """Names and sizes of the inputs, as `pack` takes them."""
    sizes = ",".join(map(str, case.shape)) + (":int64" if case.below else "")
    names = inspect.signature(case.network().forward).parameters
    return [(name, sizes) for name in names]


def trained_in_hybrid(case: Case, definition: Definition, folder: Path) -> tuple[list[list[float]], dict[str, Tensor]]:
    """Losses and weights after epochs beside another sub-model, separated and read back."""
    data = ResidentData(CPU)
    train, test = (Dataset(case.inputs(seed), case.data(seed)[1]) for seed in (1, 2))
    submodels = [submodel(data, name, definition, case, train, test) for name in ("one", "other")]
    one, figures = submodels[0], []
    for _ in range(EPOCHS):
        for _ in range(STEPS):
            for each in submodels:
                with each.world():
                    each.step()
        for each in submodels:
            with each.world():
                each.end_epoch()
        figures.append(one.last)
    with one.world():
        probes = one.probe()
    separated = separate(
        "one",
        definition,
        host_copy(one.module.state_dict()),
        figures=figures,
        folder=folder / "separated",
        spec={"submodels": [one.spec.model_dump(exclude_none=True)]},
        probes=probes,
        facts=train.facts,
    )
    save_file(test.entries, folder / "test.safetensors")
    spec = one.spec.model_copy(update={"architecture": definition.architecture})
    _require_certificate(spec, separated, definition, folder / "test.safetensors", train.facts)
    known = format_named(definition.format)
    again = known.read(separated.model_path, definition.architecture)
    state = known.read_state_dict(separated.model_path)
    assert all(torch.equal(tensor, state[key]) for key, tensor in again.build().state_dict().items())
    ordered = {key: state[key] for key in again.build().state_dict()}
    return [[row.train_loss or 0.0, row.test_loss or 0.0] for row in figures], ordered


def _require_certificate(
    spec: SubModelSpec, separated: Separated, definition: Definition, data: Path, facts: dict[str, object]
) -> None:
    """Every bit that the certificate compares is equal: weights, names and shapes, outputs, answers of load.py."""
    job = CertifyJob(
        archive=separated.archive,
        scratch=separated.archive.parent,
        submodel=spec,
        upload=definition.path,
        model=separated.model_path.name,
        state_sha256=separated.state_sha256,
        probes=probes_path(data.parent / "separated", "one"),
        put_in=True,
        data=data,
        facts=facts,
    )
    report = certify(job)
    assert report.certificate is not None, report.findings
    assert [one.outcome for one in report.certificate.compared] == ["equal"] * (
        3 if spec.hyperparameters.criterion == "none" else 4
    ), report.certificate.compared


def submodel(
    data: ResidentData, name: str, definition: Definition, case: Case, train: Dataset, test: Dataset
) -> SubModel:
    spec = SubModelSpec.model_validate(
        {
            "name": name,
            "model": "m",
            "train_data": "d",
            "hyperparameters": hyperparameters(case),
            "output": case.outputs[-1 if case.own_loss else 0],
            "auxiliary": dict(case.auxiliary),
        }
    )
    held = [data.hold(key, lambda dataset=dataset: dataset) for key, dataset in (("train", train), ("test", test))]
    return SubModel(spec, definition, seed=SEED, train=held[0], test=held[1], device=CPU)


def hyperparameters(case: Case) -> dict[str, object]:
    return {
        "epochs": EPOCHS,
        "batch_size": BATCH_SIZE,
        "drop_last": True,
        "seed": SEED,
        "optimizer": "adam",
        "learning_rate": 0.01,
        "criterion": "none" if case.own_loss else "cross_entropy" if case.classes else "mse",
    }


def trained_alone(case: Case, module: nn.Module) -> list[list[float]]:
    """The exactness recipe as a plain loop: an epoch of steps in train mode, then the test set in eval mode."""
    criterion = nn.CrossEntropyLoss() if case.classes else nn.MSELoss()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    figures: list[list[float]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        order = torch.Generator().manual_seed(SEED)
        for _ in range(EPOCHS):
            module.train()
            losses = []
            for batch in torch.randperm(SAMPLES, generator=order).split(BATCH_SIZE)[:STEPS]:
                optimizer.zero_grad(set_to_none=True)
                loss = loss_of(case, module, criterion, 1, batch)
                loss.backward()
                optimizer.step()
                losses.append((loss.item(), len(batch)))
            module.eval()
            with torch.no_grad():
                parts = torch.arange(SAMPLES).split(BATCH_SIZE)
                tests = [(loss_of(case, module, criterion, 2, part).item(), len(part)) for part in parts]
            figures.append([_mean(losses), _mean(tests)])
    return figures


def loss_of(case: Case, module: nn.Module, criterion: nn.Module, seed: int, batch: Tensor) -> Tensor:
    """As a user writes it: of the scores, plus that of a second head in training; or what the network returns."""
    inputs, targets = case.inputs(seed), case.data(seed)[1][batch]
    returned = module(*(one[batch] for one in inputs.values()))
    if case.own_loss:
        own: Tensor = returned["loss"]
        return own
    scores, *others = returned if isinstance(returned, tuple) else (returned,)
    loss: Tensor = criterion(scores, targets)
    for other, weight in zip(others, case.auxiliary.values(), strict=False):
        loss = loss + weight * criterion(other, targets)
    return loss


def _mean(losses: list[tuple[float, int]]) -> float:
    return sum(loss * samples for loss, samples in losses) / sum(samples for _, samples in losses)


def row(case: Case) -> list[str]:
    """Cells of one network, in the order of the registry."""
    cells = []
    for known in FORMATS:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells.append(cell(case, known.name, Path(folder)))
    return cells
