import json
from dataclasses import replace

import pytest

from pages._ui import uploads
from tests.ui.fake_views import sha, submitted_demo
from tests.ui.reading import box, button, labels, option, press, text_of
from unifiednn_core.base.errors import Finding, IntakeFailed
from unifiednn_core.preflight import client


def names(service, draft_id):
    return [submodel["name"] for submodel in service.drafts[draft_id]["submodels"]]


def test_an_empty_draft_cannot_be_started_and_says_why(open_page):
    app = open_page("build")
    assert app.button(key="start").disabled
    assert "1 Sub-models Add the first network." in text_of(app)
    assert {"Add sub-model", "Try the demo"} <= labels(app)


def test_a_sub_model_is_put_together_and_kept_in_the_draft(open_page, service):
    app = open_page("build")
    app.button(key="add").click().run()
    pick = {box.label: box for box in app.selectbox}
    pick["Model"].select_index(0).run()
    pick = {box.label: box for box in app.selectbox}
    pick["Training data"].select_index(0).run()
    app.button(key="editor-save").click().run()
    assert not app.exception
    draft_id, document = next(iter(service.drafts.items()))
    assert app.query_params["draft"] in (draft_id, [draft_id])
    assert [submodel["name"] for submodel in document["submodels"]] == ["lenet"]
    assert not app.button(key="start").disabled


def test_a_change_of_another_tab_is_not_overwritten_without_asking(open_page, service, drafted):
    here, there = open_page("build", draft=drafted), open_page("build", draft=drafted)
    there.text_input(key="run-name").set_value("theirs").run()
    press(here, "Move down lenet")
    assert service.drafts[drafted]["name"] == "theirs" and names(service, drafted)[0] == "lenet"
    assert "Changed in another tab" in text_of(here)
    here.text_input(key="run-name").set_value("ours").run()
    assert service.drafts[drafted]["name"] == "theirs"
    press(here, "Overwrite")
    assert service.drafts[drafted]["name"] == "ours" and names(service, drafted)[0] == "resnet"
    assert "Changed in another tab" not in text_of(here)
    press(here, "Move down resnet")
    assert names(service, drafted)[0] == "lenet" and "Changed in another tab" not in text_of(here)


def test_an_unknown_draft_is_told_and_a_new_one_begun(open_page):
    app = open_page("build", draft="gone")
    assert "No such draft" in text_of(app)
    assert app.button(key="start").disabled


@pytest.mark.parametrize(
    ("label", "order"),
    [
        ("Move up transformer", ["lenet", "transformer", "resnet"]),
        ("Move down lenet", ["resnet", "lenet", "transformer"]),
        ("Move transformer to the top", ["transformer", "lenet", "resnet"]),
        ("Remove resnet", ["lenet", "transformer"]),
    ],
)
def test_rows_move_and_go_as_their_buttons_say(label, order, open_page, service, drafted):
    button(open_page("build", draft=drafted), label).click().run()
    assert names(service, drafted) == order


def test_priorities_are_shown_only_where_the_policy_looks_at_them(open_page, service, drafted):
    app = open_page("build", draft=drafted)
    assert "Priority (low first)" not in text_of(app)
    press(press(app, "Edit resnet"), "Save sub-model")
    assert [submodel["priority"] for submodel in service.drafts[drafted]["submodels"]] == [0, 1, 2], "they are kept"
    app.segmented_control(key="policy-name").set_value("priority").run()
    assert "Priority (low first)" in text_of(app)
    assert "Priority (low first)" in {box.label for box in press(app, "Edit resnet").number_input}


def test_a_priority_typed_into_a_row_is_kept(open_page, service, drafted):
    service.drafts[drafted]["policy"] = {"name": "priority"}
    app = open_page("build", draft=drafted)
    box = next(box for box in app.number_input if box.label == "Priority of resnet")
    box.set_value(9).run()
    assert [submodel["priority"] for submodel in service.drafts[drafted]["submodels"]] == [0, 9, 2]


@pytest.mark.parametrize(
    ("name", "parameter", "typed", "kept"),
    [("sjf", "By", "epochs", {"by": "epochs"}), ("fair", "Turn (s)", "0.5", {"turn_s": 0.5})],
)
def test_the_policy_and_its_parameters_are_kept(name, parameter, typed, kept, open_page, service, drafted):
    app = open_page("build", draft=drafted)
    app.segmented_control(key="policy-name").set_value(name).run()
    next(box for box in (*app.selectbox, *app.text_input) if box.label == parameter).set_value(typed).run()
    assert not app.exception
    assert service.drafts[drafted]["policy"] == {"name": name, **kept}


