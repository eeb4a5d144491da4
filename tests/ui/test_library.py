from dataclasses import replace

from tests.ui.reading import downloads, html_of, text_of


def upload(app, key, filename, content):
    app.file_uploader(key=key).set_value((filename, content, "application/octet-stream")).run()
    assert not app.exception


def test_files_are_listed_with_their_facts(open_page):
    words = text_of(open_page("library"))
    assert "lenet.pt2" in words and "9,326 weights" in words
    assert "digits_train.pt" in words and "1,437 samples" in words


def test_trained_models_can_be_downloaded(open_page, service):
    offered = downloads(open_page("library"))
    wanted = [(f"Download {m.submodel}", f"files/models/{m.run_id}/{m.submodel}") for m in service.trained()]
    assert wanted and offered == wanted


def test_an_empty_library_says_how_to_fill_it(open_page, service):
    service.held.clear()
    service.listed.clear()
    words = text_of(open_page("library"))
    for sentence in ("No model yet", "No data set yet", "No checkpoint yet", "No trained model yet"):
        assert sentence in words


def test_an_uploaded_model_is_listed(open_page):
    app = open_page("library")
    upload(app, "library-model-0", "own.pt2", b"content")
    assert "own.pt2" in text_of(app)


def test_a_refused_upload_shows_the_finding_until_the_next_one(open_page):
    app = open_page("library")
    upload(app, "library-model-0", "bad.pt2", b"broken")
    assert "This is no model." in text_of(app) and "Export it again." in text_of(app)
    upload(app, "library-model-1", "good.pt2", b"content")
    assert "This is no model." not in text_of(app)


def test_names_of_files_cannot_become_markup(open_page, service):
    service.held[:] = [replace(file, filename="<svg onload=alert(1)>.pt2", format="<b>") for file in service.held]
    shown = html_of(open_page("library"))
    assert "<svg" not in shown and "&lt;svg" in shown


def test_checkpoints_are_listed_and_can_be_added(open_page, service):
    app = open_page("library")
    assert (
        "lenet-step-115.safetensors checkpoint unifiednn-checkpoint 9,326 weights · of lenet · step 115 · adam"
        in text_of(app)
    )
    upload(app, "library-checkpoint-0", "own-step-7.safetensors", b"content")
    assert service.held[-1].kind == "checkpoint"
    assert "own-step-7.safetensors" in text_of(app)
