"""The form of a sub-model gives back all that a spec can say, and says by its widgets what JSON says."""

from dataclasses import replace

import pytest
from streamlit.testing.v1 import AppTest

from tests.ui.fake_views import sha
from tests.ui.reading import box, labels, press, text_of
from tests.ui.test_hyper_form import EXTRAS, value_of
from unifiednn_core.spec.run import SubModelSpec, parse_run
from unifiednn_core.spec.transforms import TRANSFORMS

PAIR = {"model": "sha256:" + sha("pair"), "train_data": "sha256:" + sha("pairs")}
PLAIN = {"model": "sha256:" + sha("lenet"), "train_data": "sha256:" + sha("digits_train")}
FITTING = {
    "normalize": {"mean": [0.5], "std": [0.25]},
    "random_erasing": {"p": 0.25, "scale": [0.1, 0.2], "ratio": [0.5, 2.0], "value": 1.0},
    "token_masking": {"mask": 3, "masked": 0.5, "random": 0.25, "vocabulary": 9, "special": [1, 2]},
}
"""Arguments that must fit together."""
CIFAR = [
    {"name": "random_crop", "padding": 4},
    {"name": "horizontal_flip"},
    {"name": "normalize", "mean": [0.4914, 0.4822, 0.4465], "std": [0.247, 0.2435, 0.2616]},
]


def every_transform():
    """Each transform with all its arguments, mixup as the last."""
    names = [*(name for name in TRANSFORMS if name != "mixup"), "mixup"]
    return [
        {"name": name, **FITTING.get(name, {one.name: value_of(one) for one in TRANSFORMS[name].arguments})}
        for name in names
    ]


SUBMODELS = [
    {**PLAIN, "transforms": every_transform(), "scale": 1 / 255, "mean": 0.5, "std": 0.25, "priority": 3},
    {**PLAIN, "transforms": [{"name": "resize", "size": [8, 8], "input": "left"}], "loading": "streamed"},
    {**PAIR, "inputs": {"one": "left", "two": "targets"}, "output": "aux", "auxiliary": {"logits": 0.3, "2": 1}},
    {"model": "a.pt2", "train_data": "b.npz", "inputs": {"x": "y"}, "output": "z", "auxiliary": {"w": 2}},
    {**PLAIN, "placement": {"devices": 2, "claim": True, "cap_mib": [1.5, 200.0], "plan": [[0, 3], [1, 4]]}},
    {**PLAIN, "targets": "inputs", "loading": "resident", "hyperparameters": {"criterion": "mse"}},
    {**PLAIN, "targets": "next", "classes": "last", "deadline_s": 600.0, "test_data": PAIR["train_data"]},
    {**PLAIN, "owner": "sub:1", "sweep_of": "lenet", "hyperparameters": EXTRAS[0]},
    {
        **PLAIN,
        "name": "a-1",
        "split": {"at": ["2"]},
        "part": 1,
        "part_of": "a",
        "hyperparameters": {"criterion": "mse"},
    },
    {
        **PLAIN,
        "model": "sha256:" + sha("resnet"),
        "architecture": {"name": "resnet", "args": {"width": 16}, "names": "by_shape", "entry": "ema"},
        "start_from": {"file": "sha256:" + sha("resnet"), "take": "weights", "names": "by_shape", "entry": "net"},
    },
    {**PLAIN, "model": "own.pt", "architecture": {"name": "resnet", "args": {"width": 8}, "entry": "net"}},
]


@pytest.fixture
def pair(service):
    """A network with two inputs and two outputs, and data with two inputs, beside what the library holds."""
    model = next(file for file in service.held if file.kind == "model")
    data = next(file for file in service.held if file.kind == "data")
    network = {"inputs": {"one": "float32 [4]", "two": "float32 [4]"}, "outputs": ["logits", "aux"]}
    service.held.extend(
        [
            replace(model, sha256=sha("pair"), filename="pair.pt2", facts=model.facts | network),
            replace(
                data,
                sha256=sha("pairs"),
                filename="pairs.npz",
                facts=data.facts | {"inputs": {"left": "float32 [4]", "right": "float32 [4]"}},
            ),
        ]
    )
    return service


def drawn(submodels):
    """Draw one form for each sub-model in one page; return the page and what the forms hold."""

    def page(submodels):
        import streamlit as st

        from pages._ui import submodel_form

        st.session_state["now"] = [
            submodel_form.submodel_form(submodel, (), key=f"sub{at}") for at, submodel in enumerate(submodels)
        ]

    app = AppTest.from_function(page, args=(submodels,), default_timeout=60).run()
    assert not app.exception, [error.value for error in app.exception]
    return app, app.session_state["now"]


def choose(app, label, start):
    """Choose the first option that begins so."""
    one = box(app, label)
    one.select_index(next(at for at, text in enumerate(one.options) if text.startswith(start))).run()
    assert not app.exception, [error.value for error in app.exception]


def parsed(submodels):
    named = [{**submodel, "name": f"sub{at}"} for at, submodel in enumerate(submodels)]
    return list(parse_run({"submodels": named}).submodels)


def test_every_entry_of_a_sub_model_comes_back_from_the_form_as_it_went_in(pair):
    asked = parsed(SUBMODELS)
    _, now = drawn([one.model_dump(mode="json", exclude_none=True) for one in asked])
    assert parsed(now) == asked


def test_the_test_above_knows_every_entry_that_a_sub_model_can_have():
    asked = parsed(SUBMODELS)
    fields = SubModelSpec.model_fields
    said = {entry for one in asked for entry in fields if getattr(one, entry) != fields[entry].get_default()}
    assert said == {*fields}


