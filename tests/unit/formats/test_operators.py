import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from unifiednn_core.formats import operators
from unifiednn_core.formats.exported_schema import check_expression, plain_symbol


def test_every_listed_operator_exists_and_is_no_out_variant() -> None:
    wrong = {}
    for target in sorted(operators.ATEN - {"torch.ops.aten.div.out"}):  # its contract leaves no room to resize
        function = operators.resolve(target)
        if not isinstance(function, torch._ops.OpOverload) or any(one.is_out for one in function._schema.arguments):
            wrong[target] = function
    assert wrong == {}
    assert len(operators.ATEN) > 300


@pytest.mark.parametrize("name", ["empty.memory_format", "empty_like.default", "new_empty.default"])
def test_unwritten_memory_is_zeros(name: str) -> None:
    like, sizes = torch.full((3,), 7.0), [1000]
    given = {"empty_like.default": (like,), "new_empty.default": (like, sizes)}.get(name, (sizes,))
    assert not operators.resolve(f"torch.ops.aten.{name}")(*given).any()


@pytest.mark.parametrize(
    "name",
    [
        "from_file.default",
        "set_.source_Tensor",
        "resize_.default",
        "as_strided.default",
        "add.out",
        "save.default",
        "empty_strided.default",
        "new_empty_strided.default",
        "_cudnn_init_dropout_state.default",
    ],
)
def test_operators_that_reach_beyond_their_tensors_are_not_listed(name: str) -> None:
    target = f"torch.ops.aten.{name}"
    assert target not in operators.ALLOWED
    with pytest.raises(KeyError):
        operators.resolve(target)


def test_the_flag_of_every_mode_dependent_operator_is_one_of_its_arguments() -> None:
    wrong = {}
    for target, flag in operators.MODE_FLAGS.items():
        function = operators.resolve(target)
        if not isinstance(function, torch._ops.OpOverload) or flag not in [
            one.name for one in function._schema.arguments
        ]:
            wrong[target] = flag
    assert wrong == {}


@given(st.text(alphabet="abcdefrtxyz_.", max_size=20))
def test_what_is_not_listed_does_not_resolve(name: str) -> None:
    if name not in operators.SIZES:
        with pytest.raises(KeyError):
            operators.resolve(name)


@pytest.mark.parametrize(
    "text",
    [
        "Symbol('s77', positive=True, integer=True)",
        "Mul(Integer(2), Symbol('s77', integer=True))",
        "Add(Integer(-1), FloorDiv(Symbol('s0', integer=True), Integer(2)))",
    ],
)
def test_sizes_pass_as_they_are(text: str) -> None:
    assert check_expression(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "Symbol('__import__')",
        "Symbol('s1').__class__",
        "[].append(1)",
        "Integer('1')",
        "lambda: 1",
        "Symbol('s1', integer=print())",
        "Symbol(*'s1')",
        "eval('1')",
        "9" * 30,
        "Pow(Integer(9), Integer(999999999))",
        "(" * 500 + ")" * 500,
        "1 if 1 else 2",
        "",
        "Add(Integer(1), x)",
        "f'{1}'",
        "True.__class__",
        "Symbol('s1')()",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        check_expression(text)
    assert caught.value.type == "hostile"


@given(st.text(max_size=60))
def test_what_passes_consists_of_known_words_only(text: str) -> None:
    try:
        check_expression(text)
    except PydanticCustomError:
        return
    assert not set(re.findall(r"[A-Za-z_]\w*", text)) & {"import", "eval", "exec", "os", "open"}


def test_only_a_bare_symbol_is_plain() -> None:
    assert plain_symbol("Symbol('s77', positive=True, integer=True)") == "s77"
    assert plain_symbol("Mul(Integer(2), Symbol('s77', integer=True))") is None
