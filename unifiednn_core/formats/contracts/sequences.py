"""Layers over sequences: their kernels read states, weights and rows without a look at their sizes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, require, rule
from unifiednn_core.formats.contracts.general import overlaps_itself
from unifiednn_core.formats.contracts.predicates import (
    between,
    broadcast_shape,
    check_count,
    check_same_type,
    finite,
    one_type,
    tensor,
)


@rule(
    "batch and heads of query, key and value can be broadcast to one shape (with enable_gqa the heads of query are a "
    "multiple of those of key and value); query and key have one width, key and value as many rows; none is empty"
)
def _shapes(query: Any, key: Any, value: Any, enable_gqa: bool) -> None:
    parts = {"query": tensor("query", query), "key": tensor("key", key), "value": tensor("value", value)}
    for name, part in parts.items():
        shape = list(part.shape)
        require(2 <= part.dim() == query.dim() and 0 not in part.shape, f"'{name}' has the shape {shape}")
    require(key.shape[-1] == query.shape[-1], f"'key' has the width {key.shape[-1]}, 'query' {query.shape[-1]}")
    require(key.shape[-2] == value.shape[-2], f"'key' has {key.shape[-2]} rows, 'value' {value.shape[-2]}")
    batches = [list(part.shape[:-2]) for part in (query, key, value)]
    if enable_gqa and query.dim() > 2:
        heads = [batch.pop() for batch in batches]
        require(heads[1] == heads[2] and heads[0] % heads[1] == 0, f"the numbers of heads are {heads}")
    check_count(*broadcast_shape(*batches), *query.shape[-2:], *key.shape[-2:-1])


@rule("the rows of query, key and value do not overlap each other, as windows would")
def _rows(query: Tensor, key: Tensor, value: Tensor) -> None:
    """BLAS refuses rows that are closer than they are long, and the kernel returns what its memory held."""
    for name, part in (("query", query), ("key", key), ("value", value)):
        require(not overlaps_itself(part[(0,) * (part.dim() - 2)]), f"the rows of '{name}' overlap")


@rule("attn_mask is bool or has the type of query, and can be broadcast to [batch, heads, rows of query, rows of key]")
def _mask(query: Tensor, key: Tensor, attn_mask: Any, is_causal: bool, enable_gqa: bool) -> None:
    if attn_mask is None:
        return
    require(not is_causal, "both a mask and is_causal are given")
    given = tensor("attn_mask", attn_mask)
    require(given.dtype in (torch.bool, query.dtype), f"'attn_mask' is {given.dtype}, 'query' {query.dtype}")
    batch = query.shape[:-2] if enable_gqa else broadcast_shape(query.shape[:-2], key.shape[:-2])
    wanted = (*batch, query.shape[-2], key.shape[-2])
    fits = 2 <= given.dim() <= query.dim() and broadcast_shape(wanted, given.shape) == wanted
    require(fits, f"'attn_mask' has the shape {list(given.shape)} for {list(wanted)}")


MOST_LAYERS = 200


@rule("input is [rows, batch, width] (or [batch, rows, width] with batch_first), none of them 0")
def _input(input: Any) -> None:
    given = tensor("input", input, 3)
    require(0 not in given.shape, f"'input' has the shape {list(given.shape)}")


_TEXT = (
    "each state is [layers * directions, batch, hidden]; for each layer and direction there are weights "
    "[{gates} * hidden, width] and [{gates} * hidden, hidden], with has_biases two biases [{gates} * hidden]"
    "{projection}; the weights are contiguous, and all have the type of input"
)
_PROJECTION = ", and where the output is narrower than hidden its weight"


def _weights(gates: int) -> Rule:
    @rule(_TEXT.format(gates=gates, projection=_PROJECTION if gates == 4 else ""))
    def check(
        input: Tensor,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        bidirectional: bool,
        batch_first: bool,
    ) -> None:
        require(1 <= num_layers <= MOST_LAYERS, f"'num_layers' is {num_layers}")
        directions, batch = 1 + bool(bidirectional), input.shape[0 if batch_first else 1]
        states = list(hx) if gates == 4 else [hx]
        require(len(states) == (2 if gates == 4 else 1), f"there are {len(states)} states")
        out, hidden = (tensor("hx", state, 3).shape[2] for state in (states[0], states[-1]))
        require(hidden > 0 and 0 < out <= hidden, f"the states have the widths {out} and {hidden}")
        first = (num_layers * directions, batch)
        expected: list[tuple[str, Any, tuple[int, ...]]] = [("hx", states[0], (*first, out))]
        expected += [("hx", state, (*first, hidden)) for state in states[1:]]
        count, places = 2 + 2 * bool(has_biases) + (out != hidden), num_layers * directions
        require(len(params) == count * places, f"there are {len(params)} weights instead of {count * places}")
        for place in range(places):
            width = input.shape[2] if place < directions else out * directions
            shapes: list[tuple[int, ...]] = [(gates * hidden, width), (gates * hidden, out)]
            shapes += [(gates * hidden,)] * 2 if has_biases else []
            shapes += [(out, hidden)] if out != hidden else []
            given = params[place * count : (place + 1) * count]
            expected += [("params", weight, shape) for weight, shape in zip(given, shapes, strict=True)]
        for name, part, shape in expected:
            check_same_type("input", input, name, part)
            found = list(part.shape)
            require(tuple(found) == shape, f"'{name}' has an entry of the shape {found} instead of {list(shape)}")
            require(part.is_contiguous() or name == "hx", f"'{name}' has an entry that is not contiguous")

    return check


def _cell(gates: int) -> Rule:
    @rule(
        f"input is [batch, width]; {'two states' if gates == 4 else 'the state'} [batch, hidden]; w_ih is [{gates} * "
        f"hidden, width], w_hh [{gates} * hidden, hidden], both biases or none [{gates} * hidden], contiguous; none is "
        "empty, and all have the type of input"
    )
    def check(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> None:
        given = tensor("input", input, 2)
        states = list(hx) if gates == 4 else [hx]
        require(len(states) == (2 if gates == 4 else 1), f"there are {len(states)} states")
        hidden = tensor("hx", states[0], 2).shape[1]
        require(hidden > 0 and 0 not in given.shape, f"'input' has the shape {list(given.shape)}")
        parts: list[tuple[str, Any, tuple[int, ...]]] = [("hx", state, (given.shape[0], hidden)) for state in states]
        parts += [("w_ih", w_ih, (gates * hidden, given.shape[1])), ("w_hh", w_hh, (gates * hidden, hidden))]
        require((b_ih is None) == (b_hh is None), "one of the two biases is missing")
        parts += [
            (name, bias, (gates * hidden,)) for name, bias in (("b_ih", b_ih), ("b_hh", b_hh)) if bias is not None
        ]
        for name, part, shape in parts:
            check_same_type("input", given, name, tensor(name, part))
            require(tuple(part.shape) == shape, f"'{name}' has the shape {list(part.shape)} instead of {list(shape)}")
            require(part.is_contiguous() or name == "hx", f"'{name}' is not contiguous")

    return check


_CELLS = {"lstm_cell": 4, "gru_cell": 3, "rnn_tanh_cell rnn_relu_cell": 1}
_GATES = {"lstm.input": 4, "gru.input": 3, "rnn_tanh.input rnn_relu.input": 1}
CONTRACTS: dict[str, Contract] = each(
    "scaled_dot_product_attention",
    one_type("query", "key", "value"),
    _shapes,
    _rows,
    _mask,
    between("dropout_p", 0, 1),
    finite("scale"),
)
for _names, _count in _GATES.items():
    CONTRACTS |= each(_names, _input, _weights(_count), between("dropout", 0, 1))
for _names, _count in _CELLS.items():
    CONTRACTS |= each(_names, _cell(_count))
