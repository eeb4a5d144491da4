"""Two people of one dashboard, their networks in one process, one of them hostile: the other notices nothing.

The hostile one spoils data, draws numbers, turns bad in the middle, forges names and files, and reaches for everything
of the other by its id: in a browser, by the routes, over the websocket, in a terminal. What the other gets is what
came out alone, to the bit.
"""

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer.testing

from tests.hostile import tenants
from tests.hostile.names import NAMES
from tests.hostile.signed import signed_house
from tests.hostile.tenants import ALICE, MALLORY, NETWORKS, OTTO, SPOILT, Tenant
from tests.hostile.test_kernel_leaks import ATTACKS
from tests.unit.engine.start_kit import changed
from tests.unit.service.kit import HERS, add_files, add_run
from tests.waiting import wait_until
from unifiednn_core.base.errors import BadInput
from unifiednn_core.base.paths import Home
from unifiednn_core.cli import main as cli
from unifiednn_core.engine import checkpoint_file
from unifiednn_core.service.facade import Service
from unifiednn_core.service.roles import LOCAL_OPERATOR, Actor, Role
from unifiednn_core.spec.lifecycle import ENDED, State
from unifiednn_core.spec.run import parse_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
HYPER = {"epochs": 3, "batch_size": 8, "optimizer": "adam", "learning_rate": 0.01}


@dataclass
class Both:
    """The two, the service of the operator who arranges them, and the runs of Alice alone and beside Mallory."""

    alice: Tenant
    mallory: Tenant
    service: Service
    alone: str
    shared: str
    refused: dict[str, str]

    def zip_of(self, run_id: str) -> dict[str, bytes]:
        """What Alice downloads of her sub-model."""
        status, content = self.alice.ask("GET", f"/files/models/{run_id}/alpha")
        assert status == 200
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


def part(tenant: Tenant, name: str, **more: Any) -> dict[str, Any]:
    data = tenant.files["ids.npz" if name == "ids" else "data.npz"]
    hyper = HYPER | ({"optimizer": "sgd", "learning_rate": 1e30} if name == "nan" else {})
    spec = {"name": name, "model": tenant.files[f"{name}.pt2"], "train_data": data, "hyperparameters": hyper}
    return spec | ({} if name == "ids" else {"test_data": data}) | more


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    home = Home(tmp_path_factory.mktemp("tenants") / "home").create()
    service = Service.open(home)
    operator = service.acting_as(Actor(id=OTTO, name="Otto", role=Role.OPERATOR))
    for person in (ALICE, MALLORY):
        service.people.give_role(person, "submitter")
        service.people.give_team(person, "lab")
    with signed_house(home, {"learners": "submitter", "staff": "operator"}, forked=True) as house:
        alice, mallory = Tenant(house, ALICE), Tenant(house, MALLORY)
        for name in NETWORKS:
            owner = alice if name == "alpha" else mallory
            assert owner.upload(f"{name}.pt2", tenants.model(name))[0] == 200, name
        for owner, name in ((alice, "data.npz"), (mallory, "data.npz"), (mallory, "ids.npz")):
            assert owner.upload(name, tenants.data(name.partition(".")[0]))[0] == 200

        def run(name: str, *parts: dict[str, Any]) -> str:
            policy = {"name": "round_robin"}
            spec = {"name": name, "device": "cpu", "threads": 1, "seed": 7, "policy": policy, "submodels": parts}
            return operator.runs.submit(parse_run(spec))

        hostile = [part(mallory, name) for name in NETWORKS if name != "alpha"]
        first, last = hostile[:4], hostile[4:]
        runs = [run("alone", part(alice, "alpha")), run(NAMES[5], *first, part(alice, "alpha"), *last)]
        refused = {}
        for filename, content in {"data.npz": b"PK\x03\x04 nothing", "alpha.pt2": b"\x80\x02cos\nsystem\n."}.items():
            status, told = mallory.upload(f"{filename}\u202e<img src=x>", content)
            refused[filename] = f"{status} {told}"
        wait_until(lambda: all(operator.runs.observe(one).state in ENDED for one in runs), "the end of both runs")
        yield Both(alice, mallory, operator, *runs, refused)
    service.close()


def test_the_hostile_networks_did_what_they_wanted_to(both: Both) -> None:
    """Else there would be nothing to withstand."""
    view = both.service.runs.observe(both.shared)
    assert {one.name: one.state for one in view.submodels} == {
        name: State.FAILED if name in SPOILT else State.COMPLETED for name in NETWORKS
    }
    causes = {one.name: one.cause or "" for one in view.submodels}
    assert "loss of nan" in causes["nan"] and re.search(r"index|range|ids|embedding", causes["ids"])
    assert view.recoveries == 0
    assert all(answer.startswith("422") for answer in both.refused.values())


