"""Ordinary calls of operators, each with changes that its contract does not allow and a word of the refusal."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

INF, NAN = float("inf"), float("nan")
Changes = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A good call by named arguments, and what must not be changed about it."""

    name: str
    good: Changes
    bad: tuple[tuple[Changes, str], ...]


def f(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Real numbers of a shape, spread over -1 to 1."""
    return torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float64).to(dtype).reshape(shape)


def i(*shape: int, below: int = 3, dtype: torch.dtype = torch.int64) -> Tensor:
    """Whole numbers from 0."""
    return torch.arange(torch.Size(shape).numel()).remainder(below).to(dtype).reshape(shape)


def b(*shape: int) -> Tensor:
    """Every second entry is true."""
    return i(*shape, below=2).bool()


def weights(gates: int, wide: int = 4, hidden: int = 5, out: int = 0) -> list[Tensor]:
    """Weights of one recurrent layer in one direction."""
    seen = out or hidden
    plain = [f(gates * hidden, wide), f(gates * hidden, seen), f(gates * hidden), f(gates * hidden)]
    return [*plain, f(out, hidden)] if out else plain


def _recurrent(name: str, gates: int) -> Sample:
    state = f(1, 2, 5)
    states: Any = [state, state] if gates == 4 else state
    good: Changes = {
        "input": f(3, 2, 4),
        "hx": states,
        "params": weights(gates),
        "has_biases": True,
        "num_layers": 1,
        "dropout": 0.0,
        "train": True,
        "bidirectional": False,
        "batch_first": False,
    }

    def hx(one: Tensor) -> Any:
        return [one, one] if gates == 4 else one

    short = [*weights(gates)[:2], f(4), f(gates * 5)]
    bad: list[tuple[Changes, str]] = [
        ({"params": short}, "params"),
        ({"params": weights(gates)[:3]}, "3 weights"),
        ({"params": [*weights(gates)[:2], f(gates * 5).double(), f(gates * 5)]}, "float64"),
        ({"params": [f(gates * 5, 3), *weights(gates)[1:]]}, "params"),
        ({"params": [f(4, gates * 5).t(), *weights(gates)[1:]]}, "contiguous"),
        ({"params": weights(gates) * 2}, "8 weights"),
        ({"params": []}, "0 weights"),
        ({"hx": hx(f(1, 1, 5))}, "hx"),
        ({"hx": hx(f(2, 2, 5))}, "hx"),
        ({"hx": hx(f(1, 2, 5).half())}, "float16"),
        ({"hx": hx(f(2, 5))}, "hx"),
        ({"hx": hx(f(1, 2, 0))}, "widths"),
        ({"num_layers": 0}, "num_layers"),
        ({"num_layers": 2}, "weights"),
        ({"bidirectional": True}, "weights"),
        ({"has_biases": False}, "weights"),
        ({"batch_first": True}, "hx"),
        ({"dropout": 1.5}, "dropout"),
        ({"dropout": NAN}, "dropout"),
        ({"input": f(3, 4)}, "input"),
        ({"input": f(0, 2, 4)}, "input"),
        ({"input": i(3, 2, 4)}, "floating"),
    ]
    if gates == 4:
        bad += [({"hx": [state]}, "1 states"), ({"hx": [state, f(1, 2, 4)]}, "widths")]
    return Sample(name, good, tuple(bad))


_PROJECTED = Sample(
    "lstm.input",
    {
        "input": f(3, 2, 4),
        "hx": [f(1, 2, 2), f(1, 2, 5)],
        "params": weights(4, out=2),
        "has_biases": True,
        "num_layers": 1,
        "dropout": 0.0,
        "train": True,
        "bidirectional": False,
        "batch_first": False,
    },
    (({"params": weights(4)}, "4 weights"), ({"params": [*weights(4, out=2)[:4], f(2, 4)]}, "params")),
)
_ATTENTION = Sample(
    "scaled_dot_product_attention",
    {"query": f(2, 2, 4, 6), "key": f(2, 2, 5, 6), "value": f(2, 2, 5, 3), "attn_mask": f(4, 5), "dropout_p": 0.0},
    (
        ({"key": f(2, 2, 3, 6)}, "3 rows"),
        ({"value": f(2, 2, 7, 3)}, "7"),
        ({"key": f(2, 2, 5, 4)}, "width"),
        ({"key": f(3, 2, 5, 6), "value": f(3, 2, 5, 3)}, "do not fit"),
        ({"key": f(2, 3, 5, 6), "value": f(2, 3, 5, 3)}, "do not fit"),
        ({"key": f(2, 5, 6)}, "key"),
        ({"query": f(2, 2, 0, 6)}, "query"),
        ({"key": f(2, 2, 5, 6).double()}, "float64"),
        ({"attn_mask": f(4, 6)}, "do not fit"),
        ({"attn_mask": f(3, 2, 2, 4, 5)}, "attn_mask"),
        ({"attn_mask": f(5)}, "attn_mask"),
        ({"attn_mask": i(4, 5)}, "int64"),
        ({"is_causal": True}, "is_causal"),
        ({"dropout_p": -0.1}, "dropout_p"),
        ({"dropout_p": NAN}, "dropout_p"),
        ({"scale": INF}, "scale"),
        ({"query": f(2, 2, 9).unfold(2, 6, 1)}, "overlap"),
        ({"value": f(2, 2, 5, 1).expand(2, 2, 5, 3)}, "overlap"),
        ({"query": f(2, 3, 4, 6), "enable_gqa": True}, "heads"),
    ),
)
_STATISTICS: Changes = {"running_mean": f(3), "running_var": f(3).abs() + 1}
_NORM: Changes = {
    "input": f(4, 3, 5),
    "weight": f(3),
    "bias": f(3),
    **_STATISTICS,
    "momentum": 0.1,
    "eps": 1e-5,
    "cudnn_enabled": False,
}
_SAME = f(3)
_BAD_NORM: tuple[tuple[Changes, str], ...] = (
    ({"weight": f(2)}, "weight"),
    ({"bias": f(4)}, "bias"),
    ({"running_mean": f(2)}, "running_mean"),
    ({"running_var": f(3, 1)}, "running_var"),
    ({"running_var": None}, "missing"),
    ({"running_mean": torch.zeros(1).expand(3)}, "contiguous"),
    ({"running_mean": _SAME, "running_var": _SAME}, "share memory"),
    ({"running_mean": _SAME, "weight": _SAME}, "share memory"),
    ({"weight": f(3).double()}, "float64"),
    ({"running_mean": i(3)}, "int64"),
    ({"eps": 0.0}, "eps"),
    ({"eps": NAN}, "eps"),
    ({"input": f(3)}, "input"),
    ({"input": i(4, 3, 5)}, "floating"),
)
_CONV: Changes = {"input": f(2, 4, 6, 6), "weight": f(6, 2, 3, 3), "bias": f(6), "groups": 2}
_TRANSPOSE: Changes = {"input": f(2, 4, 6, 6), "weight": f(4, 3, 3, 3), "bias": f(6), "groups": 2, "stride": [2, 2]}
_POOL: Changes = {"self": f(2, 3, 6, 6), "kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}

SAMPLES = (
    _ATTENTION,
    _recurrent("lstm.input", 4),
    _recurrent("gru.input", 3),
    _recurrent("rnn_tanh.input", 1),
    _recurrent("rnn_relu.input", 1),
    _PROJECTED,
    Sample(
        "batch_norm",
        {**_NORM, "training": False},
        (*_BAD_NORM, ({"running_mean": None, "running_var": None}, "no running statistics")),
    ),
    Sample("batch_norm", {**_NORM, "running_mean": None, "running_var": None, "training": True}, ()),
    Sample("instance_norm", {**_NORM, "use_input_stats": True}, _BAD_NORM),
    Sample(
        "layer_norm",
        {"input": f(4, 3, 5), "normalized_shape": [3, 5], "weight": f(3, 5), "bias": f(3, 5)},
        (
            ({"normalized_shape": [5, 3]}, "input"),
            ({"normalized_shape": []}, "input"),
            ({"weight": f(15)}, "weight"),
            ({"weight": f(2, 5)}, "weight"),
            ({"bias": f(3, 5).double()}, "float64"),
            ({"eps": -1.0}, "eps"),
        ),
    ),
    Sample("rms_norm", {"input": f(4, 5), "normalized_shape": [5], "weight": f(5)}, (({"weight": f(4)}, "weight"),)),
    Sample(
        "group_norm",
        {"input": f(2, 6, 4), "num_groups": 3, "weight": f(6), "bias": f(6)},
        (
            ({"num_groups": 4}, "groups"),
            ({"num_groups": 0}, "groups"),
            ({"num_groups": -3}, "groups"),
            ({"weight": f(3)}, "weight"),
            ({"bias": f(12)[::2]}, "contiguous"),
        ),
    ),
    Sample(
        "conv2d",
        _CONV,
        (
            ({"weight": f(6, 3, 3, 3)}, "channels"),
            ({"weight": f(5, 2, 3, 3)}, "channels"),
            ({"weight": f(6, 2, 3)}, "weight"),
            ({"weight": f(6, 2, 7, 3)}, "places"),
            ({"weight": f(6, 2, 0, 3)}, "weight"),
            ({"weight": f(6, 2, 3, 3).half()}, "float16"),
            ({"bias": f(5)}, "bias"),
            ({"bias": f(1).expand(6)}, "contiguous"),
            ({"groups": 0}, "groups"),
            ({"groups": 3}, "channels"),
            ({"stride": [0, 1]}, "stride"),
            ({"dilation": [1, -1]}, "dilation"),
            ({"padding": [-1, 0]}, "padding"),
            ({"padding": [1, 1, 1]}, "padding"),
            ({"stride": [2**31, 1]}, "stride"),
            ({"input": i(2, 4, 6, 6)}, "floating"),
        ),
    ),
    Sample(
        "conv2d.padding",
        {**_CONV, "padding": "same"},
        (({"stride": [2, 2]}, "padding"), ({"padding": "half"}, "padding"), ({"dilation": [0, 1]}, "dilation")),
    ),
    Sample(
        "conv_transpose2d.input",
        {**_TRANSPOSE, "output_padding": [1, 1]},
        (
            ({"weight": f(3, 3, 3, 3)}, "channels"),
            ({"bias": f(3)}, "bias"),
            ({"output_padding": [2, 2]}, "output_padding"),
            ({"padding": [9, 9]}, "places"),
            ({"stride": [2**30, 2**30]}, "result"),
        ),
    ),
    Sample(
        "max_pool2d",
        {**_POOL, "dilation": [1, 1]},
        (
            ({"kernel_size": [0, 3]}, "kernel_size"),
            ({"stride": [-1, 1]}, "stride"),
            ({"padding": [2, 2]}, "padding"),
            ({"dilation": [0, 1]}, "dilation"),
            ({"kernel_size": [9, 9]}, "places"),
            ({"self": f(6, 6)}, "self"),
            ({"self": f(2, 0, 6, 6)}, "self"),
        ),
    ),
    Sample("avg_pool2d", _POOL, (({"divisor_override": 0}, "divisor"), ({"padding": [-1, 0]}, "padding"))),
    Sample(
        "adaptive_avg_pool2d",
        {"self": f(2, 3, 6, 6), "output_size": [2, 3]},
        (({"output_size": [-1, 2]}, "output_size"), ({"output_size": [0, 2]}, "output_size")),
    ),
    Sample(
        "upsample_bicubic2d.vec",
        {"input": f(1, 2, 3, 3), "output_size": None, "align_corners": False, "scale_factors": [2.0, 2.0]},
        (
            ({"output_size": [6, 6]}, "either"),
            ({"scale_factors": None}, "either"),
            ({"scale_factors": [2.0]}, "for 2"),
            ({"scale_factors": [NAN, 2.0]}, "factors"),
            ({"scale_factors": [1e-3, 2.0]}, "result"),
            ({"scale_factors": [-1.0, 2.0]}, "factors"),
            ({"scale_factors": [INF, 2.0]}, "factors"),
            ({"input": f(1, 2, 0, 3)}, "input"),
            ({"input": f(2, 3, 3)}, "input"),
        ),
    ),
    Sample(
        "pad",
        {"self": f(1, 2, 3, 4), "pad": [2, 2, 1, 1], "mode": "reflect"},
        (
            ({"pad": [4, 0, 0, 0]}, "pad"),
            ({"pad": [-1, 0, 0, 0]}, "pad"),
            ({"pad": [1, 1, 1]}, "pad"),
            ({"pad": [1] * 8}, "pad"),
            ({"mode": "mirror"}, "mode"),
            ({"mode": "circular", "pad": [5, 0, 0, 0]}, "pad"),
            ({"mode": "replicate", "self": f(1, 2, 3, 0)}, "pad"),
            ({"mode": "constant", "pad": [-5, 6]}, "pad"),
        ),
    ),
    Sample(
        "col2im",
        {
            "self": f(1, 8, 9),
            "output_size": [4, 4],
            "kernel_size": [2, 2],
            "dilation": [1, 1],
            "padding": [0, 0],
            "stride": [1, 1],
        },
        (
            ({"self": f(1, 8, 8)}, "self"),
            ({"self": f(1, 7, 9)}, "self"),
            ({"output_size": [5, 4]}, "self"),
            ({"kernel_size": [0, 2]}, "kernel_size"),
            ({"stride": [0, 1]}, "stride"),
        ),
    ),
    Sample(
        "im2col",
        {"self": f(1, 2, 4, 4), "kernel_size": [2, 2], "dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]},
        (({"kernel_size": [5, 2]}, "places"), ({"dilation": [0, 1]}, "dilation"), ({"self": f(4, 4)}, "self")),
    ),
    Sample("pixel_shuffle", {"self": f(1, 8, 2, 2), "upscale_factor": 2}, (({"upscale_factor": 3}, "factor"),)),
    Sample("pixel_unshuffle", {"self": f(1, 2, 4, 4), "downscale_factor": 2}, (({"downscale_factor": 0}, "factor"),)),
    Sample(
        "embedding",
        {"weight": f(5, 3), "indices": i(2, 4), "padding_idx": 1},
        (
            ({"weight": f(5)}, "weight"),
            ({"indices": f(2, 4)}, "indices"),
            ({"indices": i(2, 4, dtype=torch.uint8)}, "uint8"),
            ({"padding_idx": 5}, "padding_idx"),
            ({"padding_idx": -6}, "padding_idx"),
            ({"sparse": True}, "sparse"),
        ),
    ),
    Sample("one_hot", {"self": i(4), "num_classes": 3}, (({"num_classes": 0}, "num"), ({"self": f(4)}, "float32"))),
    Sample(
        "index.Tensor",
        {"self": f(4, 5), "indices": [i(3), None]},
        (
            ({"indices": [i(3), i(3), i(3)]}, "dimensions"),
            ({"indices": [i(3), i(2)]}, "fit"),
            ({"indices": [b(3)]}, "mask"),
            ({"indices": [b(4, 4)]}, "mask"),
            ({"indices": [f(3)]}, "float32"),
            ({"indices": [i(4, dtype=torch.uint8)]}, "uint8"),
            ({"indices": [None]}, "indices"),
        ),
    ),
    Sample(
        "index_select",
        {"self": f(4, 5), "dim": 1, "index": i(3)},
        (({"dim": 2}, "dimension"), ({"index": i(3, 1)}, "index"), ({"index": f(3)}, "float32")),
    ),
    Sample(
        "gather",
        {"self": f(4, 5), "dim": 1, "index": i(3, 7)},
        (
            ({"index": i(5, 5)}, "shapes"),
            ({"index": i(3)}, "shapes"),
            ({"index": i(3, 7, dtype=torch.int32)}, "int32"),
            ({"sparse_grad": True}, "sparse_grad"),
        ),
    ),
    Sample(
        "take_along_dim",
        {"self": f(4, 5), "indices": i(4, 2), "dim": 1},
        (({"indices": i(4)}, "shapes"), ({"indices": i(3, 2)}, "fit")),
    ),
    Sample(
        "linear",
        {"input": f(2, 3, 4), "weight": f(5, 4), "bias": f(5)},
        (
            ({"weight": f(5, 3)}, "weight"),
            ({"bias": f(4)}, "bias"),
            ({"bias": f(5).double()}, "float64"),
            ({"input": i(2, 4)}, "floating"),
            ({"input": f()}, "single"),
        ),
    ),
    Sample(
        "bilinear",
        {"input1": f(2, 3), "input2": f(2, 4), "weight": f(5, 3, 4), "bias": f(5)},
        (({"weight": f(5, 4, 3)}, "weight"), ({"input2": f(1, 4)}, "inputs"), ({"bias": f(6)}, "bias")),
    ),
    Sample(
        "matmul",
        {"self": f(2, 3, 4), "other": f(4, 5)},
        (({"other": f(3, 5)}, "shapes"), ({"self": f()}, "single")),
    ),
    Sample("bmm", {"self": f(2, 3, 4), "mat2": f(2, 4, 5)}, (({"mat2": f(3, 4, 5)}, "matrices"),)),
    Sample(
        "addmm",
        {"self": f(5), "mat1": f(3, 4), "mat2": f(4, 5)},
        (({"self": f(4)}, "fit"), ({"mat2": f(5, 5)}, "shapes"), ({"self": f(2, 3, 5)}, "self")),
    ),
    Sample(
        "einsum",
        {"equation": "bij,bjk->bik", "tensors": [f(2, 3, 4), f(2, 4, 5)], "path": None},
        (
            ({"tensors": [f(2, 3, 4)]}, "terms"),
            ({"tensors": [f(2, 3, 4), f(2, 3, 5)]}, "'j'"),
            ({"tensors": [f(2, 3), f(2, 4, 5)]}, "bij"),
            ({"path": [0, 5]}, "path"),
            ({"path": [0]}, "path"),
            ({"equation": "b?j,bjk"}, "equation"),
        ),
    ),
    Sample(
        "cosine_similarity",
        {"x1": f(2, 3), "x2": f(2, 3), "dim": 1},
        (({"x2": f(2, 4)}, "fit"), ({"dim": 2}, "dim")),
    ),
    Sample("topk", {"self": f(3, 4), "k": 2, "dim": 1}, (({"k": 5}, "k"), ({"k": -1}, "k"), ({"dim": 2}, "dim"))),
    Sample("cumsum", {"self": f(3, 4), "dim": 1}, (({"dim": 2}, "dimension"),)),
    Sample("sum.dim_IntList", {"self": f(3, 4), "dim": [0, 1]}, (({"dim": [0, -2]}, "twice"), ({"dim": [5]}, "dim"))),
    Sample("amax", {"self": f(3, 4), "dim": [1]}, (({"self": f(3, 0)}, "self"), ({"dim": [], "self": f(0)}, "self"))),
    Sample("argmax", {"self": f(3, 4)}, (({"self": f(0)}, "self"),)),
    Sample("_softmax", {"self": f(3, 4), "dim": 1, "half_to_float": False}, (({"half_to_float": True}, "half"),)),
    Sample("glu", {"self": f(3, 4), "dim": 1}, (({"dim": 0}, "3 entries"),)),
    Sample(
        "prelu",
        {"self": f(2, 3, 4), "weight": f(3)},
        (({"weight": f(4)}, "weight"), ({"weight": f(3, 1)}, "weight")),
    ),
    Sample(
        "div.Tensor_mode",
        {"self": i(4), "other": 2, "rounding_mode": "trunc"},
        (({"other": -1}, "-1"), ({"other": 0}, "0"), ({"other": i(4) + 1}, "-1"), ({"rounding_mode": "up"}, "up")),
    ),
    Sample("floor_divide", {"self": i(4), "other": 2}, (({"other": i(3)}, "fit"),)),
    Sample("where.self", {"condition": b(3), "self": f(3), "other": f(1)}, (({"condition": i(3)}, "int64"),)),
    Sample("masked_fill.Scalar", {"self": f(2, 3), "mask": b(3), "value": 0.0}, (({"mask": i(3)}, "int64"),)),
    Sample("view", {"self": f(4, 6), "size": [-1, 8]}, (({"size": [-1, 7]}, "24"), ({"size": [-1, -1]}, "-1"))),
    Sample("expand", {"self": f(1, 3), "size": [4, -1]}, (({"size": [4, 2]}, "fit"), ({"size": [2**40, 3]}, "size"))),
    Sample(
        "repeat",
        {"self": f(2, 3), "repeats": [2, 1, 2]},
        (({"repeats": [2]}, "repeats"), ({"repeats": [-1, 2]}, "result"), ({"repeats": [2**30, 2**30]}, "result")),
    ),
    Sample("tile", {"self": f(2, 3), "dims": [2]}, (({"dims": [-1]}, "result"), ({"dims": [2**30, 2**30]}, "result"))),
    Sample("cat", {"tensors": [f(2, 3), f(4, 3)]}, (({"tensors": []}, "no tensors"), ({"dim": 1}, "differ"))),
    Sample("stack", {"tensors": [f(2), f(2)]}, (({"tensors": [f(2), f(3)]}, "shapes"), ({"tensors": []}, "shapes"))),
    Sample(
        "split.Tensor",
        {"self": f(6), "split_size": 4},
        (({"split_size": 0}, "split_size"), ({"self": f()}, "single")),
    ),
    Sample("split_with_sizes", {"self": f(6), "split_sizes": [2, 4]}, (({"split_sizes": [2, 3]}, "add up"),)),
    Sample("unbind.int", {"self": f(6)}, (({"self": torch.zeros(2**17)}, "parts"),)),
    Sample(
        "select.int",
        {"self": f(2, 3), "dim": 1, "index": -3},
        (({"index": 3}, "place"), ({"dim": 2}, "dimension")),
    ),
    Sample("slice.Tensor", {"self": f(5), "end": 2**63 - 1}, (({"step": 0}, "step"), ({"step": -1}, "step"))),
    Sample(
        "narrow",
        {"self": f(5), "dim": 0, "start": 2, "length": 3},
        (({"length": 4}, "takes"), ({"start": -6}, "takes")),
    ),
    Sample(
        "unfold",
        {"self": f(5), "dimension": 0, "size": 3, "step": 1},
        (({"size": 6}, "windows"), ({"step": 0}, "step")),
    ),
    Sample("roll", {"self": f(2, 3), "shifts": [1], "dims": [1]}, (({"shifts": [1, 1]}, "shifts"),)),
    Sample("meshgrid.indexing", {"tensors": [f(2), f(3)], "indexing": "ij"}, (({"tensors": [f(2, 2)]}, "tensors"),)),
    Sample("arange.start_step", {"start": 0, "end": 9, "step": 2}, (({"step": 0}, "by 0"), ({"end": INF}, "inf"))),
    Sample("arange", {"end": 9}, (({"end": -1}, "-1"), ({"end": 2.0**41}, "result"), ({"end": NAN}, "nan"))),
    Sample("eye", {"n": 3}, (({"n": -1}, "result"), ({"n": 2**21}, "result"))),
    Sample("zeros", {"size": [2, 3]}, (({"size": [-1]}, "result"), ({"pin_memory": True}, "pin_memory"))),
    Sample("dropout", {"input": f(4), "p": 0.5, "train": True}, (({"p": 1.1}, "p"), ({"p": NAN}, "p"))),
    Sample(
        "bernoulli.p",
        {"self": f(4), "p": 0.5},
        (({"p": -0.5}, "p"), ({"generator": torch.Generator()}, "generator")),
    ),
    Sample(
        "rrelu",
        {"self": f(4), "lower": 0.1, "upper": 0.3},
        (({"lower": 0.4}, "slopes"), ({"upper": INF}, "upper")),
    ),
    Sample(
        "add_.Tensor",
        {"self": f(2, 3), "other": f(3)},
        (
            ({"self": f(1, 3).expand(2, 3)}, "same memory"),
            ({"other": f(4, 2, 3)}, "does not fit"),
            ({"self": i(2, 3)}, "float32"),
            ({"self": 3}, "no tensor"),
        ),
    ),
)
