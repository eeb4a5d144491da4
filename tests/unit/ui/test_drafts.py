import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pages._ui import drafts
from unifiednn_core.base.errors import Finding
from unifiednn_core.spec.run import NAME_PATTERN

counts = st.integers(1, 6)


def draft_of(count):
    return {**drafts.new(), "submodels": [{"name": str(at), "model": "m", "train_data": "d"} for at in range(count)]}


def names(draft):
    return [submodel["name"] for submodel in drafts.submodels(draft)]


@given(counts, st.integers(-3, 9), st.integers(-3, 9))
def test_a_move_keeps_everything_and_the_order_of_the_others(count, at, to):
    before = draft_of(count)
    after = drafts.move(before, at, to)
    assert sorted(names(after)) == sorted(names(before))
    if 0 <= at < count:
        moved = str(at)
        assert names(after)[max(0, min(to, count - 1))] == moved
        assert [n for n in names(after) if n != moved] == [n for n in names(before) if n != moved]
    assert names(before) == [str(place) for place in range(count)]


@given(counts, st.integers(0, 5))
def test_a_removal_takes_one_and_put_brings_one(count, at):
    before = draft_of(count)
    assert names(drafts.remove(before, at)) == [n for n in names(before) if n != str(at)]
    assert names(drafts.put(before, None, {"name": "new"})) == [*names(before), "new"]
    if at < count:
        assert names(drafts.put(before, at, {"name": "new"}))[at] == "new"


@pytest.mark.parametrize(
    ("field", "entry"),
    [
        ("submodels.lenet.model", "model"),
        ("submodels.0.hyperparameters.learning_rate", "hyperparameters"),
        ("start_from.file", "start_from"),
        ("hyperparameters", "hyperparameters"),
        ("submodels", ""),
        ("lenet.pt2", ""),
        ("device", ""),
    ],
)
def test_a_finding_is_sorted_by_the_entry_that_it_is_about(field, entry):
    finding = Finding(title="-", field=field, message="-", remedy="-")
    assert drafts.findings_by_entry([finding]) == {entry: [finding]}


def test_an_empty_draft_says_what_it_lacks_and_a_full_one_is_a_spec():
    spec, findings = drafts.spec_or_findings(drafts.new())
    assert spec is None and findings[0].field == "submodels"
    spec, findings = drafts.spec_or_findings(draft_of(2))
    assert spec is not None and findings == () and len(spec.submodels) == 2


@given(st.text(), st.lists(st.sampled_from(["model", "a", "A-2", "a-3"]), unique=True))
def test_a_free_name_is_allowed_and_not_taken(filename, taken):
    name = drafts.free_name(filename, taken)
    assert re.fullmatch(NAME_PATTERN, name)
    assert name.lower() not in {other.lower() for other in taken}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(json_values | st.text().map(str.strip))
def test_an_argument_survives_the_form(value):
    assert drafts.argument(drafts.argument_text(value)) == value
