from dataclasses import replace

import pytest

from pages._ui import rows, shelves
from tests.ui.reading import downloads, html_of, press, tags_in, text_of
from unifiednn_core.base.errors import BadInput, IntakeFailed, NotFound
from unifiednn_core.base.units import memory_text
from unifiednn_core.service import library
from unifiednn_core.spec.run_query import KeptQuery
from unifiednn_core.store import kept as kept_rows
from unifiednn_core.store.schema import FileUseRow, SubModelRow
from unifiednn_core.views.library import ServerFile


def test_files_are_listed_with_their_facts(open_page):
    words = text_of(open_page("library"))
    assert "lenet.pt2" in words and "9,326 weights" in words
    assert "digits_train.pt" in words and "1,437 samples" in words


def test_what_runs_have_kept_can_be_downloaded(open_page, service):
    offered, kept = downloads(open_page("library")), [*kept_of(service, "model"), *kept_of(service, "checkpoint")]
    wanted = {
        (f"Download {m.submodel}, {memory_text(m.size_bytes)}", f"files/{m.what}s/{m.run_id}/{m.submodel}")
        for m in kept
    }
    assert set(offered) == wanted and {m.what for m in kept} == {"model", "checkpoint"}
    models = {(m.run_id, m.submodel) for m in kept if m.what == "model"}
    assert models == {(m.run_id, m.submodel) for m in service.runs.trained()}


def test_an_empty_library_says_how_to_fill_it(open_page, service):
    service.held.clear()
    service.listed.clear()
    words = text_of(open_page("library"))
    for sentence in ("No models yet", "No data sets yet", "No checkpoints yet", "No trained models yet"):
        assert sentence in words


def test_a_refused_upload_shows_the_finding_until_the_next_one(upload, open_page):
    app = open_page("library")
    upload(app, "library-model", "bad.pt2", b"broken")
    assert "This is no model." in text_of(app) and "Export it again." in text_of(app)
    upload(app, "library-model", "good.pt2", b"content")
    assert "This is no model." not in text_of(app) and "good.pt2" in text_of(app)


def test_a_file_that_could_not_be_read_for_lack_of_memory_is_read_again_without_sending_it(upload, open_page, service):
    app = open_page("library")
    service.failing = IntakeFailed("The process that reads files ended.")
    upload(app, "library-model", "own.pt2", b"content")
    assert "The process that reads files ended." in text_of(app) and "own.pt2" not in text_of(app)
    service.failing = None
    app.button(key="library-model-again").click().run()
    assert not app.exception
    assert "own.pt2" in text_of(app) and "process that reads" not in text_of(app)


def test_a_long_shelf_is_shown_in_full_when_asked_for(open_page, service):
    [file] = [one for one in service.held if one.kind == "model"][:1]
    many = [replace(file, sha256=f"{at:064x}", filename=f"net{at}.pt2") for at in range(shelves.SHOWN + 1)]
    service.held[:] = many
    app = open_page("library")
    assert sum(one.filename in html_of(app) for one in many) == shelves.SHOWN
    press(app, f"Show all {len(many)}")
    assert all(one.filename in html_of(app) for one in many)


def test_names_of_files_cannot_become_markup(open_page, service):
    service.held[:] = [replace(file, filename="<svg onload=alert(1)>.pt2", format="<b>") for file in service.held]
    shown = html_of(open_page("library"))
    assert "<svg" not in shown and "&lt;svg" in shown


def test_checkpoints_are_listed_and_can_be_added(upload, open_page, service):
    app = open_page("library")
    assert (
        "lenet-step-115.safetensors checkpoint unifiednn-checkpoint 9,326 values · of lenet · step 115 · adam"
        in text_of(app)
    )
    upload(app, "library-checkpoint", "own-step-7.safetensors", b"content")
    assert service.held[-1].kind == "checkpoint"
    assert "own-step-7.safetensors" in text_of(app)


def test_a_file_in_a_folder_of_the_server_can_be_taken_in(open_page, service):
    service.on_server = (ServerFile(name="0/sub/own.pt2", shown="models/sub/own.pt2", size_bytes=2048),)
    app = open_page("library")
    box = app.selectbox(key="library-model-server-file")
    assert app.button(key="library-model-server-take").disabled
    box.select("0/sub/own.pt2").run()
    app.button(key="library-model-server-take").click().run()
    assert not app.exception
    assert service.held[-1].filename == "own.pt2"