def test_a_placement_loses_its_plan_when_it_changes(service):
    asked = {"devices": 2, "cap_mib": 300.0, "plan": [[0, 5], [1, 9]]}
    app, [now] = drawn([{**PLAIN, "name": "net", "placement": asked}])
    assert now["placement"] == asked
    limit = next(one for one in app.text_input if one.label.startswith("Limit of each"))
    for typed, said in (("200", 200.0), ("200, 100", [200.0, 100.0]), ("much", "much")):
        limit.set_value(typed).run()
        [now] = app.session_state["now"]
        assert now["placement"] == {"devices": 2, "cap_mib": said}
    next(one for one in app.number_input if one.label == "Devices").set_value(1).run()
    [now] = app.session_state["now"]
    assert "placement" not in now


def test_a_split_comes_back_and_is_changed_in_the_form(service):
    asked = {"at": ["2", "4"], "labels": "outputs", "recovery_epochs": 3, "seed": 4}
    app, [now] = drawn([{**PLAIN, "name": "net", "split": asked}])
    assert now["split"] == asked
    layers = next(one for one in app.text_input if one.label.startswith("Cut behind"))
    layers.set_value("2 , conv1").run()
    [now] = app.session_state["now"]
    assert now["split"] == asked | {"at": ["2", "conv1"]}
    assert any("4 sub-models: net-1, net-2, net-3, net" in one.proto.body for one in app.get("html"))
    next(one for one in app.text_input if one.label.startswith("Cut behind")).set_value("").run()
    [now] = app.session_state["now"]
    assert "split" not in now


def test_one_input_and_one_output_need_no_choice(pair):
    app, _ = drawn([PLAIN])
    assert not any(
        one.label.startswith(("Input ", "Output ", "Weight of")) for one in (*app.selectbox, *app.text_input)
    )
    app, _ = drawn([PAIR])
    assert box(app, "Input one").options == ["left", "right", "targets"]
    assert box(app, "Output for the criterion").options == ["logits", "aux"]
    assert [one.label for one in app.text_input if one.label.startswith("Weight of")] == ["Weight of aux"]


def test_transforms_are_added_moved_and_removed_with_their_arguments(service):
    app, _ = drawn([PLAIN])
    for name in ("random_crop", "horizontal_flip", "resize"):
        choose(app, "Add a transform", name)
    next(one for one in app.text_input if one.label == "padding").set_value("4").run()
    next(one for one in app.text_input if one.label == "size (needed)").set_value("8, 8").run()
    press(app, "Move up 3. resize")
    press(app, "Remove 3. horizontal_flip")
    resized = {"name": "resize", "size": [8, 8]}
    [now] = app.session_state["now"]
    assert now["transforms"] == [{"name": "random_crop", "padding": 4}, resized]
    press(app, "Move down 1. random_crop")
    [now] = app.session_state["now"]
    assert now["transforms"] == [resized, {"name": "random_crop", "padding": 4}]
    press(press(app, "Remove 1. resize"), "Remove 1. random_crop")
    assert "transforms" not in app.session_state["now"][0]


def test_a_wrong_argument_of_a_transform_is_said_at_the_list(open_page, service):
    app = open_page("submit")
    box(app, "Model").select_index(0).run()
    box(app, "Training data").select_index(0).run()
    choose(app, "Add a transform", "normalize")
    assert app.button(key="start").disabled and "needs the argument 'mean'" in text_of(app)


def test_the_cifar_recipe_is_said_by_widgets_alone_and_is_the_spec_of_the_json(open_page, service):
    """ResNet18 on bytes: crop, flip, a mean and deviation of each channel, momentum and a cosine."""
    app = open_page("submit")
    choose(app, "Model", "resnet.safetensors")
    choose(app, "Training data", "digits_train.pt")
    choose(app, "Architecture of these weights", "resnet18")
    press(app, "CIFAR: crop, flip, normalise")
    next(one for one in app.number_input if one.label == "Epochs").set_value(30)
    next(one for one in app.number_input if one.label == "Batch size").set_value(128)
    next(one for one in app.text_input if one.label == "Learning rate").set_value("0.1")
    box(app, "LR scheduler").set_value("cosine").run()
    next(one for one in app.text_input if one.label == "momentum").set_value("0.9")
    next(one for one in app.text_input if one.label == "weight_decay").set_value("5e-4")
    next(one for one in app.text_input if one.label == "T_max (needed)").set_value("30").run()
    assert "Submit" in labels(app) and not app.button(key="start").disabled, text_of(app)
    app.button(key="start").click().run()
    assert not app.exception, [error.value for error in app.exception]
    [made] = service.submitted
    [submodel] = made.submodels
    hyper = {
        "epochs": 30,
        "batch_size": 128,
        "learning_rate": 0.1,
        "lr_scheduler": {"name": "cosine", "args": {"T_max": 30}},
        "optimizer": "sgd",
        "optimizer_args": {"momentum": 0.9, "weight_decay": 5e-4},
    }
    files = {"model": submodel.model, "architecture": {"name": "resnet18"}, "train_data": submodel.train_data}
    as_json = {"name": submodel.name, **files, "scale": 1 / 255, "transforms": CIFAR, "hyperparameters": hyper}
    as_json["loading"] = submodel.loading  # which the submission decides
    [wanted] = parse_run({"submodels": [as_json]}).submodels
    assert submodel == wanted
