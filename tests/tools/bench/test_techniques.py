"""The bench of techniques, on a few samples, and the page that is made of its results."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.tools.bench.kit import ASKED, write_data
from tools.bench import report, techniques_page
from tools.bench import techniques as bench
from tools.bench.techniques import Figures, Pair, Row
from unifiednn_core.spec.run import parse_hyperparameters
from unifiednn_core.spec.techniques import TECHNIQUES, name_of

WRITE = "docs/TECHNIQUES.md is not what its results say: python -m tools.bench.techniques_page --write"
MIB = 1024.0**2


def row(given_mib: float = 60, *, exact: bool = True, same: bool = True, alone: bool = True, **accuracy: float) -> Row:
    none, step = Pair(without=MIB, given=MIB), Pair(without=100 * MIB, given=given_mib * MIB)
    figures = Figures(
        steps=9,
        exact=exact,
        predicted_bytes=step,
        step_bytes=step,
        rest_bytes=none,
        step_s=Pair(without=0.1, given=0.15),
        accuracy=Pair(**{"without": 0.5, "given": 0.5} | accuracy),
        loss=none,
        same_bits=same,
        same_alone=alone,
        others_unchanged=True,
    )
    return Row(network="net", batch_size=8, techniques=({"name": "compression"},), figures=figures)


def page_of(folder: Path, *rows: Row) -> str:
    facts = {"bench": "techniques", **ASKED, "threads": 1, "repeats": 1, "repeats_asked": 1}
    found = bench.described(rows, complete=True, scale="cpu")
    (folder / "techniques-cpu.json").write_text(json.dumps(facts | found))
    return techniques_page.page(folder)


def test_the_page_is_what_its_results_say() -> None:
    place = techniques_page.RESULTS.parent / techniques_page.PAGE
    assert place.read_text(encoding="utf-8") == techniques_page.page(), WRITE
    names = [name for name, _ in report.read_results(techniques_page.RESULTS)]
    assert not [name for name in names if name.startswith("techniques")], "they have a page of their own"


def test_every_technique_is_on_the_page_and_measured() -> None:
    text, measured = techniques_page.page(), {one["name"] for asked in bench.arms() for one in asked}
    assert measured == {name_of(one) for one in TECHNIQUES}
    assert all(f"{one.title}<br>`{name_of(one)}`" in text for one in TECHNIQUES)
    [example] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    assert parse_hyperparameters(json.loads(f"{{{example}}}")).techniques
    for asked in bench.arms():
        parse_hyperparameters({"techniques": [dict(one) for one in asked]})


@pytest.mark.parametrize(
    "found, told",
    [
        (row(), "Pays off on net (cpu): −40 % memory of a step, 1.50 times the time."),  # noqa: RUF001
        (row(99), "**Does not pay off** on net (cpu): −1 % memory of a step"),  # noqa: RUF001
        (row(130), "**Does not pay off** on net (cpu): +30 % memory of a step"),
        (replace(row(), techniques=({"name": "offload"},)), "**Does not pay off on a CPU**, whose memory it moves to"),
        (row(same=False), "**differ**"),
        (row(exact=False, same=False), "Pays off on net (cpu): −40 % memory of a step, 1.50 times the time, test"),  # noqa: RUF001
        (row(exact=False, same=False, given=0.4), "Saves memory on net (cpu): −40 % memory of a step"),  # noqa: RUF001
        (row(exact=False, same=False, without=0.16, given=0.16), "16.0 % → 16.0 % (too little trained to judge)."),
        (row(exact=False, same=False), "lossy"),
        (row(alone=False), "the same, **others alone**"),
        (Row(network="net", batch_size=8, techniques=({"name": "compression"},), failed="Too large."), "Too large."),
    ],
)
def test_the_page_says_what_pays_off_and_which_bits_differ(found: Row, told: str, tmp_path: Path) -> None:
    assert told in page_of(tmp_path, found)


def test_bits_that_are_not_as_promised_are_a_broken_promise() -> None:
    def passed(*rows: Row) -> object:
        return bench.described(rows, complete=True, scale="cpu")["passed"]

    assert passed(row()) and passed(row(exact=False, same=False))
    assert not passed(row(same=False)) and not passed(row(alone=False))
    figures = row().figures
    assert figures is not None
    assert not passed(replace(row(), figures=replace(figures, others_unchanged=False)))


@pytest.mark.slow
def test_a_few_samples_are_measured_with_the_products_own_check_and_engine(tmp_path: Path) -> None:
    folder = write_data(tmp_path / "data", samples=1024)
    task = replace(bench.TASKS["cpu"][0], train=128, test=64, epochs=1, batch_size=32)
    asked = [({"name": "compression"},), ({"name": "nothing"},)]
    (found, refused), whole = bench.measure("cpu", folder, asked, device="cpu", tasks=[task])
    figures = found.figures
    assert whole and figures is not None and figures.holds and figures.same_bits
    assert all(None not in asdict(getattr(figures, name)).values() for name in ("step_bytes", "predicted_bytes"))
    assert figures.step_bytes.given == pytest.approx(figures.predicted_bytes.given, rel=0.15)
    assert refused.figures is None and "no technique 'nothing'" in str(refused.failed)