def test_a_check_shows_facts_and_findings(open_page, service, drafted):
    service.findings = (
        Finding(severity="warning", title="No test", field="submodels.lenet.test_data", message="None.", remedy="Add."),
    )
    app = open_page("build", draft=drafted)
    app.button(key="check").click().run()
    words = text_of(app)
    assert "submodels.lenet.test_data" in words and "Add." in words
    assert "1,437" in words


def test_a_technique_is_ticked_checked_and_its_saving_told_in_the_report_and_in_the_form(open_page, service, drafted):
    saving = "saves 41 % of the step's memory: 59 MiB instead of 100 MiB"
    app = press(open_page("build", draft=drafted), "Edit lenet")
    assert saving not in text_of(app)
    next(one for one in app.checkbox if one.label == "Activation compression").check().run()
    app.button(key="editor-save").click().run()
    assert service.drafts[drafted]["submodels"][0]["hyperparameters"]["techniques"] == [{"name": "compression"}]
    app.button(key="check").click().run()
    assert text_of(app).count(saving) == 1 and f"lenet : {saving}" in text_of(app)
    assert f"The last check: {saving}." in text_of(press(app, "Edit lenet"))


def test_devices_of_a_sub_model_are_told_in_the_report(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    next(one for one in app.number_input if one.label == "Devices").set_value(2).run()
    next(one for one in app.text_input if one.label.startswith("Limit of each")).set_value("300").run()
    app.button(key="editor-save").click().run()
    assert service.drafts[drafted]["submodels"][0]["placement"] == {"devices": 2, "cap_mib": 300.0}
    app.button(key="check").click().run()
    assert not app.exception
    assert "lenet 0 2 200 MiB 300 MiB 50 MiB 50.0 %" in text_of(app), text_of(app)[-400:]


@pytest.mark.parametrize("key", ["check", "start"])
def test_what_is_tried_is_shown_while_one_waits(open_page, service, drafted, key):
    app, service.failing = open_page("build", draft=drafted), IntakeFailed("The process ended.")
    words = text_of(app.button(key=key).click().run())
    assert "Trying a step of <b>one</b> (2 of 3)…" in words and "The process ended." in words
    service.failing = None
    assert "(2 of 3)" not in text_of(app.button(key=key).click().run()), "it is gone with the end of the check"


WARNING = Finding(
    severity="warning", title="No test", field="submodels.lenet.test_data", message="None given.", remedy="Add some."
)


def test_a_start_with_warnings_shows_them_first_and_goes_on_where_that_is_wanted(open_page, service, drafted):
    service.findings = (WARNING,)
    app = open_page("build", draft=drafted)
    app.button(key="start").click().run()
    assert not app.exception
    assert "None given." in text_of(app) and "Add some." in text_of(app)
    assert service.submitted == [] and drafted in service.drafts
    app.button(key="start-anyway").click().run()
    assert [(spec.name, spec.submodels) for spec in service.submitted] == [("demo", submitted_demo())]
    assert drafted not in service.drafts


def test_warnings_of_a_spec_that_was_changed_since_are_gone(open_page, service, drafted):
    service.findings = (WARNING,)
    app = open_page("build", draft=drafted)
    app.button(key="start").click().run()
    app.text_input(key="run-name").set_value("another").run()
    assert "None given." not in text_of(app)
    assert "start-anyway" not in {button.key for button in app.button}
    app.button(key="start").click().run()
    assert service.submitted == []
    assert "None given." in text_of(app)


def test_an_error_cannot_be_overridden(open_page, service, drafted):
    service.findings = (WARNING, Finding(title="Bad", field="submodels.lenet.model", message="No weights.", remedy="-"))
    app = open_page("build", draft=drafted)
    app.button(key="start").click().run()
    assert "No weights." in text_of(app)
    assert "start-anyway" not in {button.key for button in app.button}
    assert service.submitted == [] and drafted in service.drafts


def test_hyperparameters_typed_as_json_fill_the_form(open_page, drafted):
    app = open_page("build", draft=drafted)
    button(app, "Edit lenet").click().run()
    wanted = {"epochs": 7, "batch_size": 16, "optimizer": "adamw", "learning_rate": 0.5}
    app.text_area[0].set_value(json.dumps(wanted)).run()
    button(app, "Apply JSON").click().run()
    assert not app.exception
    assert next(box.value for box in app.number_input if box.label == "Epochs") == 7
    assert next(box.value for box in app.selectbox if box.label == "Optimizer") == "adamw"


def test_wrong_json_is_told_with_its_place(open_page, drafted):
    app = open_page("build", draft=drafted)
    button(app, "Edit lenet").click().run()
    app.text_area[0].set_value('{"epochs": }').run()
    button(app, "Apply JSON").click().run()
    assert "line 1, column 12" in text_of(app)


def test_a_deadline_is_typed_in_minutes_and_0_is_none(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    next(box for box in app.number_input if box.label == "Deadline (min)").set_value(1.5).run()
    app.button(key="editor-save").click().run()
    assert [part.get("deadline_s") for part in service.drafts[drafted]["submodels"]] == [90, None, None]
    app = press(open_page("build", draft=drafted), "Edit lenet")
    box = next(box for box in app.number_input if box.label == "Deadline (min)")
    assert box.value == 1.5
    box.set_value(0.0).run()
    app.button(key="editor-save").click().run()
    assert "deadline_s" not in service.drafts[drafted]["submodels"][0]


def test_the_recovery_settings_stay_out_of_the_draft_until_they_are_changed(open_page, service, drafted):
    before = json.loads(json.dumps(service.drafts[drafted]))
    press(open_page("build", draft=drafted), "Move down lenet")
    assert {**service.drafts[drafted], "submodels": []} == {
        **before,
        "submodels": [],
        "checkpoint": before["checkpoint"],
        "recovery": before["recovery"],
    }
    app = open_page("build", draft="new")
    app.text_input(key="run-name").set_value("mine").run()
    [document] = [document for document in service.drafts.values() if document["name"] == "mine"]
    assert not {"checkpoint", "recovery", "step_limit_s"} & set(document)


def test_how_progress_is_kept_and_what_follows_a_crash_reach_the_spec(open_page, service, drafted):
    app = open_page("build", draft=drafted)
    app.number_input(key="run-every-s").set_value(5).run()
    app.number_input(key="run-every-steps").set_value(200).run()
    app.segmented_control(key="run-after-crash").set_value("ask").run()
    app.number_input(key="run-step-limit").set_value(45).run()
    app.button(key="start").click().run()
    [spec] = service.submitted
    assert (spec.checkpoint.every_s, spec.checkpoint.every_steps) == (5, 200)
    assert (spec.recovery, spec.step_limit_s) == ("ask", 45)


def test_without_any_period_the_run_cannot_be_started_and_says_why(open_page, service, drafted):
    service.drafts[drafted]["checkpoint"] = {"every_s": None}
    app = open_page("build", draft=drafted)
    assert app.button(key="start").disabled
    assert "Without a period no checkpoint is written." in text_of(app)
    app.number_input(key="run-every-steps").set_value(10).run()
    assert not app.button(key="start").disabled
    assert service.drafts[drafted]["checkpoint"] == {"every_s": None, "every_steps": 10}


def starting_from(open_page, drafted, start):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    box(app, "Checkpoint or weights").select(option(app, "Checkpoint or weights", start)).run()
    assert not app.exception
    return app


@pytest.mark.parametrize("take", ["everything", "weights"])
def test_a_sub_model_starts_from_a_checkpoint_of_the_library(take, open_page, service, drafted):
    app = starting_from(open_page, drafted, "lenet-step-115.safetensors")
    choice = next(radio for radio in app.radio if radio.label == "Load")
    assert choice.value == "everything" and choice.options == ["Everything", "Only the weights"]
    choice.set_value(take).run()
    press(app, "Save sub-model")
    checkpoint = service.held[-1]
    assert checkpoint.kind == "checkpoint"
    start = service.drafts[drafted]["submodels"][0]["start_from"]
    assert start == {"file": f"sha256:{checkpoint.sha256}", "take": take}
    assert "from lenet-step-115.safetensors" in text_of(app)


def test_of_a_weights_file_only_the_weights_can_be_taken(open_page, service, drafted):
    app = starting_from(open_page, drafted, "resnet.safetensors")
    assert next(radio for radio in app.radio if radio.label == "Load").options == ["Only the weights"]
    press(app, "Save sub-model")
    assert service.drafts[drafted]["submodels"][0]["start_from"]["take"] == "weights"


def test_a_sub_model_starts_from_what_a_run_of_this_server_keeps(open_page, service, drafted, monkeypatch):
    asked, checkpoint = [], service.held[-1]
    monkeypatch.setattr(service.library, "take", lambda *given: asked.append(given) or checkpoint)
    app = press(open_page("build", draft=drafted), "Edit lenet")
    own = box(app, "Trained models and checkpoints of runs")
    own.select_index(0).run()
    while "The server reads the file." in text_of(app):
        app.run()
    assert not app.exception, [error.value for error in app.exception]
    [(run_id, submodel, what)] = asked
    assert submodel in own.options[0] and what in ("model", "checkpoint") and run_id
    press(app, "Save sub-model")
    assert service.drafts[drafted]["submodels"][0]["start_from"]["file"] == f"sha256:{checkpoint.sha256}"


def test_a_start_can_be_taken_back(open_page, service, drafted):
    press(starting_from(open_page, drafted, "resnet.safetensors"), "Save sub-model")
    press(starting_from(open_page, drafted, "the model file itself"), "Save sub-model")
    assert "start_from" not in service.drafts[drafted]["submodels"][0]


def test_a_wrong_entry_is_told_at_its_field(open_page, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    next(box for box in app.text_input if box.label == "Name").set_value("no name").run()
    press(app, "Save sub-model")
    words = text_of(app)
    assert words.index("is not a valid name") < words.index("Inputs become")


def test_what_is_missing_is_no_markup(open_page, service):
    named = {"name": "![x](https://evil.example/p.png)", "model": "m", "train_data": "d"}
    service.drafts["evil"] = {"name": "hybrid", "submodels": [named]}
    app = open_page("build", draft="evil")
    start = app.button(key="start")
    assert start.disabled and start.help.startswith("`'![x](https://evil.example/p.png)' is not a valid name")


def test_a_sweep_is_put_together_told_and_kept_as_its_lists(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    vary = next(box for box in app.multiselect if box.label == "Vary")
    vary.set_value(["learning_rate", "seed"]).run()
    typed = {box.key.partition("-sweep-")[2]: box for box in app.text_input if "-sweep-" in box.key}
    typed["learning_rate-list"].set_value("0.1, 0.01").run()
    way = next(one for one in app.segmented_control if one.key.endswith("-sweep-seed-way"))
    way.set_value("range").run()
    assert not app.exception, [error.value for error in app.exception]
    assert "8 sub-models: lenet-lr0_1-seed1, lenet-lr0_1-seed2, lenet-lr0_1-seed3, …, lenet-lr0_01-seed4" in text_of(
        app
    )
    app.button(key="editor-save").click().run()
    assert service.drafts[drafted]["submodels"][0]["sweep"] == {"learning_rate": [0.1, 0.01], "seed": [1, 2, 3, 4]}
    assert "sweep of 8 over learning_rate, seed" in text_of(app)
    app = press(app, "Edit lenet")
    app.button(key="editor-save").click().run()
    assert service.drafts[drafted]["submodels"][0]["sweep"] == {"learning_rate": [0.1, 0.01], "seed": [1, 2, 3, 4]}


def test_a_wrong_value_of_a_sweep_is_told_in_its_form(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Edit lenet")
    next(box for box in app.multiselect if box.label == "Vary").set_value(["learning_rate"]).run()
    next(box for box in app.text_input if box.key.endswith("-sweep-learning_rate-list")).set_value("0.1, fast").run()
    app.button(key="editor-save").click().run()
    assert "submodels.lenet.sweep.learning_rate" in text_of(app)
    assert "sweep" not in service.drafts[drafted]["submodels"][0]


def form(app, label):
    return next(box for box in (*app.number_input, *app.text_input) if box.label == label)


def test_the_open_form_is_part_of_the_draft_and_comes_back_as_it_was_typed(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Edit resnet")
    form(app, "Epochs").set_value(77).run()
    form(app, "Learning rate").set_value("0.0x").run()
    [kept] = service.drafts.values()
    assert (kept["editing"]["at"], kept["editing"]["entered"]["hyperparameters"]["epochs"]) == (1, 77)
    assert kept["submodels"][1]["hyperparameters"]["epochs"] == 14, "the sub-model itself is not saved yet"
    again = open_page("build", draft=drafted)  # a refresh
    for page in (again, app.switch_page("pages/now.py").run().switch_page("pages/build.py").run()):
        assert not page.exception, [error.value for error in page.exception]
        assert (form(page, "Epochs").value, form(page, "Learning rate").value) == (77, "0.0x")
        assert page.button(key="start").disabled
    form(app, "Learning rate").set_value("0.5").run()
    app.button(key="editor-save").click().run()
    saved = service.drafts[drafted]
    assert "editing" not in saved and saved["submodels"][1]["hyperparameters"]["learning_rate"] == 0.5


def test_a_form_that_nobody_typed_into_leaves_nothing_and_a_cancelled_one_neither(open_page, service):
    app = press(open_page("build"), "Add sub-model")
    assert service.drafts == {}
    box(app, "Model").select_index(0).run()
    [document] = service.drafts.values()
    assert "editing" in document
    app.button(key="editor-cancel").click().run()
    [document] = service.drafts.values()
    assert "editing" not in document and document["submodels"] == []


def test_build_opens_the_last_draft_of_the_session_and_in_a_new_one_the_newest(open_page, service, drafted):
    service.library.save_draft({"name": "newer", "submodels": []})
    app = open_page("build", draft=drafted)
    app.switch_page("pages/now.py").run()
    app = app.switch_page("pages/build.py").run()
    assert app.text_input(key="run-name").value == "demo" and app.query_params["draft"] in (drafted, [drafted])
    assert open_page("build").text_input(key="run-name").value == "newer"
    assert open_page("build", draft="new").text_input(key="run-name").value == "hybrid"


def test_other_drafts_are_listed_and_can_be_deleted(open_page, service, drafted):
    service.library.save_draft({"name": "other <b>", "submodels": [{}]})
    app = open_page("build", draft=drafted)
    assert "other <b>" in text_of(app) and "1 sub-model" in text_of(app)
    press(app, next(one for one in labels(app) if one.startswith("Delete draft")))
    assert list(service.drafts) == [drafted]


def test_a_submitted_draft_leads_to_its_run_and_the_next_visit_begins_anew(open_page, service, drafted):
    app = open_page("build", draft=drafted)
    app.button(key="start").click().run()
    app = app.switch_page("pages/build.py").run()
    assert app.text_input(key="run-name").value == "hybrid"
    again = open_page("build", draft=drafted)
    assert "That draft was submitted." in text_of(again)
    [run_id] = service.submitted_ids
    [link] = [one.proto for one in again.get("page_link") if one.proto.label == "Open its run"]
    assert run_id in link.query_string
    assert service.library.run_of_draft(drafted) == run_id


def test_a_new_sub_model_begins_with_nothing_of_the_last(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Add sub-model")
    assert (box(app, "Training data").value, form(app, "Epochs").value, form(app, "Scale").value) == (None, 1, "")
    box(app, "Model").select_index(0).run()
    box(app, "Training data").select_index(0).run()
    assert form(app, "Scale").value == "1/255", "they are 8-bit images"
    app.button(key="editor-save").click().run()
    *_, new = service.drafts[drafted]["submodels"]
    assert (new["scale"], new["guessed"]) == (1 / 255, {"scale": 1 / 255})
    assert "test_data" not in new and new["hyperparameters"]["epochs"] == 1
    assert "pixels / 255 (guessed)" in text_of(app)


def test_a_duplicate_has_a_name_of_its_own(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Duplicate lenet")
    press(app, "Duplicate lenet")
    assert names(service, drafted) == ["lenet", "lenet-3", "lenet-2", "resnet", "transformer"]
    assert not app.button(key="start").disabled


def dropping(app, service, monkeypatch, *files):
    """Let the browser have sent these files, and the server have read them."""
    sent = [service.upload(name, content, ("model", "data")) for name, content in files]
    monkeypatch.setattr(uploads, "sent_batch", lambda label, *, key: (sent, 0))
    app.run()
    while "The server reads the files." in text_of(app):
        app.run()
    assert not app.exception, [error.value for error in app.exception]


def test_dropped_models_and_data_become_sub_models_at_once(open_page, service, monkeypatch):
    app = open_page("build")
    files = (("a.pt2", b"1"), ("b.pt2", b"2"), ("c.pt2", b"3"), ("own_train.npz", b"4"), ("own_test.npz", b"5"))
    dropping(app, service, monkeypatch, *files)
    [document] = service.drafts.values()
    assert [one["name"] for one in document["submodels"]] == ["a", "b", "c"]
    assert len({one["train_data"] for one in document["submodels"]} | {document["submodels"][0]["test_data"]}) == 2
    assert not app.button(key="start").disabled
    app.run()
    assert len(service.drafts[next(iter(service.drafts))]["submodels"]) == 3, "once"


def test_a_second_drop_inherits_nothing_and_rows_say_what_is_guessed(open_page, service, monkeypatch):
    floats, pictures = ({"input_shape": shape, "input_dtype": "float32"} for shape in ([64], [3, 32, 32]))
    facts = {
        "png.pt2": pictures,
        "mlp.pt2": floats,
        "more.pt2": floats,
        "other.pt2": {"input_shape": [7]},
        "shapes.zip": pictures | {"input_dtype": "uint8", "classes": 3},
        "digits.npz": floats | {"classes": 10},
    }
    monkeypatch.setattr(
        client,
        "inspect",
        lambda path, name, **asked: service._inspect(path, name, **asked).model_copy(update={"facts": facts[name]}),
    )

    def split_data(sha256, **plan):
        whole = next(file for file in service.library.files() if file.sha256 == sha256)
        parts = [
            replace(whole, sha256=sha(f"{part}{whole.filename}"), filename=f"{part}{percent}-seed0.safetensors")
            for part, percent in ((f"{whole.filename[:6]}-train", 80), (f"{whole.filename[:6]}-test", 20))
        ]
        known = {file.sha256 for file in service.library.files()}
        service.held.extend([one for one in parts if one.sha256 not in known])
        return parts

    service.library.split_data = split_data
    dropping(open_page("build"), service, monkeypatch, ("png.pt2", b"1"), ("shapes.zip", b"2"))
    [(draft_id, document)] = service.drafts.items()
    hyper = {"epochs": 9, "batch_size": 7}
    known = {"mean": 0.5, "transforms": [{"name": "horizontal_flip"}], "loading": "resident", "hyperparameters": hyper}
    service.drafts[draft_id] = document | {"submodels": [document["submodels"][0] | known]}
    app = open_page("build", draft=draft_id)
    dropping(app, service, monkeypatch, ("mlp.pt2", b"3"), ("digits.npz", b"4"))
    dropping(app, service, monkeypatch, ("more.pt2", b"5"), ("other.pt2", b"6"))
    png, mlp, more, other = service.drafts[draft_id]["submodels"]
    assert png["scale"] == 1 / 255 and {*other} == {"name", "model"}
    for one in (mlp, more):
        assert {*one} == {"name", "model", "train_data", "test_data", "guessed"}
        assert one["train_data"] == f"sha256:{sha('digits-traindigits.npz')}"
    words = text_of(app)
    assert "mean 0.5 · pixels / 255, 80/20 split, 3 classes (guessed)" in words
    assert words.count(" · 80/20 split, 10 classes (guessed)") == 2 and "other.pt2, no data yet" in words


def test_a_dropped_spec_and_its_hyperparameters_fill_the_draft(open_page, service, monkeypatch):
    part = {"name": "one", "model": "lenet.pt2", "train_data": "absent.npz"}
    spec, hyper = {"name": "mine", "submodels": [part]}, {"epochs": 9, "optimiser": "adam"}
    app = open_page("build")
    dropping(
        app, service, monkeypatch, ("spec.json", json.dumps(spec).encode()), ("one.json", json.dumps(hyper).encode())
    )
    [document] = service.drafts.values()
    [made] = document["submodels"]
    lenet = next(file for file in service.held if file.filename == "lenet.pt2")
    assert (document["name"], made["model"]) == ("mine", f"sha256:{lenet.sha256}")
    assert "The library has no 'absent.npz'." in text_of(app)
    press(app, "Rename it to optimizer")
    [document] = service.drafts.values()
    assert document["submodels"][0]["hyperparameters"] == {"epochs": 9, "optimizer": "adam"}


def test_a_dropped_file_that_is_refused_says_why_and_the_others_arrive(open_page, service, monkeypatch):
    app = open_page("build")
    dropping(app, service, monkeypatch, ("bad.pt2", b"broken"), ("good.pt2", b"1"))
    assert "This is no model." in text_of(app)
    [document] = service.drafts.values()
    assert [one["name"] for one in document["submodels"]] == ["good"]
