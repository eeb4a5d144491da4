"""Networks that write into their input, beside an innocent one on the same data: nobody's data or bits change."""

from collections.abc import Mapping
from io import StringIO
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.integration.kit import CPU, Session, dataset, definition, submodel_spec
from tests.integration.vanilla_loop import train as train_by_plain_loop
from tests.unit.compare.kit import MEANING, job_in
from tests.unit.formats.kit import export
from unifiednn_core.compare import vanilla
from unifiednn_core.data.batch import Batch
from unifiednn_core.data.datasets import Dataset
from unifiednn_core.engine import notebook
from unifiednn_core.engine.events import DataChanged, EpochDone, Report
from unifiednn_core.engine.orders import Order
from unifiednn_core.engine.resident_data import ResidentData
from unifiednn_core.engine.submodel import SubModel
from unifiednn_core.formats import registry
from unifiednn_core.formats.base import Definition
from unifiednn_core.formats.weights import state_sha256
from unifiednn_core.preflight.dry_run import dry_run
from unifiednn_core.preflight.measure import measure
from unifiednn_core.preflight.trial import Trial
from unifiednn_core.scheduling.round_robin import RoundRobin
from unifiednn_core.spec.lifecycle import Event

DATA = dataset()


class Wiper(nn.Module):
    """Learns nothing, and would leave nothing to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(36, 4)

    def spoilt(self, images: Tensor) -> Tensor:
        return images.zero_()

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.spoilt(images).flatten(1))
        return scores


class Halver(Wiper):
    """Writes through another view of its input, into every second number."""

    def spoilt(self, images: Tensor) -> Tensor:
        images.view(-1)[::2].mul_(0.5)
        return images


class WipesBytes(nn.Module):
    """Takes the samples of the baseline's tests, uint8 [batch, 2, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(images.zero_().flatten(1).float())
        return scores


def relu() -> nn.Module:
    return nn.Sequential(nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(36, 4))


@pytest.fixture(scope="module")
def attackers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Definition]:
    """What intake makes of each file."""
    folder = tmp_path_factory.mktemp("attackers")
    for name, network in {"relu": relu(), "zero": Wiper(), "strided": Halver()}.items():
        export(folder / f"{name}.pt2", network, torch.randn(3, 1, 6, 6))
    torch.save(relu(), folder / "relu.pt")
    read = {}
    for path in folder.iterdir():
        known = registry.sniff(path)
        assert known is not None, path.name
        read[path.name] = known.read(path, None)
    return read


ATTACKERS = ("relu.pt2", "relu.pt", "zero.pt2", "strided.pt2")


def trained(networks: Mapping[str, Definition], *orders: tuple[str, int, Order]) -> Session:
    """Train these on one data set, which is also what they are tested on, in turns of an epoch."""
    resident = ResidentData(CPU)
    ready = [
        SubModel(
            submodel_spec(name.partition(".")[0], epochs=2),
            network,
            seed=3,
            train=resident.hold(
                "shared", lambda: Dataset.of(DATA.first.clone(), DATA.targets.clone()), f"{name} train"
            ),
            test=resident.hold("shared", dataset, f"{name} test"),
            device=CPU,
        )
        for name, network in networks.items()
    ]

    def post(session: Session, report: Report) -> None:
        for name, epoch, order in orders:
            if isinstance(report, EpochDone) and (report.submodel, report.figures.epoch) == (name, epoch):
                session.engine.post(order)

    session = Session((), RoundRobin(), post, ready=ready).run()
    session.data = resident
    return session


