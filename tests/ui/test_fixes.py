"""Findings that can be mended by a button, and the check that is shown as long as it holds."""

import pytest

from pages._ui import drafts
from tests.ui.reading import box, labels, press, text_of
from unifiednn_core.base.errors import Finding, Fix

SCALE = Finding(
    title="Integer inputs",
    field="submodels.lenet.scale",
    message="They are bytes.",
    remedy="Scale them.",
    fix=Fix(label="Use 1/255", value=1 / 255),
)
UNTESTED = Finding(
    severity="warning",
    title="No test data",
    field="submodels.resnet.test_data",
    message="None.",
    remedy="Give some.",
    fix=Fix(label="Split 80/20", value=0.2, verb="split"),
)


def test_a_fix_changes_the_draft_and_nothing_else(open_page, service, drafted):
    service.findings = (SCALE,)
    app = press(open_page("build", draft=drafted), "Check")
    assert "checked, 1 error" in text_of(app)
    press(app, "Use 1/255")
    first, *others = service.drafts[drafted]["submodels"]
    assert first["scale"] == 1 / 255 and [one["scale"] for one in others] == [0.0625, 0.0625]
    assert "The draft has changed since the last check." in text_of(app)


def test_a_fix_is_offered_where_the_start_was_refused(open_page, service, drafted):
    service.findings = (SCALE, UNTESTED)
    app = press(open_page("build", draft=drafted), "Start training")
    assert "It cannot start like this" in text_of(app) and "Start anyway" not in labels(app)
    press(app, "Use 1/255")
    assert service.drafts[drafted]["submodels"][0]["scale"] == 1 / 255 and service.submitted == []


def test_a_split_takes_the_place_of_the_data(open_page, service, drafted):
    train, test = [file for file in service.held if file.kind == "data"][:2]
    asked = []
    service.library.split_data = lambda sha256, **plan: asked.append((sha256, plan)) or (test, train)
    service.drafts[drafted]["submodels"] = [
        {**one, "train_data": f"sha256:{train.sha256}"} for one in service.drafts[drafted]["submodels"]
    ]
    service.findings = (UNTESTED,)
    app = press(open_page("build", draft=drafted), "Start training")
    press(app, "Split 80/20")
    assert asked == [(train.sha256, {"test_share": 0.2, "by_class": True})]
    changed = service.drafts[drafted]["submodels"][1]
    assert (changed["train_data"], changed["test_data"]) == (f"sha256:{test.sha256}", f"sha256:{train.sha256}")


def test_a_fix_begins_the_form_of_submit_anew(open_page, service):
    app = open_page("submit")
    box(app, "Model").select_index(0).run()
    box(app, "Training data").select_index(0).run()
    service.findings = (SCALE,)
    press(press(app, "Check"), "Use 1/255")
    assert next(one.value for one in app.text_input if one.label == "Scale") == "1/255"
    [document] = service.drafts.values()
    assert document["submodels"][0]["scale"] == 1 / 255


def test_a_technique_that_saves_nothing_is_removed_and_the_others_stay(open_page, service, drafted):
    place = "submodels.lenet.hyperparameters.techniques"
    others = [{"name": "checkpointing", "segments": 2}, "idle_offload"]
    for asked in ("compression", {"name": "compression", "bfloat16": True}):
        first, *rest = service.drafts[drafted]["submodels"]
        hyper = {**first["hyperparameters"], "techniques": [others[0], asked, others[1]]}
        service.drafts[drafted]["submodels"] = [{**first, "hyperparameters": hyper}, *rest]
        service.findings = (
            Finding(
                severity="warning",
                title="Useless",
                field=place,
                message="0 %.",
                remedy="Leave it out.",
                fix=Fix(label="Remove it", value="compression", verb="remove"),
            ),
        )
        press(press(open_page("build", draft=drafted), "Check"), "Remove it")
        changed, *kept = service.drafts[drafted]["submodels"]
        assert changed["hyperparameters"] == {**hyper, "techniques": others} and kept == rest


@pytest.mark.parametrize(
    ("change", "label", "wanted"),
    [
        ({"name": "LeNet"}, "Rename to LeNet-2", {"name": "LeNet-2"}),
        (
            {"hyperparameters": {"optimiser": "sgd"}},
            "Rename it to optimizer",
            {"hyperparameters": {"optimizer": "sgd"}},
        ),
        ({"scal": 2.0}, "Rename it to scale", {"scale": 2.0}),
    ],
)
def test_equal_names_and_misspelt_entries_are_mended(change, label, wanted):
    files = {"model": "m", "train_data": "d"}
    draft = {"submodels": [{"name": "lenet", **files}, {"name": "b", **files, **change}]}
    _, [finding] = drafts.spec_or_findings(draft)
    assert finding.fix.label == label
    fixed = drafts.fixed(draft, finding)
    assert fixed["submodels"] == [draft["submodels"][0], {"name": "b", **files, **wanted}]
    assert drafts.spec_or_findings(fixed)[0] is not None


def test_a_draft_with_a_misspelt_entry_can_be_mended_on_the_page(open_page, service, drafted):
    service.drafts[drafted]["submodels"] = [{"name": "a", "model": "m", "train_data": "d", "scal": 2}]
    app = open_page("build", draft=drafted)
    assert app.button(key="start").disabled
    press(app, "Rename it to scale")
    assert service.drafts[drafted]["submodels"][0]["scale"] == 2 and not app.button(key="start").disabled


def test_a_fix_whose_place_is_gone_changes_nothing():
    assert drafts.fixed({"submodels": []}, SCALE) == {"submodels": []}
    assert drafts.entry_at({"submodels": []}, SCALE.field) is None


def test_the_form_opens_what_holds_the_fault(open_page, service, drafted):
    def opened(app):
        return {one.label for one in app.expander if one.proto.expanded}

    folded = "Accumulation, clipping, warm-up, early stopping"
    assert folded not in opened(press(open_page("build", draft=drafted), "Edit lenet"))
    place = "submodels.lenet.hyperparameters.warm_up.steps"
    service.findings = (SCALE.model_copy(update={"field": place, "fix": None}),)
    draft_id = service.library.save_draft(service.library.draft(drafted) | {"editing": None})
    service.drafts[draft_id] = {k: v for k, v in service.drafts[draft_id].items() if k != "editing"}
    app = press(press(open_page("build", draft=draft_id), "Check"), "Edit lenet")
    assert folded in opened(app) and "They are bytes." in text_of(app)


def test_a_check_that_holds_is_shown_without_being_asked_for(open_page, service, drafted):
    app = press(open_page("build", draft=drafted), "Check")
    assert "valid" in text_of(app)
    for file in service.held:
        service.home.file(file.sha256).parent.mkdir(parents=True, exist_ok=True)
        service.home.file(file.sha256).touch()
    before = open_page("build", draft=drafted)
    assert "tries a few samples" in text_of(before), "it was not kept: its files were not there"
    press(before, "Check")
    again = open_page("build", draft=drafted)
    assert "valid" in text_of(again) and "1,437" in text_of(again)
    press(again, "Duplicate lenet")
    assert "valid" not in text_of(again)
