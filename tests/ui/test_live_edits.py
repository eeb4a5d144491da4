"""Changing a run that lives: order, priorities, epochs, policy, one more sub-model."""

from dataclasses import replace

import pytest

from tests.ui.fake_arms import prediction
from tests.ui.fake_views import ended, mid_flight, run, submodel
from tests.ui.reading import button, labels, option, press, text_of
from unifiednn_core.base.errors import Finding
from unifiednn_core.spec.lifecycle import State
from unifiednn_core.spec.run import parse_run


def adjusting(open_page):
    return press(open_page("run", run="r-live"), "Adjust")


def box(app, label):
    return next(box for box in app.number_input if box.label == label)


def test_only_what_still_trains_can_be_adjusted(open_page):
    app = adjusting(open_page)
    boxes = {box.label for box in app.number_input}
    assert {"Priority of resnet", "Priority of transformer", "Epochs of transformer"} <= boxes
    assert "Priority of lenet" not in boxes, "it is completed"


@pytest.mark.parametrize("state", [State.COMPLETED, State.STOPPED, State.FAILED, State.STOPPING])
def test_a_run_that_ends_or_has_ended_is_not_adjusted(state, open_page, service):
    service.listed[:] = [run("r-any", state, (submodel(0, "lenet", 2, state),))]
    assert not {"Adjust", "Add a sub-model"} & labels(open_page("run", run="r-any"))


@pytest.mark.parametrize(
    ("verb", "label", "value"), [("epochs", "Epochs of resnet", 30), ("deadline", "Deadline of resnet", 900.0)]
)
def test_what_was_changed_is_applied_by_its_own_button(verb, label, value, open_page, service):
    app = adjusting(open_page)
    for what in ("order", "priorities", "deadlines", "epochs", "policy"):
        assert button(app, f"Apply {what}").disabled, "before something was changed"
    box(app, label).set_value(value).run()
    press(app, f"Apply {verb.removesuffix('s')}s")
    assert service.done == [(verb, "r-live", "resnet", value)]


def test_priorities_are_applied_by_their_own_button_and_shown_as_waiting(open_page, service):
    app = adjusting(open_page)
    box(app, "Priority of transformer").set_value(-3).run()
    box(app, "Epochs of resnet").set_value(30).run()
    press(app, "Apply priorities")
    assert service.done == [("priority", "r-live", "transformer", -3)]
    assert "priority -3 for transformer: requested 0 s ago, takes effect at the next step" in text_of(app)
    assert box(app, "Epochs of resnet").value == 30, "what was typed beside it is kept"


def with_nodes(*names, nodes=4, devices=2):
    """The spec of the run in mid-flight, with virtual nodes for some of its sub-models."""
    node = {"name": "virtual_nodes", "nodes": nodes, "devices": devices}
    parts = mid_flight().spec["submodels"]
    return {
        **mid_flight().spec,
        "submodels": [
            {**one, "hyperparameters": {**one["hyperparameters"], "techniques": [node]}}
            if one["name"] in names
            else one
            for one in parts
        ],
    }


def test_logical_devices_are_applied_by_their_own_button(open_page, service):
    service.listed[0] = replace(service.listed[0], spec=with_nodes("lenet", "resnet"))
    app = adjusting(open_page)
    assert "4 virtual nodes" in text_of(app)
    assert [box.label for box in app.number_input if "devices" in box.label] == ["Logical devices of resnet"]
    assert button(app, "Apply devices").disabled and box(app, "Logical devices of resnet").value == 2
    box(app, "Logical devices of resnet").set_value(4).run()
    press(app, "Apply devices")
    assert not app.exception
    assert service.done == [("devices", "r-live", "resnet", 4)]
    assert "devices 4 for resnet: requested 0 s ago, takes effect at the next step" in text_of(app)


def test_without_virtual_nodes_there_are_no_logical_devices(open_page):
    assert "Apply devices" not in labels(adjusting(open_page))


def test_the_order_moves_by_its_arrows_and_ended_ones_keep_their_place(open_page, service):
    app = adjusting(open_page)
    assert button(app, "Move up resnet").disabled and button(app, "Move down transformer").disabled
    press(app, "Move up transformer")
    assert service.done == []
    press(app, "Apply order")
    assert service.done == [("order", "r-live", None, ["lenet", "transformer", "resnet"])]


