"""What torch itself reads is asked once per content, and a verdict needs the answer."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.compare.test_verdict import CONCURRENT, HYBRID, NAMES, comparison, part
from unifiednn_core.base.errors import IntakeFailed
from unifiednn_core.base.paths import Home
from unifiednn_core.compare import oracle
from unifiednn_core.preflight import client
from unifiednn_core.preflight.report import OracleJob, OracleReport
from unifiednn_core.spec.run import RunSpec, parse_run
from unifiednn_core.views.comparison import comparison_document
from unifiednn_core.views.report.cards import card, oracle_lines

SAME = OracleReport(answer="same", text="4 steps")
FILES = {"model": f"sha256:{'a' * 64}", "train_data": f"sha256:{'b' * 64}"}


def spec(**changes: Any) -> RunSpec:
    return parse_run({"submodels": [{"name": "one", **FILES, **changes}, {"name": "other", **FILES, **changes}]})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[OracleJob]:
    """The jobs that were given to the intake process."""
    jobs: list[OracleJob] = []
    monkeypatch.setattr(client, "ask_torch", lambda job: jobs.append(job) or SAME)
    return jobs


def test_an_answer_is_kept_until_file_data_or_reader_change(
    home: Home, asked: list[OracleJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = dict.fromkeys(("one", "other"), "pt2")
    for _ in range(2):
        assert oracle.ask_torch(home, spec(), formats) == {"one": SAME, "other": SAME}
    [job] = asked
    assert (job.model, job.train_data) == (home.file("a" * 64), home.file("b" * 64))
    for number, change in enumerate(({"scale": 0.5}, {"model": FILES["train_data"]}, {"train_data": FILES["model"]})):
        oracle.ask_torch(home, spec(**change), formats)
        assert len(asked) == number + 2
    monkeypatch.setattr(oracle, "_readers", lambda: "another version of the reader")
    oracle.ask_torch(home, spec(), formats)
    assert len(asked) == 5


def test_no_answer_is_asked_for_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: OracleJob) -> OracleReport:
        raise IntakeFailed("It needs more memory.")

    monkeypatch.setattr(client, "ask_torch", fail)
    none = OracleReport(answer="none", text="It needs more memory")
    assert oracle.ask_torch(home, spec(), {"one": "pt2"}) == {"one": none}
    monkeypatch.setattr(client, "ask_torch", lambda job: SAME)
    assert oracle.ask_torch(home, spec(), {"one": "pt2"}) == {"one": SAME}


def test_other_formats_say_what_the_baseline_shares_with_the_hybrid(home: Home, asked: list[OracleJob]) -> None:
    [one] = oracle.ask_torch(home, spec(), {"one": "module"}).values()
    [known] = oracle.ask_torch(home, spec(architecture={"name": "lenet"}), {"other": "safetensors"}).values()
    assert (one.answer, known.answer, asked) == ("not applicable", "not applicable", [])
    assert ("reader of the hybrid" in one.text, "reads its weights itself" in known.text) == (True, True)


@pytest.mark.parametrize(
    ("answers", "model_format", "withheld"),
    [
        ({NAMES[0]: SAME, NAMES[1]: SAME}, "pt2", None),
        ({NAMES[0]: SAME, NAMES[1]: OracleReport(answer="not applicable", text="-")}, "pt2", None),
        ({}, "module", None),
        ({NAMES[0]: SAME}, "pt2", "of resnet: run c did not ask; run the baseline again"),
        ({NAMES[1]: OracleReport(answer="differs", text="the bits of w differ")}, "", "resnet: the bits of w differ"),
        ({NAMES[0]: OracleReport(answer="none", text="too large")}, "", "of lenet: too large"),
    ],
)
def test_a_verdict_needs_the_word_of_torch(
    answers: dict[str, OracleReport], model_format: str, withheld: str | None
) -> None:
    parts = tuple(part(name, 16.0, model_format=model_format) for name in NAMES)
    verdict = comparison(HYBRID, replace(CONCURRENT, submodels=parts, oracle=answers)).verdicts["concurrent"]
    assert verdict.identical_weights is True
    assert (verdict.withheld_because is None) is (withheld is None) is (verdict.memory_ratio is not None)
    assert str(verdict.withheld_because).endswith(str(withheld))


def test_each_answer_is_one_line_of_the_card_and_of_the_document() -> None:
    found = comparison(HYBRID, replace(CONCURRENT, oracle=dict.fromkeys(NAMES, SAME)))
    arm = found.baselines["concurrent"]
    line = "The loader of torch.export gives identical bits (lenet, resnet): 4 steps."
    assert oracle_lines(arm) == [line]
    assert line in card(found.verdicts["concurrent"], found.hybrid, arm)
    document: Any = comparison_document(found, {"h": {}, "c": {}})
    assert document["arms"]["concurrent"]["oracle"]["lenet"] == {"answer": "same", "text": "4 steps"}
    assert document["arms"]["hybrid"]["oracle"] == {}
    assert oracle_lines(None) == []
