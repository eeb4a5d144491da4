from dataclasses import replace

import pytest

from tests.ui.fake_views import library, sha
from tests.ui.reading import html_of, text_of
from unifiednn_core.base.errors import BadInput, Finding
from unifiednn_core.data.values import DataNotes, DataPreview, DataSample, ImportOptions, ValueStats
from unifiednn_core.spec.columns import CategoryColumn, ColumnPlan, IgnoredColumn, NumberColumn, TextColumn

STATS = ValueStats(minimum=0, maximum=16, mean=4.5, std=6)
PIXEL = "data:image/png;base64,AAAA"


def data_set(name, **changes):
    seen = DataPreview(inputs=STATS, **changes)
    facts = {"samples": 1437, "input_shape": [1, 8, 8], "input_dtype": "uint8", "target_dtype": "int64", "classes": 3}
    file = next(file for file in library() if file.kind == "data")
    return replace(file, filename=name, sha256=sha(name), facts=facts | {"preview": seen.model_dump(mode="json")})


@pytest.fixture
def shown(open_page, service):
    def shown(*files):
        service.held[:] = files
        return open_page("library")

    return shown


def test_the_preview_shows_figures_balance_and_samples(shown):
    samples = (
        DataSample(values="0, 1", target="cat", image=PIXEL),
        DataSample(values="2, 3", target="dog", image=PIXEL),
    )
    notes = DataNotes(class_names=("cat", "dog", "fox"))
    app = shown(data_set("own.zip", class_counts=(5, 10, 0), samples=samples, notes=notes))
    words = text_of(app)
    for sentence in ("1,437", "no NaN, none infinite", "0 to 16", "mean 4.5, std 6", "2 classes", "0 to 10 each"):
        assert sentence in words
    html = html_of(app)
    assert html.count(f'<img src="{PIXEL}"') == 2
    assert 'title="cat: 5 targets"' in html and "max(50.00%, 1px)" in html and 'title="fox: 0 targets"' in html


def test_tables_show_numbers_and_their_columns(shown):
    notes = DataNotes(origin="csv", columns=("a", "b"), target="price")
    samples = (DataSample(values="0.5, 1", target="2.5"),)
    words = text_of(shown(data_set("own.csv", targets=STATS, samples=samples, notes=notes)))
    assert "0.5, 1 2.5" in words and "Target: column price. Inputs, in order: a, b." in words
    assert "Class balance" not in words


def test_what_became_of_each_column_is_said(shown):
    age = NumberColumn(kind="number", name="age", missing="mean", fill=40.5)
    job = CategoryColumn(kind="category", name="job", one_hot=True, values=("clerk", "cook"))
    text = TextColumn(kind="text", name="note", input="note", length=16, longest=20, pad=0)
    plan = ColumnPlan(columns=(age, job, IgnoredColumn(kind="ignore", name="id")))
    remarks = ("Missing values of column 'age' become the mean, 40.5.",)
    words = text_of(shown(data_set("own.csv", targets=STATS, notes=DataNotes(plan=plan, remarks=remarks))))
    assert "age number; a missing one is the mean 40.5" in words and remarks[0] in words
    assert "job one column for each of: clerk, cook" in words and "id left out" in words
    words = text_of(shown(data_set("own.csv", targets=STATS, notes=DataNotes(plan=ColumnPlan(columns=(text,))))))
    assert "note tokens by words, 16 each, short ones filled up with 0, longer ones cut" in words


def test_warnings_stand_beside_the_figures(shown):
    warning = Finding(severity="warning", title="One class alone", field="targets", message="All one.", remedy="Add.")
    assert "One class alone (targets) All one. Add." in text_of(shown(data_set("own.pt", warnings=(warning,))))


def test_what_the_import_changed_is_said(shown):
    notes = DataNotes(origin="images", part="val", remarks=("Images were resized.", "There is no 'cat' here."))
    words = text_of(shown(data_set("own.zip", notes=notes)))
    assert "Images were resized. There is no 'cat' here. val" in words


def test_images_are_resized_as_the_fields_beside_the_upload_say(open_page, service, upload):
    app = open_page("library")
    app.number_input(key="library-data-set-size").set_value(64).run()
    app.checkbox(key="library-data-set-channels").check().run()
    upload(app, "data-set", "photos.zip", b"x")
    assert service.import_options == ImportOptions(size=64, channels_last=True)


def test_very_many_classes_share_bars(shown):
    html = html_of(shown(data_set("many.pt", class_counts=(1,) * 1000)))
    assert html.count('role="listitem"') == 112 and "a bar is 9 classes" in html


def test_a_data_set_without_preview_says_so(open_page):
    assert "imported before previews existed" in text_of(open_page("library"))


def test_a_split_is_asked_of_the_service_and_a_refusal_shown(shown, service):
    asked = []

    def split_data(sha256, **plan):
        asked.append((sha256, plan))
        if plan["seed"]:
            raise BadInput.of("Nothing to split", field="own.pt", message="Too few.", remedy="Give more.")
        parts = data_set("own-train.safetensors"), data_set("own-test.safetensors")
        service.held.extend(parts)
        return parts

    service.library.split_data = split_data
    app = shown(data_set("own.pt"))
    key = sha("own.pt")
    app.slider[0].set_value(25)
    app.button(key=f"FormSubmitter:split-{key[:12]}-Split").click().run()
    assert not app.exception
    assert asked == [(key, {"test_share": 0.25, "seed": 0, "by_class": True})]
    assert "own-test.safetensors" in text_of(app)
    next(field for field in app.number_input if field.label == "Seed").set_value(3)
    app.button(key=f"FormSubmitter:split-{key[:12]}-Split").click().run()
    assert "Too few." in text_of(app)
