"""The parts of the service over a real store; only the intake process is replaced by its reports."""

import hashlib
import os
from pathlib import Path

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from tests.reports import report_of
from tests.unit.service.kit import ALICE, BOB, HERS, OPERATOR, World, sha
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.machine.devices import devices_of_host, processor_name
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import CheckReport, FileReport, ResolvedFile
from unifiednn_core.service import submission
from unifiednn_core.service.facade import Service
from unifiednn_core.service.submission import own_findings
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.store.schema import SubModelRow

MODEL, DATA = (f"sha256:{sha(word)}" for word in ("alpha-model", "alpha-data"))
SPEC = parse_run(
    {"submodels": [{"name": "alpha", "model": MODEL, "train_data": DATA, "hyperparameters": {"epochs": 2}}]}
)


def content_of(path: Path) -> str:
    """Hash of a file, or the one that its name is."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else path.name.removeprefix("sha256:")


@pytest.fixture
def intake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of an intake process that finds nothing wrong."""

    def inspect(path: Path, filename: str, *, convert_to: Path | None = None, **_: object) -> FileReport:
        content = path.read_bytes()
        return FileReport(
            kind="model", format="pt2", sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content), facts={}
        )

    def check(spec: RunSpec, base: Path, home: object, tell: object = None) -> CheckReport:
        names = {name for part in spec.submodels for name in (part.model, part.train_data)}
        return CheckReport(
            files={
                name: ResolvedFile(path=base, sha256=content_of(base / name), size_bytes=1, filename="f")
                for name in names
            },
            submodels={part.name: report_of(part.name) for part in spec.submodels},
        )

    monkeypatch.setattr(client, "inspect", inspect)
    monkeypatch.setattr(client, "check", check)


def test_a_hybrid_and_its_baselines_are_queued_together_or_not_at_all(
    here: World, intake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(here.service.runs.runs())
    made, baseline = [], submission.Submissions.baseline

    def failing(self: submission.Submissions, *given: object) -> object:
        run, rows = baseline(self, *given)  # type: ignore[arg-type]
        made.append(run.mode)
        return (run, rows) if len(made) < 2 else (replace_id(run), rows)

    def replace_id(run: object) -> object:
        run.id = HERS  # type: ignore[attr-defined]  # exists already
        return run

    monkeypatch.setattr(submission.Submissions, "baseline", failing)
    with pytest.raises(IntegrityError):
        here.service.runs.submit(SPEC, baselines=("concurrent", "sequential"))
    assert made == ["concurrent", "sequential"]
    assert len(here.service.runs.runs()) == before
    monkeypatch.undo()


def test_files_named_by_path_enter_the_library_once_the_spec_is_accepted(
    here: World, intake: None, tmp_path: Path
) -> None:
    words = {"net.pt2": b"a network", "data.pt": b"a data set"}
    for filename, content in words.items():
        (tmp_path / filename).write_bytes(content)
    spec = parse_run({"submodels": [{"name": "one", "model": "net.pt2", "train_data": "data.pt"}]})

    def refuse(_findings: object) -> None:
        raise BadInput.of("Refused", "one", "The person says no.", "Submit it again.")

    with pytest.raises(BadInput):
        here.service.runs.submit(spec, tmp_path, on_warnings=refuse)
    assert not [path for path in here.home.files.rglob("*") if path.is_file()]
    run_id = here.service.runs.submit(spec, tmp_path)
    [part] = here.store.runs.get(run_id)[0].spec["submodels"]
    kept = {name: here.home.file(part[name].removeprefix("sha256:")).read_bytes() for name in ("model", "train_data")}
    assert kept == {"model": words["net.pt2"], "train_data": words["data.pt"]}
    assert {"net.pt2", "data.pt"} <= {file.filename for file in here.service.library.files()}


def test_a_file_that_changes_after_its_check_is_refused(here: World, intake: None, tmp_path: Path) -> None:
    for filename in ("net.pt2", "data.pt"):
        (tmp_path / filename).write_bytes(b"as it was checked")
    spec = parse_run({"submodels": [{"name": "one", "model": "net.pt2", "train_data": "data.pt"}]})

    def change(_findings: object) -> None:
        (tmp_path / "net.pt2").write_bytes(b"another network")

    before = here.service.runs.runs()
    with pytest.raises(BadInput, match=r"net\.pt2 has changed since it was checked\. Submit again"):
        here.service.runs.submit(spec, tmp_path, on_warnings=change)
    assert here.service.runs.runs() == before


@pytest.mark.parametrize("first", [False, True])
def test_the_baselines_stand_before_or_after_the_hybrid_in_the_queue(here: World, intake: None, first: bool) -> None:
    run_id = here.of(ALICE).runs.submit(SPEC, baselines=("concurrent",), baselines_first=first)
    queued = [view for view in here.of(OPERATOR).runs.runs() if view.state is State.QUEUED]
    assert {view.mode: view.queue_position for view in queued} == {"hybrid": 1 + first, "concurrent": 2 - first}
    assert here.of(OPERATOR).runs.observe(run_id).queue_position == 1 + first


def test_the_device_of_a_run_is_decided_once(here: World, intake: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = here.service.runs.submit(SPEC)
    monkeypatch.setattr(submission, "slot", lambda device: "cuda:0")
    assert here.store.runs.get(run_id)[0].device == "auto", "what was asked; placement decides"
    assert here.service.comparisons.why_no_baseline(run_id) is None


def test_an_imported_file_is_on_disk_before_the_library_lists_it(
    here: World, intake: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    fsync, add_file = os.fsync, here.store.library.add_file
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle).st_ino), fsync(handle))[1])
    listed_after: list[set[int]] = []
    monkeypatch.setattr(
        here.store.library, "add_file", lambda **row: (listed_after.append(set(synced)), add_file(**row))[1]
    )
    view = here.service.library.import_file("net.pt2", [b"abc"])
    place = here.home.file(view.sha256)
    assert {place.stat().st_ino, place.parent.stat().st_ino} <= listed_after[0]


