"""Import options of data are said by fields, and findings name those fields."""

import re

from pages._ui import import_form, plan_form
from tests.ui.reading import box, labels, press, text_of
from tests.ui.test_library_data import STATS, data_set
from unifiednn_core.base.errors import Finding
from unifiednn_core.data.values import DataNotes, ImportOptions
from unifiednn_core.spec.columns import (
    CategoryColumn,
    ColumnPlan,
    IgnoredColumn,
    ListColumn,
    NumberColumn,
    TableImportOptions,
    TextColumn,
    parse_plan,
)

OPTIONS = (
    "--target NAME, --no-target, --no-header, --ignore 'age', --length NUMBER, --channels-last, --size, --tokenizer"
)
PLAN = ColumnPlan(
    columns=(
        NumberColumn(kind="number", name="age", input="real", missing="mean", fill=40.5),
        CategoryColumn(kind="category", name="job", input="job", one_hot=True, values=("clerk", "cook")),
        TextColumn(kind="text", name="note", input="note", length=16, longest=20, pad=0, words=("a",), mask=True),
        ListColumn(kind="list", name="list", input="list", length=4, whole=True),
        IgnoredColumn(kind="ignore", name="id"),
        CategoryColumn(kind="category", name="label", input="label", values=("no", "yes")),
    ),
    target="label",
)


def field(app, label):
    fields = (*app.text_input, *app.number_input, *app.checkbox, *app.selectbox)
    return next(one for one in fields if one.label == label)


def test_a_finding_names_fields_in_place_of_options(open_page):
    told = f"Say {OPTIONS} words or --tokenizer tokenizer.json."
    [now] = import_form.in_words([Finding(title="T", field="f", message=told, remedy="")])
    app = open_page("library")
    fields = {one.label for one in (*app.text_input, *app.number_input, *app.checkbox, *app.selectbox)}
    assert "--" not in now.message and len(fields & {*re.findall(r"'([^']*)'", now.message)}) == 8


def test_a_table_is_read_as_the_fields_say(open_page, service, upload):
    app = open_page("library")
    field(app, "Column of the targets").set_value("price")
    field(app, "Columns of texts").set_value("note, more text")
    field(app, "Columns to leave out").set_value("id")
    field(app, "Tokenizer").set_value("words")
    field(app, "Length of a sample").set_value(16)
    field(app, "Mask of the padding").check()
    field(app, "First line").select_index(2).run()
    upload(app, "data-set", "table.csv", b"x")
    wish = TableImportOptions(
        target="price",
        text_columns=("note", "more text"),
        ignore=("id",),
        tokenizer="words",
        length=16,
        mask=True,
        header=False,
    )
    assert service.import_options == ImportOptions(table=wish)


def test_refused_data_are_read_again_with_other_options_and_a_refused_model_is_gone(open_page, service, upload):
    app = open_page("library")
    upload(app, "data-set", "photos.zip", b"broken")
    assert "This is no model." in text_of(app)
    field(app, "Size of images").set_value(32).run()
    press(app, "Read it again with the options below")
    assert service.import_options == ImportOptions(size=32) and "This is no model." in text_of(app)
    press(app, "Discard it")
    assert list(service.home.quarantine.iterdir()) == [] and "This is no model." not in text_of(app)
    upload(app, "data-set", "photos.zip", b"broken")
    upload(app, "data-set", "photos.zip", b"x")
    assert "Read it again with the options below" not in labels(app) and "photos.zip" in text_of(app)
    assert not [file for file in service.home.quarantine.iterdir() if file.suffix == ".json"], (
        "a refused upload is left"
    )
    upload(app, "library-model", "net.pt2", b"broken")
    assert "Read it again with the options below" not in labels(app)


def test_a_plan_comes_back_from_its_table_without_what_was_fitted_and_with_what_was_changed():
    again = parse_plan(plan_form.edited_plan(PLAN, plan_form.rows(PLAN), "label"))
    unfitted = [
        column.model_copy(update={entry: None for entry in plan_form.FITTED if hasattr(column, entry)})
        if column.kind != "list"
        else column
        for column in PLAN.columns
    ]
    assert [column for column in again.columns if column.kind != "list"] == [
        column for column in unfitted if column.kind != "list"
    ]
    rows = plan_form.rows(PLAN)
    rows[0] |= {plan_form.BECOMES: "category", plan_form.MISSES: "own"}
    rows[4] |= {plan_form.BECOMES: "number", plan_form.INPUT: "real", plan_form.MISSES: "zero"}
    changed = parse_plan(plan_form.edited_plan(PLAN, rows, "label"))
    assert changed.columns[0] == CategoryColumn(kind="category", name="age", input="real", missing="own")
    assert changed.columns[4] == NumberColumn(kind="number", name="id", input="real", missing="zero")


def test_a_plan_of_the_library_is_changed_for_the_next_file(open_page, service, upload):
    service.held.extend([data_set("people.csv", targets=STATS, notes=DataNotes(plan=PLAN))])
    app = open_page("library")
    box(app, "Change the plan of").select_index(0).run()
    box(app, "Its targets").set_value("job").run()
    upload(app, "data-set", "people.csv", b"x")
    asked = service.import_options.table.plan
    assert asked is not None and asked.target == "job" and [one.name for one in asked.columns][-1] == "label"


def test_several_inputs_and_no_targets_are_said_in_the_preview(open_page, service):
    several = data_set("pair.npz", notes=DataNotes())
    several.facts.update(inputs={"left": "uint8 [3, 8, 8]", "right": "float32 [4]"}, classes=None, target_shape=None)
    service.held = [several]
    words = text_of(open_page("library"))
    assert "2 of each sample left: uint8 [3, 8, 8]; right: float32 [4]" in words
    assert "Targets none" in words
