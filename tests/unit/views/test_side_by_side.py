"""Runs and sub-models side by side."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ui import fake_arms, fake_views
from unifiednn_core.views.report import html, selection
from unifiednn_core.views.runs import Series
from unifiednn_core.views.side_by_side import (
    Side,
    cautions,
    document,
    figures,
    labels,
    machines,
    merged,
    settings,
    weights,
)


def side(view, label: str, part: str | None = None, **machine: object) -> Side:
    parts = tuple(one for one in view.submodels if part in (None, one.name))
    ref = view.run_id if part is None else f"{view.run_id}/{part}"
    return Side(ref=ref, label=label, view=replace(view, submodels=parts), alone=part is not None, machine=machine)


@pytest.fixture
def sides() -> list[Side]:
    hybrid = fake_arms.hybrid()
    spec = {**hybrid.spec, "seed": 7}
    return [side(hybrid, "one"), side(replace(hybrid, run_id="r-2", spec=spec, peak_memory_bytes=None), "two")]


@given(st.lists(st.tuples(st.text(min_size=7), st.sampled_from("ab"), st.sampled_from([None, "x"])), max_size=6))
def test_labels_name_the_run_and_the_submodel(named: list[tuple[str, str, str | None]]) -> None:
    for text, (run_id, name, part) in zip(labels(named), named, strict=True):
        assert text.startswith(name if part is None else f"{name} / {part}")
        assert text.endswith(f"({run_id[-6:]})") or sum(one[1:] == (name, part) for one in named) == 1


def test_all_submodels_have_a_colour_of_their_own_and_their_turns(sides: list[Side]) -> None:
    view = merged(sides)
    assert [part.number for part in view.submodels] == list(range(sum(len(one.view.submodels) for one in sides)))
    names = {part.name for part in view.submodels}
    assert len(names) == len(view.submodels) and {turn.submodel for turn in view.schedule} <= names
    assert len(view.schedule) == sum(len(one.view.schedule) for one in sides)


def test_only_settings_that_differ_are_listed(sides: list[Side]) -> None:
    assert [name for name, _ in settings(sides)] == ["seed"]
    assert settings([sides[0], sides[0]]) == []


def test_figures_say_how_they_differ_from_the_first(sides: list[Side]) -> None:
    sides = [replace(one, view=replace(one.view, makespan_s=10.0)) for one in sides]
    slower = replace(sides[0].view, run_id="r-3", makespan_s=15.0)
    by_title = {figure.title: figure.texts() for figure in figures([sides[0], sides[1], side(slower, "three")])}
    assert by_title["Makespan"][1].endswith("(equal)") and by_title["Makespan"][2].endswith("(+50 %)")
    assert by_title["Peak memory"][1] == "-"


def test_only_equal_values_are_equal_and_accuracy_differs_in_points(sides: list[Side]) -> None:
    part = fake_arms.hybrid().submodels[0]

    def trained(accuracy: float, makespan_s: float) -> Side:
        one = replace(part, test_accuracy=accuracy, test_accuracy_curve=Series((1.0,), (accuracy,)))
        return replace(sides[0], view=replace(sides[0].view, submodels=(one,), makespan_s=makespan_s))

    five = [
        trained(0.983, 10),
        trained(0.975, 10.03),
        trained(0.981, 9.5),
        trained(0.98301, 10.0001),
        trained(0.983, 10),
    ]
    by_title = {figure.title: figure.texts() for figure in figures(five)}
    accuracy, makespan = by_title["Best test accuracy"], by_title["Makespan"]
    minus = "\N{MINUS SIGN}"
    assert accuracy[:3] == ("98.3 %", f"97.5 % ({minus}0.8 points)", f"98.1 % ({minus}0.2 points)")
    assert accuracy[3:] == ("98.3 % (< 0.1 points)", "98.3 % (equal)")
    assert [text.partition(" (")[2] for text in makespan[1:]] == ["+0.3 %)", f"{minus}5 %)", "< 0.1 %)", "equal)"]


def test_the_best_accuracy_is_the_best_of_the_curve(sides: list[Side]) -> None:
    part = fake_arms.hybrid().submodels[0]
    worse = replace(part, test_accuracy=0.5, test_accuracy_curve=Series((1.0, 2.0, 3.0), (0.7, 0.9, 0.5)))
    one = replace(sides[0], view=replace(sides[0].view, submodels=(worse,)))
    assert {figure.title: figure.values[0] for figure in figures([one, one])}["Best test accuracy"] == 0.9


def test_a_submodel_has_figures_of_its_own(sides: list[Side]) -> None:
    view = fake_arms.hybrid()
    pair = [side(view, "a", view.submodels[0].name), side(view, "b", view.submodels[1].name)]
    assert "Makespan" not in {figure.title for figure in figures(pair)}
    assert weights(pair)[0][0] == "Weights"
    assert all("submodels" not in name for name, _ in settings(pair))


def test_what_makes_figures_differ_is_said(sides: list[Side]) -> None:
    assert cautions([sides[0], sides[0]]) == []
    busy = [
        side(replace(one.view, others_share=share), one.label) for one, share in zip(sides, (0.5, 0.1), strict=True)
    ]
    assert cautions(busy)[0].startswith("Other work used different shares of the processors: one 50")
    other = [side(sides[0].view, "one", cpu="A"), side(sides[1].view, "two", cpu="B")]
    assert machines(other) == [("cpu", ("A", "B"))] and "machine or versions" in cautions(other)[0]
    assert "Not all have ended" in cautions([sides[0], side(fake_views.mid_flight(), "live")])[0]


def test_page_and_document_show_hostile_names_as_text(sides: list[Side]) -> None:
    evil = [side(one.view, f"<script>{place}") for place, one in enumerate(sides)]
    page = html.render_selection(evil, "window.Plotly = {}")
    assert "<script>0" not in page and "&lt;script&gt;0" in page
    assert page.count('id="board"') == 1 and len(document(evil)["runs"]) == 2  # type: ignore[arg-type]
    assert "<script>" not in selection.figures_table(evil) + selection.settings_table(evil)