@pytest.fixture(scope="module")
def alone() -> Session:
    outcome = trained({"victim": definition("cnn")})
    hyper = submodel_spec("victim", epochs=2).hyperparameters
    plain = train_by_plain_loop(definition("cnn").build(), hyper, (DATA.first, DATA.targets))
    assert outcome.hashes()["victim"] == state_sha256(plain.module.state_dict())
    return outcome


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the defence off: evaluation gives the network the data set itself."""
    copies = Dataset.batch

    def batch(self: Dataset, samples: Tensor | slice) -> Batch:
        if isinstance(samples, Tensor):
            return copies(self, samples)
        return Batch({name: one[samples] for name, one in self.inputs.items()}, self.targets[samples])

    monkeypatch.setattr(Dataset, "batch", batch)


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_a_neighbour_that_writes_into_its_input_changes_nothing(
    attacker: str, attackers: Mapping[str, Definition], alone: Session
) -> None:
    outcome = trained({attacker: attackers[attacker], "victim": definition("cnn")})
    assert outcome.hashes()["victim"] == alone.hashes()["victim"]
    assert outcome.epochs("victim") == alone.epochs("victim")
    assert outcome.losses("victim") == alone.losses("victim")
    assert outcome.of(DataChanged) == []
    assert {ended.event for ended in outcome.ended.values()} == {Event.COMPLETE}
    assert outcome.data.sets == {}, "the last lease has verified it"


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("attacker", ATTACKERS)
def test_without_the_copies_the_victim_suffers_and_everybody_hears_of_it(
    attacker: str, attackers: Mapping[str, Definition], alone: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome, name = trained({attacker: attackers[attacker], "victim": definition("cnn")}), attacker.partition(".")[0]
    assert outcome.losses("victim") != alone.losses("victim")
    assert [(r.submodel, r.data) for r in outcome.of(DataChanged)] == [
        (name, f"{attacker} test"),
        ("victim", "victim test"),
    ]
    assert outcome.ended[name].event is Event.COMPLETE, "it had ended before; its owner gets the report"
    victim = outcome.ended["victim"]
    assert (victim.event, victim.checkpoint) == (Event.FAIL, None)
    assert victim.cause == "The data set 'victim test' changed in memory while victim used it."
    assert "from the start" in (victim.remedy or "")
    assert "DamagedData" in capfd.readouterr().err


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("order", [Order(Event.SAVE, None, 7), Order(Event.SAVE, "victim", 7), Order(Event.PAUSE)])
def test_damage_is_found_on_demand_and_ends_all_that_still_train_on_it(
    order: Order, attackers: Mapping[str, Definition]
) -> None:
    """The orders come while the attacker holds the device, after its first evaluation."""
    networks = {"zero.pt2": attackers["zero.pt2"], "victim": definition("cnn"), "other": definition("plain")}
    outcome = trained(networks, ("zero", 1, order))
    assert {r.submodel for r in outcome.of(DataChanged)} == {"zero", "victim", "other"}
    assert {name: ended.event for name, ended in outcome.ended.items()} == dict.fromkeys(
        ("zero", "victim", "other"), Event.FAIL
    )
    assert outcome.epochs("victim") == []


def test_the_check_the_notebook_and_the_baseline_hand_out_no_data_either(
    attackers: Mapping[str, Definition], tmp_path: Path
) -> None:
    for name, network in attackers.items():
        data = DATA.checksummed()
        trial = Trial(submodel_spec("one", optimizer="adam"), network, data, data)
        measure(trial, dry_run(trial), "cpu", ["a", "b"])
        assert data.sha256() == data.checksum, name
    inputs, targets = DATA.first.clone(), DATA.targets.clone()
    hyper = submodel_spec("one").hyperparameters
    one = notebook.submodel("one", Wiper(), inputs, targets, hyper, test=(inputs, targets), device="cpu")
    assert notebook.train([one])["one"].event is Event.COMPLETE
    assert torch.equal(inputs, DATA.first)
    with torch.random.fork_rng(devices=[]):
        script = vanilla.PlainScript(job_in(tmp_path, meaning=MEANING), vanilla.ProgressWriter(StringIO(), 1))
        assert script.test_data is not None
        before = [inputs.sum().item() for inputs, _ in script.test_data]
        script.module = WipesBytes()
        script.train()
    assert [inputs.sum().item() for inputs, _ in script.test_data] == before


def test_a_notebook_warns_where_its_own_tensors_changed(capfd: pytest.CaptureFixture[str]) -> None:
    inputs = DATA.first.clone()
    one = notebook.submodel("one", nn.Sequential(nn.Flatten(), nn.Linear(36, 4)), inputs, DATA.targets, device="cpu")
    inputs += 1
    with pytest.warns(RuntimeWarning, match="'training data' changed in memory while one used it"):
        assert notebook.train([one])["one"].event is Event.FAIL
    assert "DamagedData" in capfd.readouterr().err