def test_without_folders_nothing_is_offered_from_the_server(open_page):
    assert not [box for box in open_page("library").selectbox if "server" in box.label]


def ticked(open_page, said, shelf: str, *keys: str):
    """The library with these rows of a table ticked."""
    said[f"{shelf}-table"] = {"ticked": list(keys)}
    return open_page("library")


def kept_of(service, what: str):
    return service.library.kept(KeptQuery(what)).models


def of_kind(service, kind: str):
    return next(one for one in service.library.shelf() if one.file.kind == kind)


@pytest.mark.parametrize(
    ("shelf", "kind", "entry"),
    [
        ("shelf-model", "model", "model"),
        ("shelf-data-set", "data", "train_data"),
        ("shelf-checkpoint", "checkpoint", "start_from"),
    ],
)
def test_a_file_becomes_part_of_a_new_draft_that_build_opens(shelf, kind, entry, open_page, service, said) -> None:
    held = of_kind(service, kind)
    app = ticked(open_page, said, shelf, held.file.sha256)
    app.button(key=f"{shelf}-use").click().run()
    assert not app.exception
    [document] = service.drafts.values()
    [part] = document["submodels"]
    named = part[entry]["file"] if entry == "start_from" else part[entry]
    assert named == f"sha256:{held.file.sha256}"
    assert of_kind(service, kind).drafts, "and the library says which draft uses it"


def test_a_file_is_renamed_for_its_owner_alone(open_page, service, said) -> None:
    held = of_kind(service, "model")
    app = ticked(open_page, said, "shelf-model", held.file.sha256)
    app.button(key="shelf-model-rename").click().run()
    app.button(key="library-rename-no").click().run()
    assert of_kind(service, "model") == held
    app.button(key="shelf-model-rename").click().run()
    app.text_input(key=f"library-name-{held.file.sha256[:8]}").input("other.pt2")
    app.button(key="library-rename-yes").click().run()
    assert not app.exception
    names = service.store.library.names_by_owner(held.file.sha256)
    assert names == {"": "other.pt2"} and "other.pt2" in text_of(app)


def test_a_file_that_an_open_run_needs_is_kept_and_says_which(open_page, service, said) -> None:
    held = of_kind(service, "model")
    with service.store._database.write() as session:
        session.add(FileUseRow(sha256=held.file.sha256, run_id="r-live", submodel="lenet", entry="model"))
    app = ticked(open_page, said, "shelf-model", held.file.sha256)
    assert "still needed: the run has not ended" in text_of(app)
    app.button(key="shelf-model-delete").click().run()
    assert "Needed by runs that have not ended: " in text_of(app) and app.button(key="library-delete-yes").disabled
    with pytest.raises(BadInput, match="has not ended"):
        service.library.delete_file(held.file.sha256)


def test_a_deleted_file_leaves_the_figures_of_ended_runs(open_page, service, said) -> None:
    held = of_kind(service, "model")
    with service.store._database.write() as session:
        session.add(FileUseRow(sha256=held.file.sha256, run_id="r-done", submodel="lenet", entry="model"))
    before = service.runs.observe("r-done")
    app = ticked(open_page, said, "shelf-model", held.file.sha256)
    app.button(key="shelf-model-delete").click().run()
    assert "used by 1 ended run" in text_of(app) and "training them again needs the file" in text_of(app)
    app.button(key="library-delete-no").click().run()
    assert of_kind(service, "model").file == held.file
    app.button(key="shelf-model-delete").click().run()
    app.button(key="library-delete-yes").click().run()
    assert not app.exception
    assert held.file.sha256 not in {one.file.sha256 for one in service.library.shelf()}
    assert service.runs.observe("r-done").submodels == before.submodels
    with pytest.raises(NotFound):
        service.library.delete_file(held.file.sha256)


