"""The same spec gives the same bits: the hash of every trained network against a table of hashes in `same_bits.json`.

A table holds for one kind of machine. Where torch computes otherwise, the test compares the policies, the formats and a
plain loop with each other. `python -m tests.integration.test_same_bits --write` writes the table for this machine;
do that for a new format, policy or torch, never to make a changed hash pass.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sample_models.build import SAMPLES, initial_module
from tests.contract.format_networks import BERT, transformer
from tests.integration.vanilla_loop import train as train_by_plain_loop
from tests.unit.formats.kit import export
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine.engine import Engine
from unifiednn_core.engine.events import Ended, Report
from unifiednn_core.engine.hybrid import HybridModel
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.registry import FORMATS, format_named
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.scheduling.registry import POLICIES, policy_named
from unifiednn_core.spec.run import ArchitectureSpec, SubModelSpec

TABLE = Path(__file__).with_name("same_bits.json")
CPU = torch.device("cpu")
TRAIN_SAMPLES, TEST_SAMPLES = 20, 6  # batches of 8 leave one of 4
SCALE = 0.0625  # the digits of the samples are whole numbers from 0 to 16

EACH_POLICY: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "fcfs": ("fcfs", {}),
    "priority": ("priority", {}),
    "sjf": ("sjf", {}),
    "round_robin": ("round_robin", {}),
    "round_robin, 1 step": ("round_robin", {"unit": "steps", "amount": 1}),
}
HYPERPARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "sgd": {
        "optimizer": "sgd",
        "learning_rate": 0.02,
        "optimizer_args": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.001},
        "criterion_args": {"label_smoothing": 0.1},
        "drop_last": True,
        "seed": 7,
    },
    "adam": {
        "optimizer": "adam",
        "learning_rate": 0.003,
        "lr_scheduler": {"name": "step", "args": {"step_size": 1, "gamma": 0.3}},
        "seed": 8,
    },
    "adamw": {
        "optimizer": "adamw",
        "learning_rate": 0.002,
        "optimizer_args": {"weight_decay": 0.05},
        "lr_scheduler": {"name": "one_cycle", "args": {"max_lr": 0.002, "total_steps": 4}, "per": "step"},
        "accumulation_steps": 2,
        "batch_split": 2,
        "warm_up": {"steps": 3},
        "gradient_clipping": {"norm": 0.5},
        "seed": 9,
    },
}


@dataclass(frozen=True)
class Row:
    """One sub-model: a network in one format with one set of hyper-parameters."""

    network: str
    format: str
    hyperparameters: str

    @property
    def sample(self) -> str:
        """Key of the table."""
        return f"{self.network}, {self.hyperparameters}"

    @property
    def digits(self) -> bool:
        """Whether it learns images; the others learn tokens."""
        return self.network in SAMPLES

    def spec(self, place: int) -> SubModelSpec:
        """Sub-model with this place in the order of arrival; later ones have priority."""
        return SubModelSpec.model_validate(
            {
                "name": f"net{place}",
                "model": "m",
                "train_data": "d",
                "priority": -place,
                "scale": SCALE if self.digits else None,
                "hyperparameters": {"epochs": 2, "batch_size": 8, **HYPERPARAMETERS[self.hyperparameters]},
            }
        )


def rows() -> list[Row]:
    """Every sample with all hyper-parameters, and in every format; other networks where a format holds no sample."""
    found = []
    for sample in SAMPLES:
        found += [Row(sample, "safetensors", hyper) for hyper in HYPERPARAMETERS]
        found += [Row(sample, name, "adam") for name in ("state_dict", "pt2")]
    found += [Row("lenet", "module", "adam"), Row("encoder", "module", "adam")]
    return [*found, Row("bert", "huggingface", "adam")]


@cache
def data(digits: bool, seed: int, samples: int) -> Dataset:
    """Images of 8x8 as the samples have them, or 9 tokens."""
    generator = torch.Generator().manual_seed(seed)
    if digits:
        inputs = torch.randint(0, 17, (samples, 1, 8, 8), generator=generator).to(torch.uint8)
    else:
        inputs = torch.randint(1, 20, (samples, 9), generator=generator)
    return Dataset.of(inputs, torch.randint(0, 10 if digits else 3, (samples,), generator=generator))


def read(network: str, format_name: str, folder: Path) -> Definition:
    """Write the network to a file of the format, and read it."""
    path, architecture = folder / f"{network}.{format_name}", None
    if format_name == "huggingface":
        path = path.with_suffix(".json")
        path.write_text(json.dumps(BERT))
    elif format_name == "module":
        torch.save(_of_torch_layers(network), path)
    elif format_name == "pt2":
        export(path, initial_module(network), torch.zeros(4, 1, 8, 8))
    else:
        sample = SAMPLES[network]
        architecture = ArchitectureSpec(name=sample.architecture, args=dict(sample.args))
        (torch.save if format_name == "state_dict" else save_file)(initial_module(network).state_dict(), path)
    return format_named(format_name).read(path, architecture)


def _of_torch_layers(network: str) -> nn.Module:
    """Network without classes of its own."""
    if network == "lenet":
        lenet: Any = initial_module(network)
        return nn.Sequential(lenet.features, lenet.classifier).train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return transformer().train()


def definitions(wanted: Iterable[Row], folder: Path) -> dict[tuple[str, str], Definition]:
    """Definition of each network in each format."""
    return {key: read(*key, folder) for key in dict.fromkeys((row.network, row.format) for row in wanted)}


def trained(wanted: list[Row], read_from: Mapping[tuple[str, str], Definition], policy: str) -> dict[Row, str]:
    """Train all in one hybrid under the policy; the hash of each."""
    held, ended = ResidentData(CPU), dict[str, str]()
    submodels = []
    for place, row in enumerate(wanted):
        spec = row.spec(place)
        definition, seed = read_from[row.network, row.format], spec.hyperparameters.seed or 0
        train = held.hold(f"train {row.digits}", partial(data, row.digits, 1, TRAIN_SAMPLES))
        test = held.hold(f"test {row.digits}", partial(data, row.digits, 2, TEST_SAMPLES))
        submodels.append(SubModel(spec, definition, seed=seed, train=train, test=test, device=CPU))

    def take(report: Report) -> None:
        if isinstance(report, Ended) and report.state_dict is not None:
            ended[report.submodel] = state_sha256(report.state_dict)

    name, parameters = EACH_POLICY[policy]
    Engine(HybridModel(submodels), policy_named(name, parameters), device=CPU, report=take).run()
    return {row: ended[f"net{place}"] for place, row in enumerate(wanted)}


@cache
def hashes() -> dict[str, dict[str, dict[str, str]]]:
    """Hash by sample, format and policy, on this machine."""
    torch.set_num_threads(1)
    table: dict[str, dict[str, dict[str, str]]] = {}
    wanted = rows()
    with tempfile.TemporaryDirectory() as folder:
        read_from = definitions(wanted, Path(folder))
        for policy in EACH_POLICY:
            for row, sha256 in trained(wanted, read_from, policy).items():
                table.setdefault(row.sample, {}).setdefault(row.format, {})[policy] = sha256
    return table


def by_plain_loop(network: str, hyperparameters: str) -> str:
    """Hash of a sample network that plain torch trains."""
    torch.set_num_threads(1)
    module, known = initial_module(network), data(True, 1, TRAIN_SAMPLES)
    hyper = Row(network, "safetensors", hyperparameters).spec(0).hyperparameters
    train_by_plain_loop(module, hyper, (known.first.to(torch.float32) * SCALE, known.targets))
    return state_sha256(module.state_dict())


def environment() -> dict[str, object]:
    """What decides about the bits of torch."""
    torch.set_num_threads(1)
    return {
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "arithmetic_sha256": arithmetic_sha256(),
    }


def arithmetic_sha256() -> str:
    """Hash of what torch alone computes here: processors of one capability still differ in their libraries."""
    generator = torch.Generator().manual_seed(4)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    results: list[Tensor] = []
    for images, kernel in ((drawn(8, 1, 8, 8), drawn(6, 1, 5, 5)), (drawn(8, 64, 2, 2), drawn(128, 64, 3, 3))):
        result = nn.functional.batch_norm(nn.functional.conv2d(images, kernel, padding=1), None, None, training=True)
        results += [result, *torch.autograd.grad(nn.functional.max_pool2d(result, 2).square().mean(), (images, kernel))]
    tokens, weight = drawn(8, 8, 64), drawn(256, 64)
    hidden = nn.functional.gelu(nn.functional.linear(nn.functional.layer_norm(tokens, (64,)), weight))
    query = hidden.reshape(8, 8, 4, 64).transpose(1, 2)
    mixed = nn.functional.scaled_dot_product_attention(query, query, query)
    loss = nn.functional.cross_entropy(mixed.flatten(1)[:, :10], torch.arange(8))
    results += [mixed, loss, *torch.autograd.grad(loss, (tokens, weight))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        results += [torch.randperm(50, generator=generator), nn.functional.dropout(results[0].detach(), 0.1)]
    digest = hashlib.sha256()
    for tensor in results:
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def test_every_hash_is_that_of_the_table() -> None:
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    found = hashes()
    assert {(sample, name, policy) for sample, of in found.items() for name, by in of.items() for policy in by} == {
        (sample, name, policy) for sample, of in table["hashes"].items() for name, by in of.items() for policy in by
    }
    if table["environment"] == environment():
        assert found == table["hashes"]


def test_every_policy_gives_the_same_hash() -> None:
    for sample, formats in hashes().items():
        for name, policies in formats.items():
            assert len(set(policies.values())) == 1, f"{sample} as {name}: {policies}"


def test_the_formats_that_hold_a_sample_give_the_hash_of_a_plain_loop() -> None:
    for network in SAMPLES:
        for hyper in HYPERPARAMETERS:
            formats = hashes()[f"{network}, {hyper}"]
            found = {name: formats[name]["fcfs"] for name in ("safetensors", "pt2", "state_dict") if name in formats}
            assert set(found.values()) == {by_plain_loop(network, hyper)}, f"{network}, {hyper}: {found}"


def test_the_table_has_every_format_and_the_policies_of_the_paper() -> None:
    assert {row.format for row in rows()} == {known.name for known in FORMATS}
    assert {name for name, _ in EACH_POLICY.values()} == {policy.name for policy in POLICIES[:4]}  # all: test_equality


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python -m tests.integration.test_same_bits --write")
    document = {"environment": environment(), "hashes": hashes()}
    TABLE.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
