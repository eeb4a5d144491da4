"""Drafts: whose they are, what becomes of them, and drafts made of runs."""

import pytest

from tests.unit.service.kit import ALICE, BOB, HERS, OPERATOR, SHARED, World
from unifiednn_core.base.errors import Forbidden, NotFound
from unifiednn_core.service.library import cloned
from unifiednn_core.spec.run import parse_run
from unifiednn_core.store.schema import RunRow

RUN = RunRow(
    name="both",
    environment={"files": {"a": {"sha256:1": "net.pt2"}, "b": {"sha256:2": "other.pt2"}}},
    spec={
        "name": "both",
        "seed": 3,
        "policy": {"name": "sjf"},
        "submodels": [
            {"name": "a", "model": "sha256:1", "train_data": "d", "loading": "resident", "sweep_of": "s"},
            {"name": "b", "model": "sha256:2", "train_data": "d", "priority": 4},
        ],
    },
)


def test_drafts_are_listed_for_their_owner_the_last_changed_first(here: World) -> None:
    library = here.of(ALICE).library
    first, second = (library.save_draft({"name": name, "submodels": [{}, {}]}) for name in ("first", "second"))
    here.of(BOB).library.save_draft({"name": "his", "hybrid": "shared"})
    assert {(one.draft_id, one.name, one.submodels) for one in library.drafts()} == {
        (first, "first", 2),
        (second, "second", 2),
    }
    assert [one.shared for one in here.of(BOB).library.drafts()] == [True]
    assert here.of(OPERATOR).library.drafts() == (), "an operator has drafts of their own, too"


def test_a_submitted_draft_is_gone_but_says_which_run_it_became(here: World) -> None:
    library = here.of(ALICE).library
    draft_id = library.save_draft({"name": "mine"})
    assert library.run_of_draft(draft_id) is None
    here.of(BOB).library.finish_draft(draft_id, "another")
    assert library.draft(draft_id)["name"] == "mine", "nobody else can finish it"
    library.finish_draft(draft_id, HERS)
    with pytest.raises(NotFound):
        library.draft(draft_id)
    assert library.drafts() == ()
    assert (library.run_of_draft(draft_id), here.of(BOB).library.run_of_draft(draft_id)) == (HERS, None)
    library.delete_draft(draft_id)
    assert library.run_of_draft(draft_id) is None


def test_a_clone_asks_for_what_the_run_asked_for(here: World) -> None:
    whole = cloned(RUN)
    names = whole.pop("filenames")
    assert names == {"sha256:1": "net.pt2", "sha256:2": "other.pt2"}
    assert parse_run(whole).submodels[1] == parse_run(RUN.spec).submodels[1]
    assert "loading" not in whole["submodels"][0], "the check decides it anew"
    alone = cloned(RUN, "a")
    assert (alone["name"], alone["filenames"]) == ("a", {"sha256:1": "net.pt2"})
    assert alone["submodels"] == [{"name": "a", "model": "sha256:1", "train_data": "d"}]


def test_people_clone_their_own_runs_and_their_part_of_others(here: World) -> None:
    library = here.of(ALICE).library
    draft = library.draft(library.clone_run(HERS))
    assert [part["name"] for part in draft["submodels"]] == list(
        here.store.runs.get(HERS)[0].spec and [part["name"] for part in here.store.runs.get(HERS)[0].spec["submodels"]]
    )
    with pytest.raises(Forbidden):
        library.clone_run(SHARED)
    with pytest.raises(NotFound):
        here.of(BOB).library.clone_run(HERS)
    with pytest.raises(NotFound):
        here.service.library.clone_run(HERS, "nothing")
    assert "clone_run" in {line.action for line in here.store.people.audit_log(50)}
