"""Graphs that lead torch's kernels beyond their tensors: refused before the start, and again in the worker.

The networks are honest when they are exported; then a weight is stored smaller than the traced one, or a size in the
graph is changed. Each control lets the kernel run, and shows what it would do.
"""

import ctypes
import faulthandler
import os
import resource
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.hostile.test_shared_data import trained
from tests.integration.kit import Session, dataset, definition, submodel_spec
from tests.unit.formats import kit
from unifiednn_core.base.errors import BadInput
from unifiednn_core.formats import guard, operators
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.exported import ExportedFormat
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.spec.lifecycle import Event

WEIGHTS = "archive/data/weights/model_weights_config.json"
Edit = Callable[[Any], object]
M_PERTURB = -6


class Attention(nn.Module):
    """Samples as queries, [batch, 1, 6, 6]; keys and values of 64 rows are weights."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = (nn.Parameter(torch.randn(1, 1, 64, 8)) for _ in range(2))
        self.query, self.head = nn.Linear(36, 8), nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        query = self.query(images.flatten(1))[None, None]
        mixed = nn.functional.scaled_dot_product_attention(query, self.key, self.value)
        scores: Tensor = self.head(mixed[0, 0])
        return scores


class Recurrent(nn.Module):
    """The rows of an image as steps."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.lstm(images[:, 0])[0][:, -1])
        return scores


class Normalised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(36), nn.Linear(36, 4)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.norm(images.flatten(1)))
        return scores


class Divided(nn.Module):
    """Divides whole numbers by what a buffer holds."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 4)
        self.register_buffer("least", torch.full((36,), -(2**63)))
        self.register_buffer("by", torch.full((36,), -1))

    def forward(self, images: Tensor) -> Tensor:
        quotient = torch.div(self.least, self.by.abs(), rounding_mode="trunc")
        scores: Tensor = self.head(images.flatten(1) + quotient * 0)
        return scores


class Pooled(nn.Module):
    """Moves the positions that the backward pass of pooling will write to."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(9, 4)

    def forward(self, images: Tensor) -> Tensor:
        best, places = nn.functional.max_pool2d(images * self.head.bias[0], 2, return_indices=True)
        moved = places.view(-1, 9).add_(2**30)  # beyond every heap
        scores: Tensor = self.head(best.flatten(1) + moved * 0.0)
        return scores


def shorter(name: str, *shape: int) -> Edit:
    """Store a weight in another shape, of the first of its bytes."""

    def edit(document: Any) -> None:
        meta = document["config"][name]["tensor_meta"]
        strides = [torch.Size(shape[at + 1 :]).numel() for at in range(len(shape))]
        meta.update(sizes=[{"as_int": size} for size in shape], strides=[{"as_int": stride} for stride in strides])

    return edit


def nodes(document: Any, target: str) -> list[Any]:
    return [node for node in kit.graph_of(document)["nodes"] if node["target"] == f"torch.ops.aten.{target}"]


def state_of_two(document: Any) -> None:
    """Let the first states of the LSTM be for two samples, however many there are."""
    for node in nodes(document, "zeros.default"):
        node["inputs"][0]["arg"]["as_sym_ints"][1] = {"as_int": 2}


def by_minus_one(document: Any) -> None:
    for node in nodes(document, "abs.default"):
        node["target"] = "torch.ops.aten.clone.default"


def unsafe(document: Any) -> None:
    for node in nodes(document, "view.default"):
        node["target"] = "torch.ops.aten._unsafe_view.default"


def both(*edits: Edit) -> Edit:
    return lambda document: [edit(document) for edit in edits]


@dataclass(frozen=True)
class Attack:
    network: type[nn.Module]
    edit: Edit
    entry: str
    words: str
    """Of the refusal."""

    def made(self, folder: Path) -> Path:
        torch.manual_seed(0)
        honest = kit.export(folder / "honest.pt2", self.network(), torch.randn(3, 1, 6, 6))
        return kit.mutated(honest, folder / "forged.pt2", self.edit, entry=self.entry)


GRAPH = "archive/models/model.json"
SHORT_BIASES = both(shorter("lstm.bias_ih_l0", 8), shorter("lstm.bias_hh_l0", 8))
ATTACKS = {
    "short key": Attack(Attention, shorter("key", 1, 1, 32, 8), WEIGHTS, "'key' has 32 rows, 'value' 64"),
    "short biases": Attack(Recurrent, SHORT_BIASES, WEIGHTS, "'params' has an entry of the shape [8] instead of [32]"),
    "state of another batch": Attack(Recurrent, state_of_two, GRAPH, "'hx' has an entry of the shape [1, 2, 8]"),
    "few running means": Attack(
        Normalised, shorter("norm.running_mean", 2), WEIGHTS, "'running_mean' has the shape [2]"
    ),
    "least by minus one": Attack(Divided, by_minus_one, GRAPH, "divides whole numbers by what may be 0 or -1"),
}


@pytest.fixture(scope="module")
def forged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Definition]:
    """What intake makes of each file: all look like networks."""
    folders = {name: tmp_path_factory.mktemp("forged") for name in ATTACKS}
    return {name: ExportedFormat().read(attack.made(folders[name]), None) for name, attack in ATTACKS.items()}


