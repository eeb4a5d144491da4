"""The form of hyper-parameters offers what the tables have, and gives back what JSON says."""

from streamlit.testing.v1 import AppTest

from tests.ui.reading import box, press
from unifiednn_core.spec.choices import CRITERIA, LR_FORMULAS, LR_SCHEDULERS, LR_SCHEDULES, OPTIMIZERS, Argument
from unifiednn_core.spec.run import Hyperparameters, parse_hyperparameters
from unifiednn_core.spec.techniques import TECHNIQUES

FIELDS = Hyperparameters.model_fields

EXTRAS = [
    {"accumulation_steps": 3, "batch_split": 2, "drop_last": True, "warm_up": {"steps": 7}},
    {
        "gradient_clipping": {"norm": 0.5},
        "early_stopping": {"metric": "test_accuracy", "patience": 3, "min_delta": 0.1},
    },
    {"gradient_clipping": {"value": 0.25}, "early_stopping": {"metric": "train_loss", "patience": 2}},
    {
        "optimizer": "adamw",
        "parameter_groups": [
            {"names": ["head.*", "norm?"], "learning_rate": 0.3, "weight_decay": 0, "betas": [0.5, 0.75]},
            {"names": "stem.*", "frozen": True},
        ],
        "precision": "bfloat16",
        "class_weights": "balanced",
        "sampler": {"name": "balanced"},
        "ema": {"decay": 0.99},
        "seed": 7,
        "techniques": ["compression"],
    },
    {
        "sampler": {"name": "by_length", "pad": -1, "window": 9, "input": "ids"},
        "lr_scheduler": {
            "name": "sequence",
            "per": "step",
            "of": [
                {"name": "linear"},
                {"name": "warmup_constant", "args": {"num_warmup_steps": 2}},
                {"name": "cosine", "args": {"T_max": 9}},
            ],
            "milestones": [3, 8],
        },
    },
]


def value_of(argument: Argument) -> object:
    """A value that is not the default."""
    if argument.kind == "flag":
        return not argument.default
    if argument.kind == "word":
        return argument.options[-1]
    tried = [1, 2, 0.5, 1.5, 0.25, -0.5, 0]
    if argument.kind in ("numbers", "integers"):
        return next(list_ for one in tried if argument.accepts(list_ := [one] * (argument.length or 2)))
    return next(one for one in tried if argument.accepts(one) and one != argument.default)


def every_choice():
    """Hyper-parameters with each choice of each table, and all its arguments."""
    for table, entry in ((OPTIMIZERS, "optimizer"), (CRITERIA, "criterion")):
        for name, choice in table.items():
            yield {entry: name, f"{entry}_args": {a.name: value_of(a) for a in choice.arguments}}
    for name, choice in (LR_SCHEDULERS | LR_FORMULAS).items():
        args = {a.name: value_of(a) for a in choice.arguments}
        yield {"lr_scheduler": {"name": name, "args": args, "per": choice.per or "step"}}


def drawn(documents):
    """Draw one form for each document in one page, and return the page and what the forms hold."""

    def page(documents):
        import streamlit as st

        from pages._ui import hyper_form

        st.session_state["now"] = [
            hyper_form.hyperparameters(document, key=f"form{at}") for at, document in enumerate(documents)
        ]

    app = AppTest.from_function(page, args=(documents,), default_timeout=60).run()
    assert not app.exception, [error.value for error in app.exception]
    return app, app.session_state["now"]


def test_every_choice_with_all_its_arguments_comes_back_from_the_form_as_it_went_in():
    documents = [parse_hyperparameters(asked).model_dump(mode="json") for asked in (*every_choice(), *EXTRAS)]
    _, now = drawn(documents)
    assert [parse_hyperparameters(values).model_dump(mode="json") for values in now] == documents


def test_the_test_above_knows_every_entry_that_there_is():
    asked = [parse_hyperparameters(one) for one in (*every_choice(), *EXTRAS, {"epochs": 2, "batch_size": 3})]
    asked += [parse_hyperparameters({"learning_rate": 0.5})]
    said = {entry for one in asked for entry, field in FIELDS.items() if getattr(one, entry) != field.get_default()}
    assert said == FIELDS.keys()


def test_lr_schedulers_in_a_row_and_parameter_groups_are_said_by_widgets_alone():
    app, _ = drawn([{"optimizer": "adamw"}])
    box(app, "LR scheduler").set_value("sequence").run()
    press(app, "Add a group")
    fields = {box.label: box for box in app.text_input}
    fields["Names of parameters"].set_value("*.bias, *norm*")
    weight_decay = [box for box in app.text_input if box.label == "weight_decay"][-1]
    weight_decay.set_value("0")
    fields["T_max (needed)"].set_value("20").run()
    [now] = app.session_state["now"]
    of = [{"name": "linear", "args": {}}, {"name": "cosine", "args": {"T_max": 20}}]
    assert now["lr_scheduler"] == {"name": "sequence", "of": of, "milestones": [5], "per": "epoch"}
    assert now["parameter_groups"] == [{"names": ["*.bias", "*norm*"], "weight_decay": 0}]
    parse_hyperparameters(now)
    press(app, "Add an LR scheduler")
    assert [len(app.session_state["now"][0]["lr_scheduler"][entry]) for entry in ("of", "milestones")] == [3, 2]


def test_the_form_offers_exactly_what_the_tables_have_and_fields_for_what_is_chosen():
    asked = {"optimizer": "rprop", "criterion": "kl_div", "lr_scheduler": {"name": "one_cycle", "args": {"max_lr": 1}}}
    app, _ = drawn([asked])
    offered = {box.label: [option.split(" (")[0] for option in box.options] for box in app.selectbox}
    assert offered["Optimizer"] == list(OPTIMIZERS)
    assert offered["Criterion"] == list(CRITERIA)
    assert offered["LR scheduler"] == ["none", *LR_SCHEDULES]
    fields = {box.label.removesuffix(" (needed)") for box in (*app.selectbox, *app.text_input)}
    for choice in (OPTIMIZERS["rprop"], CRITERIA["kl_div"], LR_SCHEDULERS["one_cycle"]):
        assert {argument.name for argument in choice.arguments} <= fields
    placeholders = {box.label: box.placeholder for box in app.text_input}
    assert (placeholders["etas"], placeholders["total_steps (needed)"]) == ("default [0.5, 1.2]", "")


def lossy_boxes(app):
    """How many techniques say that they are lossy."""
    return sum("lossy: other weights" in one.proto.body for one in app.get("html"))


def test_each_technique_is_a_box_with_its_parameters_and_says_whether_it_is_exact():
    app, [now] = drawn([{}])
    assert "techniques" not in now
    boxes = {box.label: box for box in app.checkbox}
    assert {one.title for one in TECHNIQUES} <= boxes.keys()
    boxes["Activation compression"].check().run()
    assert app.session_state["now"][0]["techniques"] == [{"name": "compression"}]
    lossy = lossy_boxes(app)
    {box.label: box for box in app.checkbox}["bfloat16"].check().run()
    assert app.session_state["now"][0]["techniques"] == [{"name": "compression", "bfloat16": True}]
    assert lossy_boxes(app) == lossy + 1


def test_a_form_left_alone_asks_for_nothing_but_the_defaults():
    _, [now] = drawn([{}])
    assert parse_hyperparameters(now) == parse_hyperparameters({})
