"""What becomes of files that are dropped on a draft."""

from dataclasses import replace

import pytest

from pages._ui import drafts, dropped
from unifiednn_core.data.values import DataPreview, ValueStats
from unifiednn_core.spec.run import document_kind, document_of
from unifiednn_core.views.runs import FileView

NAMES = ("lenet", "resnet", "resnet18")


def file(filename, kind="data", shape=(1, 8, 8), at_s=0.0):
    return FileView(
        sha256=f"{filename}-{at_s:g}",
        kind=kind,
        filename=filename,
        format="-",
        size_bytes=1,
        created_at_s=at_s,
        facts={"input_shape": list(shape)},
    )


def model(filename, shape=(1, 8, 8)):
    return file(filename, "model", shape)


def pairs(draft):
    return [
        (one["name"], *(str(one.get(entry)).removeprefix("sha256:") for entry in ("train_data", "test_data")))
        for one in drafts.submodels(draft)
    ]


def trains(files, library=None):
    return [train for _, train, _ in pairs(dropped.with_files({}, files, library or files, NAMES))]


def test_each_model_becomes_a_sub_model_on_the_data_named_like_it():
    files = [
        model("cats.pt2"),
        model("dogs.pt2"),
        *(file(f"{one}_{part}.npz") for one in ("dogs", "cats") for part in ("test", "train")),
    ]
    draft = dropped.with_files(drafts.new(), files, files, NAMES)
    assert pairs(draft) == [
        ("cats", "cats_train.npz-0", "cats_test.npz-0"),
        ("dogs", "dogs_train.npz-0", "dogs_test.npz-0"),
    ]


def test_without_a_common_name_data_go_by_shape_then_by_order():
    small, large = file("small.npz", shape=(4,)), file("large.npz", shape=(9,))
    files = [model("a.pt2", (9,)), model("b.pt2", (4,)), small, large]
    assert trains(files) == ["large.npz-0", "small.npz-0"]
    files = [model("a.pt2"), model("b.pt2"), file("one.npz"), file("two.npz")]
    assert trains(files) == ["one.npz-0", "two.npz-0"]
    files = [model("a.pt2"), model("b.pt2"), file("one.npz")]
    assert trains(files) == ["one.npz-0"] * 2


def test_models_alone_take_fitting_data_of_the_library_and_data_alone_go_to_those_without():
    first = dropped.with_files({}, [model("a.pt2")], [], NAMES)
    assert pairs(first) == [("a", "None", "None")]
    held = [model("a.pt2"), file("own_train.npz"), file("own_test.npz")]
    second = dropped.with_files(first, held[1:], held, NAMES)
    assert pairs(second) == [("a", "own_train.npz-0", "own_test.npz-0")]
    third = dropped.with_files(second, [model("a.pt2")], held, NAMES)
    assert pairs(third)[1] == ("a-2", "own_train.npz-0", "own_test.npz-0")
    assert dropped.with_files(third, [file("more.npz")], held, NAMES) == third, "nobody lacks data"
    pictures = replace(file("p.npz"), facts={"input_shape": [1, 8, 8], "input_dtype": "uint8"})
    said = {
        "submodels": [{"name": "a", "model": "sha256:a.pt2-0", "scale": 0.5, "test_data": "t"}, *first["submodels"]]
    }
    mine, other = dropped.with_files(said, [pictures], [model("a.pt2")], NAMES)["submodels"]
    assert (mine["scale"], mine["test_data"], other["scale"]) == (0.5, "t", 1 / 255), "what was said stays"
    doubtful = [file("one.npz"), file("two.npz"), file("tokens.npz", shape=(9,))]
    for new in (model("b.pt2"), model("b.pt2", (7,)), file("b.pth", "weights", ())):
        assert trains([new], doubtful) == ["None"], "two fit, none, nobody knows"
    parts = [file("one-train80-seed0.safetensors"), file("one-test20-seed0.safetensors")]
    assert trains([model("b.pt2")], [doubtful[0], *parts]) == ["one.npz-0"], "the whole, not its parts"
    assert trains([model("two.pt2")], doubtful) == ["two.npz-0"], "named like it"


