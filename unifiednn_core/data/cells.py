"""Columns of Arrow as numbers, texts and lists. A text that occurs often is kept, and looked at, once."""

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


def numbers(column: Any) -> Array | None:
    """Return float64 values, NaN where one is missing; None if a value is not a number."""
    import pyarrow as pa
    from pyarrow import compute

    kind, is_ = column.type, pa.types
    if is_.is_dictionary(kind):
        values = numbers(column.dictionary)
        return None if values is None else np.append(values, np.nan)[_indices(column)]
    if is_.is_null(kind):
        return np.full(len(column), np.nan)
    if is_text(column):
        column = compute.utf8_trim_whitespace(column)
    elif not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_decimal(kind)):
        return None
    try:
        found = compute.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return np.asarray(found, np.float64)


def whole_numbers(column: Any) -> Array | None:
    """Return int64 values; None if one is missing or not whole."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if column.null_count or pa.types.is_null(kind):
        return None
    if pa.types.is_dictionary(kind):
        values = whole_numbers(column.dictionary)
        return None if values is None else values[_indices(column)]
    if is_text(column):
        column = compute.utf8_trim_whitespace(column)
    elif not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    try:
        return np.asarray(compute.cast(column, pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    except pa.ArrowInvalid:
        return None


def texts(column: Any) -> tuple[list[str], Array] | None:
    """Return the different texts and, for each row, the number of its text, -1 if it is missing; None for lists.

    Numbers become texts as they are written.
    """
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type
    if pa.types.is_null(kind):
        return [], np.full(len(column), -1)
    if not (pa.types.is_dictionary(kind) or is_text(column)):
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            return None
        column = compute.cast(column, pa.string())
    encoded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
    return (encoded.dictionary.to_pylist(), _indices(encoded)) if is_text(encoded.dictionary) else None


def lists(column: Any) -> tuple[Array, Array] | None:
    """Return the length of each list, 0 if it is missing, and all values in a row; None for other columns.

    The values are int64 if their type is whole, else float64, with NaN where one is missing.
    """
    import pyarrow as pa
    from pyarrow import compute

    kind, is_ = column.type, pa.types
    if not (is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind)):
        return None
    flat = column.flatten()
    values = whole_numbers(flat) if len(flat) else np.empty(0, np.int64)
    values = numbers(flat) if values is None and not is_text(flat) else values
    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return None if values is None else (np.asarray(lengths, np.int64), values)


def images(column: Any) -> list[bytes | None] | None:
    """Return the bytes of each image, as the `datasets` library stores them; None for other columns."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column = column.flatten()[kind.get_field_index("bytes")]
    is_binary = pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)
    return column.to_pylist() if is_binary else None


def is_text(column: Any) -> bool:
    """Whether a column holds texts."""
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _indices(encoded: Any) -> Array:
    """Number of the value of each row, -1 where it is missing."""
    return np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def is_number(text: str) -> bool:
    """Whether a text is a number as Python writes it."""
    try:
        float(text)
    except ValueError:
        return False
    return True