def test_each_network_does_harm_where_nothing_is_in_its_way() -> None:
    """In one process of plain PyTorch, on one data set and one stream of random numbers."""
    for name, (network, example) in NETWORKS.items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module, given = network().train(), example.clone()
            before, drawn = given.clone(), torch.get_rng_state()
            with suppress(IndexError):
                for _ in range(8):
                    module(given)
            moved = not torch.equal(torch.get_rng_state(), drawn)
            assert torch.equal(given, before) is (name not in ("relu", "zero", "strided")), name
            assert moved is (name in ("alpha", "noise", "nan")), name


def test_weights_figures_and_files_are_those_of_training_alone(both: Both) -> None:
    alone, shared = (both.service.runs.observe(run_id) for run_id in (both.alone, both.shared))
    [mine], [there] = ([one for one in view.submodels if one.name == "alpha"] for view in (alone, shared))
    assert there.state is State.COMPLETED and there.state_sha256 == mine.state_sha256 is not None
    for figure in ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "loss", "accuracy", "test_loss_curve"):
        assert getattr(there, figure) == getattr(mine, figure), figure
    runs = both.service.runs
    wait_until(
        lambda: all(
            one.certificate
            for run_id in (both.alone, both.shared)
            for one in runs.observe(run_id).submodels
            if one.name == "alpha"
        ),
        "both certificates",
    )
    before, after = (both.zip_of(run_id) for run_id in (both.alone, both.shared))
    assert before.keys() == after.keys() and {"weights.safetensors", "metrics.csv", "load.py"} <= before.keys()
    different = {name for name in before if before[name] != after[name]}
    assert different <= {"spec.json", "alpha.pt2", "certificate.json"}
    proofs = [json.loads(one["certificate.json"]) for one in (before, after)]
    assert all(proof["holds"] for proof in proofs) and proofs[0]["state_sha256"] == proofs[1]["state_sha256"]
    assert not [word for word in ("relu", "strided", "denormal", MALLORY) if word.encode() in after["certificate.json"]]
    archives = [zipfile.ZipFile(io.BytesIO(one["alpha.pt2"])) for one in (before, after)]
    assert archives[0].namelist() == archives[1].namelist()
    assert all(archives[0].read(name) == archives[1].read(name) for name in archives[0].namelist())
    told = json.loads(after["spec.json"])
    assert [one["name"] for one in told["submodels"]] == ["alpha"]
    for run_id in (both.alone, both.shared):
        status, text = both.alice.ask("GET", f"/files/metrics/{run_id}.csv")
        rows = list(csv.reader(io.StringIO(text.decode())))
        assert status == 200 and len(rows) > 10 and {row[0] for row in rows[1:]} == {"alpha"}
    own = {file.filename: file.sha256 for file in service_of(both, ALICE).library.files()}
    assert own == {name: reference.removeprefix("sha256:") for name, reference in both.alice.files.items()}


def test_forged_models_and_checkpoints_are_refused_before_they_meet_anybody(both: Both, tmp_path: Path) -> None:
    """The checkpoint is Mallory's own, of the run above, with a flag and a short buffer for the fused kernel."""
    service, mallory = service_of(both, MALLORY), both.mallory
    for name in ("short key", "short biases", "least by minus one"):
        assert mallory.upload(f"{name}.pt2", ATTACKS[name].made(tmp_path).read_bytes())[0] == 200
        with pytest.raises(BadInput, match=r"OPERATORS\.md"):
            service.runs.submit(parse_run({"submodels": [part(mallory, name) | {"name": "forged"}]}))
    status, own = mallory.ask("GET", f"/files/checkpoints/{both.shared}/noise")
    assert status == 200
    honest, hostile = tmp_path / "honest.safetensors", tmp_path / "hostile.safetensors"
    honest.write_bytes(own)
    taken = checkpoint_file.read(honest)
    [group] = taken.state["optimizer"]["param_groups"]
    state = {0: {**taken.state["optimizer"]["state"][0], "exp_avg": torch.zeros(1, 1)}}
    checkpoint_file.write(changed(taken, "optimizer", state=state, param_groups=[{**group, "fused": True}]), hostile)
    for path, refused in ((honest, False), (hostile, True)):
        assert mallory.upload(path.name, path.read_bytes())[0] == 200
        more = {"start_from": {"file": mallory.files[path.name]}, "hyperparameters": HYPER | {"epochs": 9}}
        checked = service.runs.check(parse_run({"submodels": [part(mallory, "noise", **more)]}))
        errors = [finding for finding in checked.findings if finding.severity == "error"]
        assert bool(errors) is refused, (path.name, errors)