@pytest.mark.parametrize(
    ("takes", "data", "scale"),
    [
        (None, {"input_shape": [3, 8, 8], "input_dtype": "uint8"}, 1 / 255),
        ("float32", {"input_shape": [784], "input_dtype": "uint8"}, 1 / 255),
        ("float32", {"input_shape": [1, 8, 8], "input_dtype": "uint8", "preview": 16}, 1 / 16),
        ("float32", {"input_shape": [1, 8, 8], "input_dtype": "float32"}, None),
        ("int64", {"input_shape": [8, 8], "input_dtype": "uint8"}, None),
        ("float32", {"input_shape": [8], "input_dtype": "uint8"}, None),
        (None, {"input_shape": [784], "input_dtype": "uint8"}, None),
        ("float32", {"input_shape": [128], "input_dtype": "int64"}, None),
        (None, {"input_shape": [3, 8, 8], "input_dtype": "uint8", "inputs": {"a": "", "b": ""}}, None),
    ],
)
def test_only_8_bit_images_get_a_scale(takes, data, scale):
    if most := data.pop("preview", None):
        seen = DataPreview(inputs=ValueStats(minimum=0, maximum=most, mean=1, std=1))
        data["preview"] = seen.model_dump(mode="json")
    network = replace(model("a.pt2"), facts={"input_dtype": takes})
    assert dropped.scale_for(network, replace(file("d.npz"), facts=data)) == scale


def test_the_test_part_of_the_same_file_is_found_in_the_library_but_no_older_one():
    train, test, old = file("m-train.safetensors", at_s=100), file("m-test.safetensors", at_s=101), file("m-test.npz")
    files = [model("net.pt2"), train]
    assert pairs(dropped.with_files({}, files, [*files, old], NAMES)) == [("net", "m-train.safetensors-100", "None")]
    with_part = dropped.with_files({}, files, [*files, old, test], NAMES)
    assert pairs(with_part) == [("net", "m-train.safetensors-100", "m-test.safetensors-101")]


def test_weights_get_the_architecture_that_their_name_says():
    [part] = drafts.submodels(dropped.with_files({}, [file("my_ResNet18_best.pth", "weights")], [], NAMES))
    assert part["architecture"] == {"name": "resnet18"}


def test_a_spec_fills_an_empty_draft_and_adds_to_any_other():
    spec = {"name": "mine", "seed": 5, "submodels": [{"name": "a", "model": "x/net.pt2", "train_data": "d.npz"}]}
    held = [model("net.pt2"), file("d.npz", at_s=1), file("d.npz", at_s=2)]
    draft = dropped.with_names(dropped.with_document(drafts.new(), "spec.json", spec), held)
    assert (draft["name"], draft["seed"]) == ("mine", 5)
    [part] = drafts.submodels(draft)
    assert (part["model"], part["train_data"]) == ("sha256:net.pt2-0", "sha256:d.npz-2"), "the newest of equal names"
    again = dropped.with_document(draft, "spec.json", {**spec, "name": "other"})
    assert (again["name"], [one["name"] for one in drafts.submodels(again)]) == ("mine", ["a", "a-2"])
    assert dropped.missing(draft, held) == ()
    assert [one.field for one in dropped.missing(again, held)] == ["submodels.a-2.model", "submodels.a-2.train_data"]


def test_hyperparameters_are_those_of_the_sub_model_named_like_the_file():
    draft = {"submodels": [{"name": "Net"}, {"name": "other"}]}
    hyper = {"epochs": 3}
    assert dropped.with_document(draft, "net.json", hyper)["submodels"][0] == {"name": "Net", "hyperparameters": hyper}
    assert dropped.with_document(draft, "any.json", hyper)["submodels"][1]["hyperparameters"] == hyper
    assert dropped.with_document({"submodels": []}, "any.json", hyper) == {"submodels": []}


def test_documents_are_told_apart():
    assert (
        document_kind({"submodels": []}) == "spec"
        and document_kind({"epochs": 3, "optimiser": "x"}) == "hyperparameters"
    )
    for other in ({"model_type": "bert"}, [], 3, {}):
        assert document_kind(other) == ""
    assert document_of(b'{"epochs": 3}', "f") == {"epochs": 3}
    for broken in (b"\xff", b'{"epochs": }', b"[" * 100_000, b'{"epochs": ' + b"9" * 5000 + b"}"):
        assert document_of(broken, "f") is None
