"""Trains packed networks as one hybrid, and each by a plain loop over its author's own Python code."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tools.public_networks.networks import Network, call_of
from tools.public_networks.packing import drawn_inputs, start_in
from unifiednn_core.data.datasets import Dataset, read_dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import HOST, Lease, ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.registry import policy_named
from unifiednn_core.spec.run import SubModelSpec

EPOCHS, BATCH, SEED, RATE = 2, 4, 11, 1e-3
OPTIMIZERS = ("sgd", "adam", "adamw")
POLICIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("round_robin", {"unit": "steps", "amount": 1}),
    ("fcfs", {}),
    ("sjf", {}),
    ("priority", {}),
    ("round_robin", {"unit": "epochs", "amount": 1}),
)


def as_hybrid(
    folders: Sequence[Path], networks: Sequence[Network], criteria: Sequence[str], turn: int
) -> dict[str, Any]:
    """Train all of them in one engine. Returns `policy`, and for each network its `hashes` or why it `failed`."""
    resident, parts = ResidentData(HOST), list[SubModel]()
    failed, hashes = dict[str, str](), dict[str, str]()
    for place, (folder, network, criterion) in enumerate(zip(folders, networks, criteria, strict=True)):
        optimizer = OPTIMIZERS[place % len(OPTIMIZERS)]
        given: dict[str, Any] = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "seed": SEED}
        given |= {"optimizer": optimizer, "criterion": criterion}
        spec = SubModelSpec.model_validate(
            {
                "name": f"n{place}",
                "model": "network.pt2",
                "train_data": "train.safetensors",
                "test_data": "test.safetensors",
                "output": network.output,
                "priority": len(networks) - place,
                "hyperparameters": given,
            }
        )
        definition = ExportedFormat().read(folder / "network.pt2", None)
        train, test = (_held(resident, folder / f"{part}.safetensors") for part in ("train", "test"))
        parts.append(SubModel(spec, definition, seed=SEED, train=train, test=test, device=HOST))

    def take(report: Report) -> None:
        if isinstance(report, Ended):
            if report.state_dict is None:
                failed[report.submodel] = report.cause or "no weights"
            else:
                hashes[report.submodel] = state_sha256(report.state_dict)

    name, arguments = POLICIES[turn % len(POLICIES)]
    Engine(HybridModel(parts), policy_named(name, dict(arguments)), device=HOST, threads=1, report=take).run()
    return {"policy": name, "hashes": hashes, "failed": failed}


def _held(resident: ResidentData, path: Path) -> Lease:
    def read() -> Dataset:
        return read_dataset(path)

    return resident.hold(str(path), read)


def plainly(network: Network, clones: Path, code: Path | None, folder: Path, criterion: str, place: int) -> str:
    """Train the author's own Python network in a plain loop, by the recipe; returns its `state_sha256`.

    Of the product this uses the hash alone: the code is imported as Python does, and torch reads the initial weights.
    """
    train, test = (load_file(folder / f"{part}.safetensors") for part in ("train", "test"))
    torch.manual_seed(0)  # as `unifiednn pack` begins: some constructors draw buffers that are in no file
    module = _built(network, clones, code)
    weights: Mapping[str, Tensor] = module.state_dict()
    with suppress(RuntimeError):  # torch cannot read what it writes for `uniform_`; the seed gives the same weights
        weights = torch.export.load(folder / "network.pt2").state_dict
    if weights.keys() != module.state_dict().keys():
        raise ValueError("the file has other weights than the author's network")
    with torch.no_grad():  # `load_state_dict` of some networks asks for metadata, which no .pt2 has
        for name, tensor in module.state_dict().items():
            tensor.copy_(weights[name])
    names = [text.rpartition("=")[0].strip() for text in network.inputs]
    loss_of = {"none": None, "cross_entropy": nn.CrossEntropyLoss(), "mse": nn.MSELoss()}[criterion]
    kinds = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW)
    optimizer = kinds[place % len(kinds)](module.parameters(), lr=RATE)

    def loss(data: Mapping[str, Tensor], taken: Tensor | slice) -> Tensor:
        columns = {name.removeprefix("inputs").removeprefix("."): one[taken].clone() for name, one in data.items()}
        targets = columns.get("targets") if "targets" in names else columns.pop("targets", None)
        if "" in columns and any(names):  # the only input of the data, and that which is not the targets
            columns[next(name for name in names if name != "targets")] = columns.pop("")
        output = _output(module(**columns) if any(names) else module(*columns.values()), network.output)
        return output.mean() if loss_of is None else loss_of(output, targets)

    torch.manual_seed(SEED)
    order_of = torch.Generator().manual_seed(SEED)
    samples, test_samples = (len(next(iter(data.values()))) for data in (train, test))
    for _ in range(EPOCHS):
        module.train()
        order = torch.randperm(samples, generator=order_of)
        for begin in range(0, samples, BATCH):
            optimizer.zero_grad(set_to_none=True)
            loss(train, order[begin : begin + BATCH]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        module.eval()
        with torch.no_grad():
            for begin in range(0, test_samples, BATCH):
                loss(test, slice(begin, begin + BATCH))
    return state_sha256(module.state_dict())


def runs(network: Network, clones: Path, code: Path | None) -> bool:
    """Call the author's own Python once, with what it is packed with; raises whatever that raises."""
    module = _built(network, clones, code)
    inputs = drawn_inputs(network)
    named = {one.partition("=")[0].strip() for one in network.inputs if "=" in one}
    module(**inputs) if named else module(*inputs.values())
    return True


def _built(network: Network, clones: Path, code: Path | None) -> nn.Module:
    """Import the author's code as Python does, and call it."""
    start_in(network, clones)
    place, arguments = call_of(network, code)
    file, _, name = place.rpartition(":")
    path = Path(file)
    sys.path.insert(0, str(Path.cwd()))
    if not file.endswith(".py"):
        module = importlib.import_module(file)
    elif path.is_absolute() or not _is_package_part(path):
        sys.path.insert(0, str(path.resolve().parent))
        module = importlib.import_module(path.stem)
    else:
        module = importlib.import_module(".".join(path.with_suffix("").parts))
    built: nn.Module = getattr(module, name)(**arguments)
    return built


def _is_package_part(path: Path) -> bool:
    return "from ." in path.read_text(encoding="utf-8")


def _output(outputs: Any, name: str | None) -> Tensor:
    """One output of whatever forward returned: by its name, else the first tensor."""
    if isinstance(outputs, Tensor):
        return outputs
    if is_dataclass(outputs) and not isinstance(outputs, Mapping):
        outputs = {one.name: getattr(outputs, one.name) for one in fields(outputs)}
    if isinstance(outputs, Mapping):
        return _output(next(iter(outputs.values())) if name is None else outputs[name], None)
    return _output(outputs[int(name or 0)], None)