@pytest.fixture
def no_contracts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "check_call", lambda *_: False)


@pytest.fixture(scope="module")
def alone() -> Session:
    return trained({"victim": definition("cnn")})


@pytest.mark.parametrize("name", ATTACKS)
def test_the_check_before_the_start_refuses_it_in_words(name: str, forged: dict[str, Definition]) -> None:
    data = dataset()
    with pytest.raises(BadInput) as refused:
        dry_run(Trial(submodel_spec("one"), forged[name], data, data))
    [finding] = refused.value.findings
    assert (finding.title, finding.field) == ("Operator refused", "submodels.one.model")
    assert ATTACKS[name].words in finding.message
    assert "OPERATORS.md" in finding.remedy


@pytest.mark.parametrize("name", ATTACKS)
def test_in_a_worker_it_ends_that_sub_model_alone_with_the_same_words(
    name: str, forged: dict[str, Definition], alone: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = trained({"attacker": forged[name], "victim": definition("cnn")})
    ended = outcome.ended["attacker"]
    assert (ended.event, ended.checkpoint) == (Event.FAIL, None)
    assert ATTACKS[name].words in (ended.cause or "")
    assert "OPERATORS.md" in (ended.remedy or "")
    assert outcome.hashes()["victim"] == alone.hashes()["victim"]
    assert outcome.losses("victim") == alone.losses("victim")
    capfd.readouterr()


def behind(module: nn.Module, names: list[str], pattern: float) -> None:
    """Move short weights into larger buffers, the rest of which is filled with a pattern."""
    for name in names:
        weight = module.get_parameter(name)
        buffer = torch.full((4096,), pattern)
        buffer[: weight.numel()] = weight.detach().flatten()
        weight.data = buffer[: weight.numel()].view(weight.shape)


@contextmanager
def free_memory(byte: int) -> Iterator[None]:
    """Let the C library fill what is freed: a kernel that adds two short weights reads on behind their sum."""
    set_option = ctypes.CDLL(None).mallopt
    try:
        assert set_option(M_PERTURB, byte)
        yield
    finally:
        set_option(M_PERTURB, 0)


@pytest.mark.usefixtures("no_contracts")
@pytest.mark.parametrize(
    ("name", "weights"), [("short key", ["key"]), ("short biases", ["lstm.bias_ih_l0", "lstm.bias_hh_l0"])]
)
def test_without_its_contract_the_kernel_reads_what_lies_behind(
    name: str, weights: list[str], forged: dict[str, Definition]
) -> None:
    outputs = set()
    for pattern, byte in ((0.5, 0x3E), (-3.0, 0xBF)):
        module = forged[name].build().eval()
        behind(module, weights, pattern)
        with free_memory(byte):
            outputs.add(module(dataset().inputs["inputs"]).detach().numpy().tobytes())
    assert len(outputs) == 2


def death_of(run: Callable[[], object]) -> int | None:
    """Signal that ends a child that does this; None if it lives."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # threads of torch stay behind
        pid = os.fork()
    if not pid:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            run()
        finally:
            os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return -status if status < 0 else None


def step(module: nn.Module) -> None:
    for _ in range(40):  # a damaged heap is noticed sooner or later
        module(dataset().inputs["inputs"]).sum().backward()


@pytest.mark.usefixtures("no_contracts")
@pytest.mark.parametrize("name", ["state of another batch", "least by minus one"])
def test_without_its_contract_the_kernel_ends_the_process(name: str, forged: dict[str, Definition]) -> None:
    module = forged[name].build()
    assert death_of(lambda: step(module)) is not None


def test_positions_that_pooling_saved_cannot_be_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Autograd notices a change through any view but an unsafe one, which runs as a plain one."""
    path = Attack(Pooled, unsafe, GRAPH, "").made(tmp_path)
    data = dataset()
    with pytest.raises(BadInput, match="modified by an inplace operation"):
        dry_run(Trial(submodel_spec("one"), ExportedFormat().read(path, None), data, data))
    monkeypatch.setattr(operators, "_REPLACED", {})
    module = ExportedFormat().read(path, None).build()
    assert death_of(lambda: step(module)) is not None


class Scratch(nn.Module):
    """Copies memory that nothing was written to into a buffer, to be read at home."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 4)
        self.register_buffer("loot", torch.ones(2048))

    def forward(self, images: Tensor) -> Tensor:
        self.loot.copy_(images.new_empty((2048,)))
        scores: Tensor = self.head(images.flatten(1))
        return scores


def test_memory_that_nothing_was_written_to_is_zeros(tmp_path: Path) -> None:
    path = kit.export(tmp_path / "m.pt2", Scratch(), torch.randn(3, 1, 6, 6))
    module = ExportedFormat().read(path, None).build()
    assert any(node.target is torch.ops.aten.new_zeros.default for node in module.graph.nodes)  # type: ignore[union-attr]
    module(dataset().inputs["inputs"])
    assert not module.get_buffer("loot").any()