def test_a_sub_model_moves_to_the_top_and_to_a_typed_place(open_page, service):
    names = ("lenet", "resnet", "transformer", "mlp")
    parts = tuple(submodel(at, name, 2, State.RUNNING) for at, name in enumerate(names))
    service.listed[0] = run("r-live", State.RUNNING, parts)
    app = adjusting(open_page)
    press(app, "Move mlp to the top")
    box(app, "Place of lenet").set_value(4).run()
    assert not app.exception and [box(app, f"Place of {name}").value for name in names] == [4, 2, 3, 1]
    press(app, "Apply order")
    assert service.done == [("order", "r-live", None, ["mlp", "resnet", "transformer", "lenet"])]


def test_the_policy_is_applied_with_its_parameters(open_page, service):
    app = adjusting(open_page)
    control = next(control for control in app.segmented_control if control.label.startswith("Policy"))
    control.set_value("sjf").run()
    next(box for box in app.selectbox if box.label == "By").set_value("epochs").run()
    press(app, "Apply policy")
    assert service.done == [("policy", "r-live", None, {"name": "sjf", "by": "epochs"})]


def test_a_parameter_that_the_policy_refuses_is_told_in_the_dialog(open_page, service):
    app = adjusting(open_page)
    next(box for box in app.text_input if box.label == "Amount").set_value("-1").run()
    press(app, "Apply policy")
    assert not app.exception and service.done == []
    assert "policy.amount" in text_of(app)


def test_a_run_that_ended_meanwhile_leaves_nothing_to_adjust(open_page, service):
    app = adjusting(open_page)
    service.listed[:] = [replace(ended(), run_id="r-live")]
    app.run()
    assert not app.exception
    assert "nothing is left to adjust" in text_of(app)


def adding(open_page, model="lenet.pt2"):
    app = press(open_page("run", run="r-live"), "Add a sub-model")
    if model:
        for label, start in (("Model", model), ("Training data", "digits_train.pt")):
            next(box for box in app.selectbox if box.label == label).select(option(app, label, start)).run()
    return app


def test_a_sub_model_is_added_to_a_run_that_lives(open_page, service):
    app = adding(open_page)
    service.predicted = prediction()
    press(app, "Add to the run")
    assert not app.exception
    predicted = service.store.runs.get("r-live")[0].prediction
    assert predicted["peak_bytes"] == prediction().peak_bytes, "it is renewed with the newcomer"
    [(what, run_id, _, spec)] = service.done
    assert (what, run_id) == ("add", "r-live")
    assert spec.name == "lenet-2", "the name lenet is taken"
    assert parse_run({"submodels": [spec.model_dump(mode="json", exclude_none=True)]}).submodels == (spec,)
    assert "Add to the run" not in labels(app)


def test_what_is_missing_is_said_at_its_field_and_nothing_is_asked_for(open_page, service):
    app = adding(open_page, model="")
    press(app, "Add to the run")
    words = text_of(app)
    assert service.done == []
    assert "This entry is empty." in words and words.index("(submodels.3.model)") < words.index("Inputs become")


def test_a_finding_of_the_service_is_said_at_its_field_and_the_form_stays_filled(open_page, service):
    service.findings = (
        Finding(title="Shape", field="submodels.lenet-2.train_data", message="Other shape.", remedy="Choose another."),
        Finding(title="Disk", field="home", message="The disk is full.", remedy="Free some."),
    )
    app = adding(open_page)
    press(app, "Add to the run")
    words = text_of(app)
    assert words.index("Other shape.") < words.index("Inputs become") < words.index("The disk is full.")
    assert next(box.value for box in app.text_input if box.label == "Name") == "lenet-2"
    service.findings = ()
    press(app, "Add to the run")
    assert [asked[0] for asked in service.done] == ["add"]


def test_warnings_are_said_first_and_pass_where_it_is_added_all_the_same(open_page, service):
    service.findings = (
        Finding(
            severity="warning",
            title="No test",
            field="submodels.lenet-2.test_data",
            message="None.",
            remedy="Add some.",
        ),
    )
    app = adding(open_page)
    press(app, "Add to the run")
    assert service.done == [] and "Add some." in text_of(app)
    press(app, "Add anyway")
    assert not app.exception
    assert [asked[0] for asked in service.done] == ["add"]


def test_a_dialog_is_closed_by_cancel(open_page, service):
    app = adding(open_page, model="")
    press(app, "Cancel")
    assert "Add to the run" not in labels(app)
    assert service.done == [] and service.listed[0].submodels == mid_flight().submodels
