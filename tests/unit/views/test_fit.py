"""What is said of files that do not fit, and that nothing is said where nobody knows."""

from typing import Any

import pytest

from unifiednn_core.views import fit
from unifiednn_core.views.runs import FileView


def file(**facts: Any) -> FileView:
    return FileView(sha256="0", kind="data", filename="f", format="pt", size_bytes=1, created_at_s=0.0, facts=facts)


@pytest.mark.parametrize(
    ("model", "data", "fits"),
    [
        ([1, 8, 8], [1, 8, 8], True),
        ([1, 8, 8], [1, 28, 28], False),
        ([None, 8], [5, 8], True),
        ([None, 8], [5, 9], False),
        ([8], [1, 8], False),
        ([], [1, 8], True),
        (None, [1, 8], True),
    ],
)
def test_shapes_are_compared_and_free_dimensions_take_anything(model: Any, data: Any, fits: bool) -> None:
    assert (fit.why_no_data(file(input_shape=model), file(input_shape=data)) == "") == fits


def test_several_inputs_are_left_to_the_check() -> None:
    several = file(input_shape=[1], inputs={"a": "float32 [1]", "b": "float32 [2]"})
    assert fit.why_no_data(several, file(input_shape=[9])) == ""
    assert fit.why_no_data(None, file(input_shape=[9])) == ""


def test_test_data_have_the_shape_and_the_targets_of_the_training_data() -> None:
    train = file(input_shape=[3], target_dtype="int64", classes=10)
    assert fit.why_no_test(train, file(input_shape=[3], target_dtype="int64", classes=9)) == ""
    assert fit.why_no_test(train, file(input_shape=[3], target_dtype="int64", classes=11)) == "11 classes instead of 10"
    assert fit.why_no_test(train, file(input_shape=[3], target_dtype="float32")) == "other targets"
    assert "instead of" in fit.why_no_test(train, file(input_shape=[4], target_dtype="int64"))
    assert fit.why_no_test(None, file()) == ""
