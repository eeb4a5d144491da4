"""Symbolic sizes in a `.pt2` file, such as `Mul(Integer(2), Symbol('s77', integer=True))`.

The official loader evaluates them as Python. Only the few forms that describe a size are let through.
"""

import ast
import re

from pydantic_core import PydanticCustomError

MAX_LENGTH = 1000
_FUNCTION_NAMES = """
Symbol Integer Rational Add Mul Max Min FloorDiv CleanDiv CeilDiv Mod PythonMod ModularIndexing IntTrueDiv ToFloat
CeilToInt FloorToInt Equality Unequality LessThan GreaterThan StrictLessThan StrictGreaterThan And Or Not
"""
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_ASSUMPTIONS = frozenset({"positive", "nonnegative", "nonzero", "integer", "real", "finite", "evaluate"})
_SYMBOL = re.compile(r"[su][0-9]{1,9}")
_PLAIN_SYMBOL = re.compile(r"Symbol\('([su][0-9]{1,9})'(, [a-z]+=True)*\)")


def check_expression(text: str) -> str:
    """Return `text`; raises a validation error of type "hostile" where it is more than a size."""
    try:
        tree = ast.parse(text, mode="eval") if len(text) <= MAX_LENGTH else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not _is_size(tree.body):
        raise PydanticCustomError(
            "hostile", "the size {text} is no plain arithmetic, and would be run as code", {"text": repr(text[:80])}
        )
    return text


def plain_symbol(text: str) -> str | None:
    """Name of the symbol where the expression is nothing but one symbol."""
    match = _PLAIN_SYMBOL.fullmatch(text)
    return match.group(1) if match else None


def _is_size(node: ast.expr) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name))], keywords=keywords):
            return _SYMBOL.fullmatch(name) is not None and _are_assumptions(keywords)
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=keywords):
            return function in _FUNCTIONS and _are_assumptions(keywords) and all(_is_size(part) for part in arguments)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_size(operand)
        case ast.Constant(value=value):
            return isinstance(value, int) and abs(value) < 2**63
    return False


def _are_assumptions(keywords: list[ast.keyword]) -> bool:
    return all(
        keyword.arg in _ASSUMPTIONS
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, bool)
        for keyword in keywords
    )