def test_what_was_not_counted_to_the_end_is_said_to_be_as_many_or_more(open_page, service, said, monkeypatch) -> None:
    held, models = of_kind(service, "model"), len(kept_of(service, "model"))
    with service.store._database.write() as session:
        session.add(FileUseRow(sha256=held.file.sha256, run_id="r-done", submodel="lenet", entry="model"))
    words = text_of(open_page("library"))
    assert "1 run " in words and "or more" not in words
    for module in (shelves, library):
        monkeypatch.setattr(module, "MOST_USES_COUNTED", 1)
    for module in (shelves, kept_rows):
        monkeypatch.setattr(module, "MOST_COUNTED", models - 1)
    app = ticked(open_page, said, "shelf-model", held.file.sha256)
    assert "1 run or more" in text_of(app)
    assert f"{models - 1} trained models or more: search for the others" in text_of(app)
    app.button(key="shelf-model-delete").click().run()
    assert "used by 1 ended run or more." in text_of(app)


def test_search_kind_and_heads_arrange_the_rows(open_page, service, said) -> None:
    app = open_page("library")
    app.text_input(key="shelf-model-text").input("LENET").run()
    assert "lenet.pt2" in text_of(app) and "1 model," in text_of(app)
    app.text_input(key="shelf-model-text").input("there is no such").run()
    assert "No file matches" in text_of(app)
    app.text_input(key="shelf-model-text").input("").run()
    kinds = app.selectbox(key="shelf-model-kind")
    kinds.select(kinds.options[-1]).run()
    assert "1 model," in text_of(app)
    kinds.select(None).run()
    said["shelf-model-table"] = {"sorted": "size"}
    app.run()
    app.run()
    assert 'aria-sort="descending"' in html_of(app) and not app.exception
    app.text_input(key="trained-text").input("nothing of this").run()
    assert "Nothing matches" in text_of(app)


@pytest.mark.parametrize("what", ["model", "checkpoint"])
def test_what_a_run_has_kept_starts_a_new_hybrid_with_its_data(what, open_page, service, said) -> None:
    kept = next(one for one in kept_of(service, what) if one.run_id == "r-done")
    if what == "model":
        source = service.home.run(kept.run_id) / "models" / "own.pt2"
        source.write_bytes(b"trained")
        with service.store._database.write() as session:
            session.get(SubModelRow, (kept.run_id, kept.submodel)).model_path = str(source)
    shelf = "trained" if what == "model" else "kept-checkpoints"
    app = ticked(open_page, said, shelf, f"{kept.run_id}/{kept.submodel}")
    assert "Made of" in text_of(app)
    app.button(key=f"{shelf}-use").click().run()
    assert not app.exception
    [taken] = [one for one in service.library.shelf() if one.origin is not None]
    assert (taken.origin.run_id, taken.origin.submodel, taken.origin.what) == (kept.run_id, kept.submodel, what)
    [document] = service.drafts.values()
    [part] = document["submodels"]
    named = part["model"] if what == "model" else part["start_from"]["file"]
    assert named == f"sha256:{taken.file.sha256}" and part["train_data"], "with the data of that training"
    app = ticked(open_page, said, "shelf-model" if what == "model" else "shelf-checkpoint", taken.file.sha256)
    assert "from run" in text_of(app)


def test_a_quota_refuses_what_is_beyond_it_with_a_finding(upload, open_page, service) -> None:
    used = service.library.quota().used_bytes
    service.people.set_quota(used + 5)
    app = open_page("library")
    assert "of " in text_of(app) and "u-bar" in html_of(app)
    with pytest.raises(BadInput, match="Your files take"):
        service.library.begin_upload("large.pt2", 6)
    upload(app, "library-model", "small.pt2", b"small")
    with pytest.raises(BadInput, match="larger quota"):
        service.library.begin_upload("more.pt2", 1)


def test_the_rows_of_a_table_cannot_become_markup_and_have_roles() -> None:
    line = rows.TableLine('k"><i>', "<svg onload=alert(1)>", ["<b>made</b>"], href='run?run="><script>')
    shown = rows.table([rows.Column("a", "<u>", True), rows.Column("b", "B")], [line], caption="<q>", sort="a")
    assert tags_in(shown) == {
        "table",
        "caption",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "label",
        "input",
        "button",
        "span",
        "a",
        "b",
    }
    assert 'scope="col"' in shown and 'aria-sort="ascending"' in shown
