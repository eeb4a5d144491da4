"""A second reader that shares nothing with ours sees every mistake of ours, and says where."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.unit.formats import kit
from unifiednn_core.formats import exported, graph
from unifiednn_core.preflight import oracle
from unifiednn_core.preflight.report import OracleJob, OracleReport
from unifiednn_core.spec.run import SubModelSpec


class Everything(nn.Module):
    """What evaluation turns off, what it leaves on, and a buffer that it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.fixed = nn.Conv1d(1, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.norm, self.own = nn.BatchNorm1d(4), nn.InstanceNorm1d(4)
        self.tracked = nn.InstanceNorm1d(4, track_running_stats=True)
        self.drop, self.rrelu = nn.Dropout(0.3, inplace=True), nn.RReLU()
        self.rnn = nn.GRU(4, 4, num_layers=2, dropout=0.4, batch_first=True)
        self.mix = nn.Parameter(torch.randn(4, 4).t())  # stored with strides of its own
        self.register_buffer("num_batches_tracked", torch.tensor(0))

    def forward(self, rows: Tensor) -> Tensor:
        self.fixed.eval()
        self.num_batches_tracked.add_(1)
        hidden = self.tracked(self.own(self.rrelu(self.norm(self.fixed(self.conv(rows))))))
        steps = self.rnn(self.drop(self.norm(hidden) * 2).transpose(1, 2))[0]
        mixed = nn.functional.scaled_dot_product_attention(steps, steps, steps, dropout_p=0.2 if self.training else 0.0)
        return mixed.mean(1) @ self.mix + torch.rand_like(mixed[:, 0]) / self.num_batches_tracked


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> OracleJob:
    folder = tmp_path_factory.mktemp("oracle")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        rows = torch.randint(0, 255, (5, 1, 6), dtype=torch.uint8)
        path = kit.export(folder / "m.pt2", Everything().train(), rows.float())
    torch.save({"inputs": rows, "targets": torch.zeros(5)}, folder / "data.pt")
    submodel = SubModelSpec(name="one", model="m.pt2", train_data="data.pt", scale=1 / 255, mean=0.5)
    return OracleJob(model=path, train_data=folder / "data.pt", submodel=submodel, scratch=folder)


def test_both_readers_agree_on_all_that_evaluation_changes(job: OracleJob) -> None:
    before = torch.get_rng_state()
    assert oracle.ask_torch(job) == OracleReport(answer="same", text="4 steps and 3 evaluations on the CPU")
    assert torch.equal(torch.get_rng_state(), before)
    assert sorted(path.name for path in job.scratch.iterdir()) == ["data.pt", "m.pt2"]


def test_a_network_that_was_exported_on_a_gpu_is_read_too(job: OracleJob) -> None:
    content = kit.entries_of(job.model)["archive/models/model.json"]
    on_gpu = content.replace(b'"type": "cpu", "index": null', b'"type": "cuda", "index": 0')
    assert on_gpu != content
    path = kit.mutated(job.model, job.scratch / "gpu.pt2", replace={"archive/models/model.json": on_gpu})
    assert oracle.ask_torch(job.model_copy(update={"model": path})).answer == "same"
    path.unlink()


def test_what_torch_cannot_read_or_train_has_no_answer(job: OracleJob, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = job.scratch / "broken.pt2"
    broken.write_bytes(job.model.read_bytes()[:-100])
    found = oracle.ask_torch(job.model_copy(update={"model": broken}))
    assert (found.answer, "HostileFile" in found.text) == ("none", True)
    broken.unlink()

    def refuse(path: object) -> None:
        raise RuntimeError(f"no \x1b[31mloader for {path}\nand more")

    monkeypatch.setattr(torch.export, "load", refuse)
    found = oracle.ask_torch(job)
    assert found.text.startswith(
        "torch could not read and train it (RuntimeError: no \\x1b[31mloader for home/oracle0/"
    )
    assert str(job.scratch.parent) not in found.text


def always_on(name: str) -> Callable[..., Any]:
    """The flag of one operator stays on in evaluation."""
    original = graph._depends_on_mode
    return lambda node, *rest: node.target.split(".")[3] != name and original(node, *rest)


ON_IN_TRAINING = ("dropout_", "gru", "batch_norm", "instance_norm", "rrelu", "scaled_dot_product_attention")


def one_weight_is_another(network: Any) -> nn.Module:
    module = graph.build_module(network)
    with torch.no_grad():
        module.get_parameter("conv.weight")[0, 0, 0] += 2**-20
    return module


@pytest.mark.parametrize(
    ("place", "name", "fault", "says"),
    [
        (graph, "_counters", lambda network: frozenset(), "the bits of norm.num_batches_tracked differ"),
        *((graph, "_depends_on_mode", always_on(name), "after the first evaluation") for name in ON_IN_TRAINING),
        (exported, "build_module", one_weight_is_another, "the bits of conv.weight differ before the first step"),
        (exported, "for_evaluation", lambda network: network.training, "in the file for inference"),
    ],
)
def test_a_mistake_of_our_reader_is_found_and_placed(
    job: OracleJob, place: Any, name: str, fault: Any, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, fault)
    found = oracle.ask_torch(job)
    assert (found.answer, says in found.text) == ("differs", True), found.text
