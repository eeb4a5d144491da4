from dataclasses import replace

from tests.ui.reading import downloads, html_of, text_of
from unifiednn_core.base.errors import IntakeFailed
from unifiednn_core.base.units import memory_text
from unifiednn_core.views.library import ServerFile


def test_files_are_listed_with_their_facts(open_page):
    words = text_of(open_page("library"))
    assert "lenet.pt2" in words and "9,326 weights" in words
    assert "digits_train.pt" in words and "1,437 samples" in words


def test_trained_models_can_be_downloaded(open_page, service):
    offered = downloads(open_page("library"))
    wanted = [
        (f"Download {m.submodel}, {memory_text(m.size_bytes)}", f"files/models/{m.run_id}/{m.submodel}")
        for m in service.runs.trained()
    ]
    assert wanted and offered == wanted


def test_an_empty_library_says_how_to_fill_it(open_page, service):
    service.held.clear()
    service.listed.clear()
    words = text_of(open_page("library"))
    for sentence in ("No models yet", "No data sets yet", "No checkpoints yet", "No trained models yet"):
        assert sentence in words


def test_an_uploaded_model_is_listed(upload, open_page):
    app = open_page("library")
    upload(app, "library-model", "own.pt2", b"content")
    assert "own.pt2" in text_of(app)


def test_a_refused_upload_shows_the_finding_until_the_next_one(upload, open_page):
    app = open_page("library")
    upload(app, "library-model", "bad.pt2", b"broken")
    assert "This is no model." in text_of(app) and "Export it again." in text_of(app)
    upload(app, "library-model", "good.pt2", b"content")
    assert "This is no model." not in text_of(app)


def test_a_file_that_could_not_be_read_for_lack_of_memory_is_read_again_without_sending_it(upload, open_page, service):
    app = open_page("library")
    service.failing = IntakeFailed("The process that reads files ended.")
    upload(app, "library-model", "own.pt2", b"content")
    assert "The process that reads files ended." in text_of(app) and "own.pt2" not in text_of(app)
    service.failing = None
    app.button(key="library-model-again").click().run()
    assert not app.exception
    assert "own.pt2" in text_of(app) and "process that reads" not in text_of(app)


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
