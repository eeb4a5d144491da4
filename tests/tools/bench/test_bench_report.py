import json
from pathlib import Path

import pytest

import unifiednn_core
from tests.tools.bench.kit import ASKED, SCENARIO, measured
from tools.bench import paper, report, result
from tools.bench.report import memory, ratio, seconds

DOCS = Path(unifiednn_core.__file__).parents[1] / "docs"
FOUND = result.document(SCENARIO, measured(), ASKED, 3)


def test_the_document_survives_json_and_says_what_is_in_it() -> None:
    assert json.loads(json.dumps(FOUND)) == FOUND
    assert (FOUND["repeats"], FOUND["repeats_asked"], FOUND["complete"]) == (2, 3, False)
    (case,) = FOUND["cases"]
    assert case["hybrids"]["fcfs"]["makespan_s"] == [3.0, 3.01]
    assert case["baselines"]["concurrent"]["submodels"]["lenet-1"]["wait_s"] == [1.0, 1.01]
    assert case["verdicts"]["fcfs"]["concurrent"]["memory"] == [0.5, 0.5]
    assert case["submodels"]["lenet-2"]["parameters"] == 44_470


def test_a_threshold_holds_or_does_not() -> None:
    assert [entry["holds"] for entry in FOUND["thresholds"]] == [True]
    assert FOUND["passed"] is True
    worse = result.document(SCENARIO, measured(memory_ratio=0.95), ASKED, 2)
    assert (worse["thresholds"][0]["holds"], worse["passed"]) == (False, False)


def test_a_withheld_verdict_is_no_success_where_weights_differ() -> None:
    withheld = result.document(SCENARIO, measured(withheld="the trained weights differ"), ASKED, 2)
    assert withheld["passed"] is False
    assert withheld["thresholds"][0]["holds"] is None
    text = report.section("tiny-cpu.json", withheld, ())
    assert "Withheld, hybrid / concurrent: the trained weights differ." in text
    assert "| **no** |" in text


def test_gains_losses_and_ties_are_told_in_equal_words() -> None:
    assert ratio([0.4, 0.5]) == "0.45 (0.40 to 0.50), less"
    assert ratio([1.2, 1.4]) == "1.30 (1.20 to 1.40), more"
    assert ratio([0.9, 1.1]) == "1.00 (0.90 to 1.10), no difference beyond the spread"
    assert ratio([1.0]) == "1.00, no difference"
    assert ratio([0.996, 0.999]) == "1.00, no difference"
    assert ratio([0.98, 0.999]) == "0.99 (0.98 to 1.00), less"
    assert ratio(None) == seconds(None) == memory(None) == "not available"


def test_a_section_names_its_file_command_commit_and_machine() -> None:
    text = report.section("tiny-cpu.json", FOUND, ())
    for said in (
        "results/tiny-cpu.json",
        "`python -m tools.bench tiny`",
        "`0123456789ab`",
        "CPU, 2 cores",
        "Cut off: 3 repeats",
    ):
        assert said in text
    assert "| two, fcfs: memory against concurrent | 0.90 | 0.50 | yes |" in text


def test_tables_are_put_between_the_markers() -> None:
    top = f"# Before\n{report.PROMISES_BEGIN}\nearlier\n{report.PROMISES_END}\n"
    lead = f"{top}{report.RATIOS_BEGIN}\nearlier\n{report.RATIOS_END}\n"
    page = f"{lead}{report.BEGIN}\nearlier\n{report.END}\nafter\n"
    made = report.with_results(page, [("tiny-cpu.json", FOUND)], ())
    assert made.startswith("# Before\n")
    assert made.endswith(f"\n{report.END}\nafter\n")
    assert "earlier" not in made
    leading = made.partition(report.RATIOS_END)[0]
    assert (
        "| [tiny](results/tiny-cpu.json), cpu: two | fcfs | concurrent | 2 | 0.50 | 1.30 | 0.95 | 1.00 | yes |"
        in leading
    )
    assert "cpu: cut off after 2 of 3 repeats; one repeat is no median." in leading
    assert "All promises of the benches on this page hold." in leading
    assert report.with_results(made, [("tiny-cpu.json", FOUND)], ()) == made
    with pytest.raises(ValueError, match="no lines"):
        report.with_results("# Another page", [], ())


def test_complete_results_come_first() -> None:
    whole = FOUND | {"bench": "whole", "repeats": 3, "complete": True}
    text = report.ratios([("tiny-cpu.json", FOUND), ("whole-cpu.json", whole)])
    assert text.index("[whole]") < text.index("[tiny]")


def test_a_promise_that_does_not_hold_stands_at_the_top() -> None:
    worse = result.document(SCENARIO, measured(memory_ratio=0.95), ASKED, 2)
    text = report.promises([("tiny-cpu.json", FOUND), ("worse-cpu.json", worse | {"bench": "worse"})])
    assert (
        "| [worse](results/worse-cpu.json), cpu | two, fcfs: memory against concurrent | at most 0.90 | 0.95 |" in text
    )
    assert "tiny" not in text
    rows = [("a", "3 ms", "**no**"), ("b", "1 ms", "yes")]
    told = {"title": "Steps:", "heads": ("step", "median", "holds"), "rows": rows}
    tables = FOUND | {"passed": False, "tables": [told], "notes": ["Promised: at most 2 ms."]}
    text = report.promises([("tiny-cpu.json", tables)])
    assert text.splitlines()[-1] == "| [tiny](results/tiny-cpu.json), cpu | a | at most 2 ms. | median: 3 ms |"
    silent = report.promises([("tiny-cpu.json", FOUND | {"passed": False})])
    assert "its section says what" in silent


def test_a_figure_that_is_withheld_has_its_reason() -> None:
    reason = "mean turnaround is not compared: the hybrid waited"
    (case,) = FOUND["cases"]
    verdict = case["verdicts"]["fcfs"]["concurrent"] | {"mean_turnaround": None, "notes": [reason]}
    found = FOUND | {"cases": [case | {"verdicts": {"fcfs": {"concurrent": verdict}}}]}
    for text in (report.section("tiny-cpu.json", found, ()), report.ratios([("tiny-cpu.json", found)])):
        assert "| withheld |" in text
        assert f"{reason}." in text


def test_the_paper_stands_beside_what_repeats_it() -> None:
    rows = paper.rows(paper.read(), "paper-vision")
    assert ("E1_priority_LeNet>R18>R50", "all", "peak gpu mem", "5,134 MiB", "2,396 MiB", "0.47") in rows
    assert any(row[1] == "LeNet" and row[3:] == ("4.5 min", "less than 1 min", "0.22") for row in rows)
    assert paper.rows(paper.read(), "equal-small") == []
    schedulers = paper.rows(paper.read(), "paper-schedulers")
    assert {row[0] for row in schedulers} == {"E3_round_robin", "E3_sjf_by_epochs", "E3_priority_R50>R18>LeNet"}
    assert any(row[1:] == ("LeNet", "train time", "about 2.5 min", "27 s", "0.18") for row in schedulers)


def test_the_page_says_what_the_files_say() -> None:
    page = (DOCS / report.PAGE).read_text(encoding="utf-8")
    assert page == report.with_results(page, report.read_results(DOCS / "results"), paper.read())


def test_every_recorded_result_names_its_version_and_machine() -> None:
    for name, found in report.read_results(DOCS / "results"):
        assert name == f"{found['bench']}-{found['scale']}.json"
        assert found["commit"] and found["command"] and found["machine"]["cpu"]
        assert "host" not in found["machine"]
