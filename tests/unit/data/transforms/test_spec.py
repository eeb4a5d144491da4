"""What a spec can say about transforms, and that the table says what the transforms are."""

import dataclasses
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tests.unit.data.transforms.kit import CASES, made
from unifiednn_core.data.transforms.table import TRANSFORMS, build
from unifiednn_core.spec import transforms as spec
from unifiednn_core.spec.findings import finding_of
from unifiednn_core.spec.transforms import TransformSpec, TransformSpecs

LISTS: TypeAdapter[tuple[TransformSpec, ...]] = TypeAdapter(TransformSpecs)


def findings(data: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        LISTS.validate_python(data)
    return [str(finding_of(detail, data)) for detail in caught.value.errors()]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_the_table_has_the_arguments_and_defaults_of_the_transform(name: str) -> None:
    choice, kind = spec.TRANSFORMS[name], TRANSFORMS[name]
    assert choice.torch_class == kind.__name__  # type: ignore[attr-defined]
    fields = {field.name: field.default for field in dataclasses.fields(kind) if field.name != "input"}  # type: ignore[arg-type]
    assert list(fields) == [argument.name for argument in choice.arguments]
    for argument in choice.arguments:
        default = fields[argument.name]
        assert (default is dataclasses.MISSING) == argument.required
        assert argument.required or argument.default == (default if default != () else None)
    assert choice.help.endswith(".") and choice.source and choice.does.endswith(".")


def test_both_tables_have_the_same_transforms() -> None:
    assert list(TRANSFORMS) == list(spec.TRANSFORMS)


def test_a_spec_is_the_same_after_json_and_builds_the_same() -> None:
    given = [{"name": name, **arguments} for name, arguments, _ in CASES if name != "mixup"]
    specs = LISTS.validate_python(given)
    again = LISTS.validate_json(LISTS.dump_json(specs, exclude_none=True))
    assert again == specs and build(again) == build(specs)
    assert LISTS.dump_python(specs, exclude_none=True, mode="json") == given


def test_class_names_of_torchvision_are_names_too() -> None:
    assert made("RandomHorizontalFlip", p=0.25) == made("horizontal_flip", p=0.25)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"name": "randomcrop"}, "Did you mean 'RandomCrop'?"),
        ({"name": "ToTensor"}, "not needed: data are tensors"),
        ({"padding": 4}, "This entry is missing"),
        ({"name": "random_crop", "pading": 4}, "no argument 'pading' here. Choose from: size, padding"),
        ({"name": "random_crop", "padding": -1}, "Give a whole number of at least 0"),
        ({"name": "random_crop", "padding": True}, "does not accept padding = true"),
        ({"name": "random_crop", "size": 32}, "Give a list of 2 whole numbers"),
        ({"name": "resize"}, "needs the argument 'size'"),
        ({"name": "resize", "size": [2, 2], "mode": "bicubic"}, "no argument 'mode' here. Choose from"),
        ({"name": "resize", "size": [2, 2], "interpolation": "lanczos"}, "Give one of bilinear, bicubic"),
        ({"name": "normalize", "mean": [0.5, 0.5], "std": [1, 1, 1]}, "2 means but 3 deviations"),
        ({"name": "normalize", "mean": [0.5], "std": [0]}, "each above 0"),
        ({"name": "random_erasing", "scale": [0.5, 0.1]}, "Exchange the two numbers"),
        ({"name": "color_jitter", "hue": 0.6}, "of at most 0.5"),
        ({"name": "token_masking", "mask": 1}, "Give vocabulary, or set random to 0"),
        ({"name": "token_masking", "mask": 1, "masked": 0.9, "random": 0.2}, "add up to more than 1"),
        ({"name": "trim", "input": ""}, "This entry is empty"),
        ("random_crop", "Give an object of names and values"),
    ],
)
def test_a_wrong_entry_is_a_finding_with_a_remedy(entry: Any, words: str) -> None:
    [text] = findings([entry])
    assert words in text


def test_a_finding_names_the_transform_and_its_argument() -> None:
    data = [{"name": "trim"}, {"name": "random_crop", "padding": "4"}]
    [text] = findings(data)
    assert text.startswith("random_crop.padding:")


def test_nothing_follows_mixup() -> None:
    assert "last transform" in findings([{"name": "mixup"}, {"name": "normalize", "mean": [0], "std": [1]}])[0]
    assert LISTS.validate_python([{"name": "horizontal_flip"}, {"name": "mixup"}])
