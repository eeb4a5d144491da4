from pathlib import Path

import pytest
import torch

import unifiednn_core
from sample_models import architectures
from sample_models.paper_networks import NETWORKS, SCALES
from tests.tools.bench_kit import ASKED, SCENARIO, measured
from tools.bench import report, result, scenarios

DOCS = Path(unifiednn_core.__file__).parents[1] / "docs"
FOUND = result.document(SCENARIO, measured(), ASKED, 3)


def test_a_threshold_holds_or_does_not() -> None:
    assert [entry["holds"] for entry in FOUND["thresholds"]] == [True]
    assert FOUND["passed"] is True
    worse = result.document(SCENARIO, measured(memory_ratio=0.95), ASKED, 2)
    assert (worse["thresholds"][0]["holds"], worse["passed"]) == (False, False)


def test_a_withheld_verdict_is_no_success_where_weights_differ() -> None:
    withheld = result.document(SCENARIO, measured(withheld="the trained weights differ"), ASKED, 2)
    assert withheld["passed"] is False
    assert withheld["thresholds"][0]["holds"] is None
    text = report.section(withheld)
    assert "Withheld, fcfs / concurrent: the trained weights differ." in text
    assert "| **no** |" in text


def test_a_promise_that_does_not_hold_stands_at_the_top() -> None:
    worse = result.document(SCENARIO, measured(memory_ratio=0.95), ASKED, 2)
    text = report.promises([("tiny-cpu.json", FOUND), ("worse-cpu.json", worse | {"bench": "worse"})])
    assert (
        "| [worse](results/worse-cpu.json), cpu | two, fcfs: memory against concurrent | at most 0.90 | 0.95 |" in text
    )
    assert "tiny" not in text


def test_the_page_says_what_the_files_say() -> None:
    page = (DOCS / report.PAGE).read_text(encoding="utf-8")
    assert page == report.with_results(page, report.read_results(DOCS / "results"))


def test_every_recorded_result_names_its_version_and_machine() -> None:
    for name, found in report.read_results(DOCS / "results"):
        assert name == f"{found['bench']}-{found['scale']}.json"
        assert found["commit"] and found["command"] and found["machine"]["cpu"]
        assert "host" not in found["machine"]


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_of_the_paper_has_the_published_number_of_weights(name: str) -> None:
    network = NETWORKS[name]
    with torch.device("meta"):
        built = architectures.build(network.architecture, network.args("paper"))
    assert sum(weight.numel() for weight in built.parameters()) == network.parameters
    digits, _, exponent = network.printed.partition("x10^")
    if exponent and network.title != "XLM-RoBERTa":  # whose exponent is a misprint
        assert network.parameters // 10 ** (int(exponent) - 2) == round(float(digits) * 100)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", scenarios.NAMES)
def test_sub_models_of_a_case_have_names_and_weights_of_their_own(name: str, scale: str) -> None:
    for case in scenarios.scenario(name, scale).cases:
        assert len({task.name for task in case.tasks}) == len(case.tasks)
        assert len({(task.network, task.seed) for task in case.tasks}) == len(case.tasks)
