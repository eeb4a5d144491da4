"""What became of each column of a table, in words. Pure."""

from unifiednn_core.spec.columns import WORDS, Column, ColumnPlan, UsedColumn

_FILLED = {"mean": "the mean", "median": "the median", "zero": "zero", "flag": "zero, and a column says so"}
_SHOWN = 6


def plan_rows(plan: ColumnPlan) -> list[tuple[str, str]]:
    """Name of each column, and what became of it; the target is marked."""
    inputs = {column.input for column in plan.used() if column.name != plan.target}
    return [(column.name, _row(column, column.name == plan.target, len(inputs) > 1)) for column in plan.columns]


def _row(column: Column, is_target: bool, several: bool) -> str:
    if column.kind == "ignore":
        return "left out"
    said = _becomes(column)
    if is_target:
        return f"targets: {said}"
    return f"{said}, as '{column.input}'" if several else said


def _becomes(column: UsedColumn) -> str:
    if column.kind == "number":
        kind = "whole number" if column.whole else "number"
        if column.fill is None:
            return kind
        value = "" if column.missing in ("zero", "flag") else f" {column.fill:.4g}"
        return f"{kind}; a missing one is {_FILLED[column.missing]}{value}"
    if column.kind == "category":
        values = [value or "missing" for value in column.values or ()]
        shown = ", ".join(values[:_SHOWN]) + (", …" if len(values) > _SHOWN else "")
        return f"one column for each of: {shown}" if column.one_hot else f"number of the category: {shown}"
    if column.kind == "image":
        return f"image {' x '.join(map(str, column.shape or ()))}" + ", resized" * (column.size is not None)
    cut = f"{column.length:,} each" if column.length is not None else "of one length"
    mask = ", with a mask" if column.mask else ""
    if column.kind == "list":
        return f"list of {'whole ' if column.whole else ''}numbers, {cut}, short ones filled up with {column.pad}{mask}"
    by = "words" if column.tokenizer == WORDS else f"tokenizer {column.tokenizer[:12]}"
    if column.stream:
        return f"one stream of tokens by {by}, cut into samples, {cut}"
    padded = "" if column.pad is None else f", short ones filled up with {column.pad}"
    cut_off = column.length is not None and (column.longest is None or column.longest > column.length)
    longest = ", longer ones cut" if cut_off else ""
    return f"tokens by {by}, {cut}{padded}{longest}{mask}"