def service_of(both: Both, person: str) -> Service:
    return both.service.acting_as(Actor(id=person, name=person, role=Role.SUBMITTER))


def test_nothing_of_the_other_can_be_read_or_moved_by_its_id(
    both: Both, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    alice, mallory = both.alice, both.mallory
    status, begun = alice.ask("POST", "/files/uploads", '{"filename": "hers.pt", "size_bytes": 3}')
    upload = json.loads(begun)["upload_id"]
    draft = service_of(both, ALICE).library.save_draft({"name": "secret plan"})
    paths = [f"{kind}/{run_id}/alpha" for kind in ("models", "checkpoints") for run_id in (both.alone, both.shared)]
    documents = {"runs": "json", "metrics": "csv", "specs": "json", "comparisons": "json", "reports": "html"}
    paths += [f"{kind}/{both.alone}.{suffix}" for kind, suffix in documents.items()]
    paths += [f"uploads/{upload}"]
    told = []
    for path in paths:
        status, content = mallory.ask("GET", f"/files/{path}")
        assert status == 404, path
        told.append(content)
    for method, path in (("PATCH", ""), ("POST", "/finish"), ("DELETE", "")):
        assert mallory.ask(method, f"/files/uploads/{upload}{path}", b"123", Upload_Offset="0")[0] == 404
    for path in (f"runs/{both.shared}.json", f"specs/{both.shared}.json", f"metrics/{both.shared}.csv"):
        status, content = mallory.ask("GET", f"/files/{path}")
        assert status == 200, "it is Mallory's, too"
        told.append(content)
    pages = [f"run?run={both.alone}", f"run?run={both.shared}", f"compare?run={both.shared}", f"build?draft={draft}"]
    told += [mallory.house.visit(page, mallory.cookie).told for page in (*pages, "now", "library", "people")]
    secrets = ("alpha", ALICE, "secret plan", alice.files["alpha.pt2"])  # both have the same data
    for content in told:
        text = content.replace(both.alone.encode(), b"").replace(f"/{both.shared}/alpha".encode(), b"")
        text = re.sub(rb"'alpha'", b"", text)  # an answer names what was asked for
        for secret in secrets:
            assert secret.removeprefix("sha256:").encode() not in text, (secret, content[:300])

    token = both.service.acting_as(LOCAL_OPERATOR).people.create_token(MALLORY, "submitter", 1)
    monkeypatch.setenv("UNIFIEDNN_HOME", str(both.service.home.root))
    folder = str(tmp_path_factory.mktemp("loot"))
    for words in (
        ("pause", both.alone),
        ("stop", both.alone),
        ("resume", both.alone, "alpha"),
        ("stop", both.shared, "alpha"),
        ("download", both.alone, "alpha", "--to", folder),
        ("download", both.shared, "alpha", "--to", folder),
        ("edit", both.shared, "alpha", "--epochs", "9"),
        ("pause", both.shared),
        ("edit", both.alone, "alpha", "--priority", "1"),
    ):
        done = typer.testing.CliRunner().invoke(cli.app, list(words), env={"UNIFIEDNN_TOKEN": token})
        assert done.exit_code == 2 and re.search("not found|not allowed", done.output.lower()), (words, done.output)

    assert service_of(both, ALICE).library.draft(draft)["name"] == "secret plan"
    assert alice.ask("GET", f"/files/uploads/{upload}")[0] == 200
    assert alice.ask("GET", f"/files/models/{both.shared}/alpha")[0] == 200


def test_a_button_of_the_other_does_nothing_in_ones_own_session(both: Both) -> None:
    """Mallory sends what Alice's browser would send for each button of her page."""
    store = both.service.store
    add_files(store, {"alpha": ALICE})
    add_run(store, both.service.home, HERS, ALICE, {"alpha": ALICE})
    hers = f"run?run={HERS}"
    shown = both.alice.house.visit(hers, both.alice.cookie).told
    buttons = sorted({one.decode() for one in re.findall(rb"\$\$ID-[0-9a-f]+-(?:pause|save|stop)[\w-]*", shown)})
    assert len(buttons) >= 2
    for page in (hers, "now", ""):
        both.mallory.house.visit(page, both.mallory.cookie, press=buttons)
    assert store.commands.open(HERS) == []
    both.alice.house.visit(hers, both.alice.cookie, press=[one for one in buttons if "pause" in one][:1])
    assert [command.verb for command in store.commands.open(HERS)] == ["pause"], "hers works"


def test_the_other_is_told_nothing_of_the_hostile_networks(both: Both) -> None:
    for page in ("now", f"run?run={both.shared}", "library"):
        told = both.alice.house.visit(page, both.alice.cookie).told
        assert not [word for word in ("relu", "strided", "denormal", MALLORY) if word.encode() in told]
