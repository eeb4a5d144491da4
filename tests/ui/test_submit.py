from tests.ui.reading import box, labels, press, text_of
from unifiednn_core.base.errors import Finding


def chosen(app):
    """The form with the first model and data set of the library."""
    box(app, "Model").select_index(0).run()
    box(app, "Training data").select_index(0).run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def epochs(app):
    return next(box for box in app.number_input if box.label == "Epochs")


def test_without_a_network_nothing_can_be_submitted_and_the_page_says_what_is_missing(open_page, service):
    app = open_page("submit")
    assert app.button(key="start").disabled and "Not ready to submit: Choose or upload a model." in text_of(app)
    box(app, "Model").select_index(0).run()
    assert "Choose or upload training data." in text_of(app)
    assert "Submit" in labels(app) and "Check" in labels(app)


def test_one_network_is_submitted_as_a_shared_run_and_its_page_opens(open_page, service):
    app = chosen(open_page("submit"))
    assert not app.button(key="start").disabled
    app.button(key="start").click().run()
    assert not app.exception, [error.value for error in app.exception]
    [run_id], [spec] = service.submitted_ids, service.submitted
    assert run_id.startswith("s") and app.query_params["run"] in (run_id, [run_id])
    assert (spec.hybrid, spec.device, spec.name, len(spec.submodels)) == ("shared", "auto", "lenet", 1)
    assert service.drafts == {}, "it is no draft any more"
    words = text_of(app)
    assert "In the queue" in words and "number 2" in words, "one run of the seed waits before it"
    assert "in shared hybrids" in words


def test_a_refresh_loses_nothing(open_page, service):
    app = chosen(open_page("submit"))
    epochs(app).set_value(7).run()
    [(draft_id, document)] = service.drafts.items()
    assert document["hybrid"] == "shared" and document["submodels"][0]["hyperparameters"]["epochs"] == 7
    again = open_page("submit", draft=draft_id)
    assert epochs(again).value == 7 and not again.button(key="start").disabled
    assert "No such draft" in text_of(open_page("submit", draft="gone"))


def test_warnings_come_before_the_submission(open_page, service):
    service.findings = (
        Finding(severity="warning", title="Slow", field="submodels.lenet", message="It is slow.", remedy="Wait."),
    )
    app = press(chosen(open_page("submit")), "Submit")
    assert "It is slow." in text_of(app) and service.submitted == []
    press(app, "Start anyway")
    assert [spec.hybrid for spec in service.submitted] == ["shared"]


def test_the_last_draft_opens_again_and_one_of_another_tab_is_not_overwritten(open_page, service):
    app = chosen(open_page("submit"))
    epochs(app).set_value(7).run()
    app = app.switch_page("pages/now.py").run().switch_page("pages/submit.py").run()
    assert epochs(app).value == 7
    there = open_page("submit")
    assert epochs(there).value == 7, "also in a new session"
    epochs(app).set_value(8).run()
    epochs(there).set_value(9).run()
    [document] = service.drafts.values()
    assert document["submodels"][0]["hyperparameters"]["epochs"] == 8 and "Changed in another tab" in text_of(there)
    press(there, "Overwrite")
    [document] = service.drafts.values()
    assert document["submodels"][0]["hyperparameters"]["epochs"] == 9
    assert open_page("submit", draft="new").query_params == {}
