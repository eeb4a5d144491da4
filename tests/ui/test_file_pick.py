"""Several files of one name: the one that a person chose is the one that trains."""

import hashlib
import threading
from dataclasses import replace

import pytest

from pages._ui import file_pick
from tests.ui.reading import box, labels, option, press, text_of
from tests.waiting import wait_until
from unifiednn_core.preflight import client

TIMES = "\N{MULTIPLICATION SIGN}"
PLACES = [
    ("Model", "lenet.pt2", "model"),
    ("Training data", "digits_train.pt", "train_data"),
    ("Test data", "digits_test.pt", "test_data"),
    ("Checkpoint or weights", "lenet-step-115.safetensors", "start_from"),
]


def twin(service, filename):
    """A second file of that name in the library, the newer one, with other content."""
    old = next(file for file in service.held if file.filename == filename)
    new = replace(old, sha256=old.sha256[::-1], created_at_s=old.created_at_s + 90)
    service.held.insert(0, new)
    return new, old


@pytest.mark.parametrize(
    ("label", "filename", "entry", "newest"), [(*PLACES[0], True), *((*place, False) for place in PLACES)]
)
def test_of_two_files_of_one_name_the_chosen_one_is_saved(label, filename, entry, newest, open_page, service, drafted):
    files = twin(service, filename)
    chosen = files[0] if newest else files[1]
    app = press(open_page("build", draft=drafted), "Edit lenet")
    both = [text for text in box(app, label).options if text.startswith(filename)]
    assert len(set(both)) == 2
    box(app, label).select(next(text for text in both if text.endswith(chosen.sha256[:4]))).run()
    press(app, "Save sub-model")
    saved = service.drafts[drafted]["submodels"][0][entry]
    assert (saved["file"] if entry == "start_from" else saved) == f"sha256:{chosen.sha256}"


@pytest.mark.parametrize(("label", "filename", "entry"), PLACES)
def test_a_second_upload_of_one_name_is_the_one_that_is_saved(
    label, filename, entry, upload, open_page, service, drafted
):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    if entry == "start_from":
        box(app, label).select(next(text for text in box(app, label).options if text.startswith(filename))).run()
    key = {"train_data": "train", "test_data": "test", "start_from": "start"}.get(entry, entry)
    upload(app, f"-{key}-upload", filename, b"content")
    uploaded = f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    assert box(app, label).value == uploaded
    press(app, "Save sub-model")
    saved = service.drafts[drafted]["submodels"][0][entry]
    assert (saved["file"] if entry == "start_from" else saved) == uploaded


def test_the_parts_of_a_split_are_chosen_though_others_have_their_names(open_page, service, monkeypatch):
    train, _ = twin(service, "digits_train.pt")
    test, _ = twin(service, "digits_test.pt")
    asked = []
    monkeypatch.setattr(
        service.library, "split_data", lambda sha256, **plan: asked.append(plan["test_share"]) or (train, test)
    )
    app = open_page("build")
    app.button(key="add").click().run()
    assert "Split" not in labels(app), "nothing to split yet"
    box(app, "Training data").select_index(0).run()
    press(app, "Split")
    assert asked == [0.2] and "Split" not in labels(app)
    assert (box(app, "Training data").value, box(app, "Test data").value) == (
        f"sha256:{train.sha256}",
        f"sha256:{test.sha256}",
    )


def test_a_row_names_the_hash_where_the_name_alone_says_too_little(open_page, service, drafted):
    old = next(file for file in service.held if file.filename == "digits_train.pt")
    assert f"digits_train.pt ({old.sha256[:4]})" not in text_of(open_page("build", draft=drafted))
    twin(service, "digits_train.pt")
    assert f"digits_train.pt ({old.sha256[:4]})" in text_of(open_page("build", draft=drafted))


def test_equal_labels_grow_until_they_differ(service):
    old = service.held[0]
    files = [old, replace(old, sha256=old.sha256[:40] + "f" * 24)]
    labels = file_pick.labels(files)
    assert len(set(labels.values())) == 2


def test_a_label_says_what_a_file_holds(service):
    labels = file_pick.labels([file for file in service.held if file.filename == "digits_train.pt"])
    parts = next(iter(labels.values())).replace("\N{MULTIPLICATION SIGN}", "x").split(" · ")
    assert parts[:3] == ["digits_train.pt", "1,437 samples", "1 x 8 x 8"] and parts[3].startswith("14 Nov ")


def test_what_does_not_fit_comes_last_with_the_reason(open_page, service, drafted):
    old = next(file for file in service.held if file.filename == "digits_train.pt")
    large = replace(old, sha256="f" * 64, filename="a_large.pt", facts={**old.facts, "input_shape": [1, 28, 28]})
    service.held.insert(0, large)
    app = press(open_page("build", draft=drafted), "Edit lenet")
    first, *_, last = box(app, "Test data").options[1:]
    assert first.startswith("digits_") and last.startswith("a_large.pt")
    assert f"instead of 1 {TIMES} 8 {TIMES} 8" in last and "instead of" not in first
    box(app, "Test data").select(last).run()
    assert f"This does not fit: 1 {TIMES} 28 {TIMES} 28 instead of 1 {TIMES} 8 {TIMES} 8." in text_of(app)
    box(app, "Training data").select(option(app, "Training data", "a_large.pt")).run()
    assert box(app, "Test data").value == f"sha256:{'f' * 64}", "the choice stays though its label is another one"
    assert "This does not fit" in text_of(app), "the network takes 8 x 8"


def test_the_form_stays_usable_while_a_file_is_read(upload, open_page, service, drafted, monkeypatch):
    reads_on, inspect = threading.Event(), client.inspect

    def slow(*given, **more):
        reads_on.wait(60)
        return inspect(*given, **more)

    monkeypatch.setattr(client, "inspect", slow)
    app = press(open_page("build", draft=drafted), "Edit lenet")
    upload(app, "-train-upload", "own.pt", b"content")
    assert "The server reads the file." in text_of(app)
    next(one for one in app.number_input if one.label == "Epochs").set_value(5).run()
    assert service.drafts[drafted]["editing"]["entered"]["hyperparameters"]["epochs"] == 5
    app.switch_page("pages/now.py").run()
    app.switch_page("pages/build.py").run()
    assert "The server reads the file." in text_of(app)
    reads_on.set()
    wait_until(lambda: any(file.filename == "own.pt" for file in service.held))
    app.run()
    assert "The server reads the file." not in text_of(app)
    assert box(app, "Training data").value == f"sha256:{hashlib.sha256(b'content').hexdigest()}"
    assert next(one.value for one in app.number_input if one.label == "Epochs") == 5


def test_a_refusal_in_the_background_is_told_where_it_can_be_read_again(upload, open_page, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    upload(app, "-train-upload", "own.pt", b"broken")
    assert "This is no model." in text_of(app) and "Discard it" in labels(app)