def test_a_new_name_of_the_same_content_renames_it_for_nobody_else(here: World, intake: None) -> None:
    alice, bob = here.of(ALICE).library, here.of(BOB).library
    first = alice.import_file("MLP.pt2", [b"abc"])
    draft_id = alice.save_draft({"submodels": [{"name": "a", "model": f"sha256:{first.sha256}"}]})
    assert bob.import_file("net.pt2", [b"abc"]).filename == "net.pt2"
    names = {one: {f.sha256: f.filename for f in here.of(one).library.files()} for one in (ALICE, BOB, OPERATOR)}
    assert [names[one][first.sha256] for one in (ALICE, BOB, OPERATOR)] == ["MLP.pt2", "net.pt2", "MLP.pt2"]

    again = alice.import_file("renamed.pt2", [b"abc"])
    assert (again.filename, again.created_at_s) == ("renamed.pt2", first.created_at_s)
    assert alice.draft(draft_id)["filenames"] == {f"sha256:{first.sha256}": "MLP.pt2"}
    alice.save_draft(alice.draft(draft_id), draft_id)
    assert alice.draft(draft_id)["filenames"] == {f"sha256:{first.sha256}": "MLP.pt2"}, "a draft keeps its names"


def test_a_deadline_that_cannot_hold_is_refused_before_it_is_queued(here: World, intake: None) -> None:
    """The first training shows the speed; only the person's own trainings count for a submitter."""

    def asked(deadline_s: float, policy: str = "deadline") -> RunSpec:
        document = SPEC.model_dump(mode="json", exclude_none=True)
        document["submodels"][0]["deadline_s"] = deadline_s
        return parse_run(document | {"policy": {"name": policy}})

    def findings(service: Service, spec: RunSpec) -> list[tuple[str, str]]:
        return [(one.severity, one.field) for one in service.runs.check(spec).findings if one.title == "Deadline"]

    field = "submodels.alpha.deadline_s"
    assert findings(here.service, asked(1)) == [("warning", field)], "never trained"
    assert findings(here.service, asked(1, "fcfs")) == [("warning", "policy.name")]
    told: list[Finding] = []
    measured = here.service.runs.submit(asked(1), on_warnings=told.extend)
    assert [one.field for one in told] == [field]
    [row] = here.store.runs.get(measured)[1]
    assert row.deadline_s == 1
    trained = {"steps_done": 2, "service_s": 20.0, "ended_at_s": 1.0, "memory_key": "key", "owner": "someone"}
    with here.store._database.write() as session:
        session.execute(update(SubModelRow).where(SubModelRow.run_id == measured).values(**trained))
    assert here.store.runs.speeds(["key", "other", ""]) == {"key": 10.0}
    assert here.store.runs.speeds(["key"], "someone") == {"key": 10.0} and here.store.runs.speeds(["key"], "else") == {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(submission, "memory_key", lambda *asked: "key")
        before = len(here.service.runs.runs())
        with pytest.raises(BadInput, match="alpha needs about 20") as raised:
            here.service.runs.submit(asked(19))
        assert [one.field for one in raised.value.findings] == [field]
        assert len(here.service.runs.runs()) == before
        assert findings(here.service, asked(19)) == [("error", field)]
        assert findings(here.service, asked(20)) == []
        assert findings(here.of(ALICE), asked(19)) == [("warning", field)]
        here.service.runs.submit(asked(20))


def test_a_new_deadline_of_a_run_that_trains_has_to_hold_and_to_leave_others_theirs(here: World, intake: None) -> None:
    document = SPEC.model_dump(mode="json", exclude_none=True)
    [part] = document["submodels"]
    parts = [part, part | {"name": "beta", "deadline_s": 200.0}]
    run_id = here.service.runs.submit(parse_run({"policy": {"name": "deadline"}, "submodels": parts}))
    trains = {"state": "running", "steps_done": 10, "service_s": 10.0, "steps_total": 100, "epochs": 1}
    with here.store._database.write() as session:
        session.execute(update(SubModelRow).where(SubModelRow.run_id == run_id).values(**trains))
    runs = here.service.runs
    for name, deadline_s, words in (
        ("alpha", 50.0, "alpha would miss it: it needs about 1 min 30 s from now. Give it 90 s or more"),
        ("beta", 10.0, "beta would miss it"),
        ("alpha", -1.0, "deadline_s"),
    ):
        with pytest.raises(BadInput, match=words) as raised:
            runs.set_deadline(run_id, name, deadline_s)
        assert "deadline_s" in raised.value.findings[0].field
    runs.set_deadline(run_id, "alpha", 95.0)
    runs.set_deadline(run_id, "beta", None)
    asked = [(command.submodel, command.arguments) for command in here.store.commands.open(run_id)]
    assert asked == [("alpha", {"deadline_s": 95.0}), ("beta", {"deadline_s": None})]
    with here.store._database.write() as session:
        shorter = update(SubModelRow).where(SubModelRow.run_id == run_id, SubModelRow.name == "beta")
        session.execute(shorter.values(deadline_s=100.0))
    with pytest.raises(BadInput, match="Another sub-model of this run would miss its deadline"):
        runs.set_deadline(run_id, "alpha", 95.0)


@pytest.mark.parametrize("asked", ["cuda:9", "cpu:9", "TPU"])
def test_a_device_that_is_not_there_is_told_with_those_that_are(asked: str) -> None:
    spec = parse_run({"device": asked, "submodels": [{"name": "a", "model": "a.pt2", "train_data": "a.npz"}]})
    [finding] = own_findings(spec)
    assert (finding.title, finding.field, finding.severity) == ("No such device", "device", "error")
    for device in devices_of_host():
        assert device.text in finding.message
        assert own_findings(spec.model_copy(update={"device": device.name})) == ()
    assert own_findings(spec.model_copy(update={"device": processor_name().split()[0]})) == ()
