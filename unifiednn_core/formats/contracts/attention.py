"""Attention: its kernels take the number of rows from one argument and read as many from the others."""

from typing import Any

import torch
from torch import Tensor

from unifiednn_core.formats.contracts.contract import each, require, rule
from unifiednn_core.formats.contracts.memory import overlaps_itself
from unifiednn_core.formats.contracts.predicates import between, broadcast_shape, check_count, finite, one_type, tensor


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


CONTRACTS = each(
    "scaled_dot_product_attention",
    one_type("query", "key", "value"),
    _shapes,
    _rows,
    _mask,
    between("dropout_p", 0, 1),
    finite("scale"),
)
