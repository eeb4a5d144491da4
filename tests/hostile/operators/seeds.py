"""Ordinary calls of every operator that a graph may use, as networks make them; mutations begin here."""

from functools import cache

import torch

from tests.hostile.operators import complex_seeds, more_seeds
from tests.hostile.operators.values import Call, T, b, c, f, i
from unifiednn_core.formats.contracts.contract import full_name
from unifiednn_core.formats.contracts.sizes import FUNCTIONS

# Operators that take the same calls.
_LIKE = """
abs sign neg exp expm1 log log1p log2 sqrt rsqrt reciprocal square sin cos tan atan sinh cosh erf floor ceil round trunc
isnan isinf isfinite nan_to_num logical_not relu relu_ relu6 relu6_ leaky_relu leaky_relu_ elu elu_ selu selu_ celu
celu_ gelu silu silu_ mish mish_ hardtanh hardtanh_ hardswish hardswish_ hardsigmoid hardsigmoid_ softplus softshrink
hardshrink log_sigmoid sigmoid sigmoid_ tanh tanh_ rrelu rrelu_ clone contiguous detach detach_ lift_fresh_copy alias
zero_ zeros_like ones_like empty_like rand_like randn_like squeeze sym_numel _to_copy to.dtype_layout sum mean prod amax
amin max min argmax argmin any all var std var.correction std.correction var_mean.correction norm.Scalar
linalg_vector_norm sort flatten.using_ints abs_ neg_ exp_ expm1_ log_ log1p_ sqrt_ rsqrt_ sin_ cos_ floor_ ceil_ round_
trunc_ sign_ reciprocal_ square_ erf_ acos acosh asin asinh atanh log10 exp2 erfc erfinv lgamma digamma frac sgn sinc
logit special_expit special_entr special_gammaln special_i0 special_log1p special_expm1 special_erf special_exp2
special_logit special_erfinv special_digamma isposinf isneginf signbit positive nan_to_num_ rad2deg deg2rad arctan
arcsin arccos negative absolute
"""
_PAIR = """
add.Tensor add_.Tensor sub.Tensor sub_.Tensor rsub.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor atan2 maximum
minimum floor_divide remainder.Tensor pow.Tensor_Tensor eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor
logical_and logical_or copy_ cosine_similarity type_as to.other max.other min.other multiply.Tensor multiply_.Tensor
divide.Tensor divide_.Tensor true_divide.Tensor true_divide_.Tensor subtract.Tensor subtract_.Tensor fmax fmin
copysign.Tensor hypot logaddexp logaddexp2 xlogy.Tensor special_xlogy special_xlog1py logical_xor logical_and_
logical_or_ isclose arctan2 remainder_.Tensor fmod.Tensor
"""
_WHOLE = "add.Tensor sub_.Tensor mul.Tensor floor_divide remainder.Tensor pow.Tensor_Tensor eq.Tensor maximum"
_SCALAR = """
add.Scalar add_.Scalar sub.Scalar rsub.Scalar mul.Scalar mul_.Scalar div.Scalar remainder.Scalar pow.Tensor_Scalar
eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar clamp_min clamp_max fill_.Scalar full_like clamp_min_
clamp_max_ sub_.Scalar multiply.Scalar divide.Scalar subtract.Scalar float_power.Tensor_Scalar fill.Scalar
true_divide.Scalar
"""
_BITS = """
bitwise_and.Tensor bitwise_or.Tensor __and__.Tensor __or__.Tensor bitwise_xor.Tensor __xor__.Tensor __iand__.Tensor
__ior__.Tensor bitwise_and_.Tensor bitwise_or_.Tensor
"""
_BIT = """
bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar __and__.Scalar __or__.Scalar __xor__.Scalar
"""
_ONE_DIM = """
softmax.int log_softmax.int max.dim min.dim argmax argmin any.dim all.dim prod.dim_int cumsum cumprod sort squeeze.dim
unsqueeze unbind.int sym_size.int
"""
_DIMS = "sum.dim_IntList mean.dim amax amin var.dim std.dim logsumexp"
_DROPOUT = "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ feature_alpha_dropout"
_FACTORY = "zeros ones rand randn empty.memory_format"
_CONTEXT = {"dtype": torch.float32, "device": torch.device("cpu"), "pin_memory": False}
_COUNTS = T((40,), torch.int64, "positive", 9)


def _attention() -> list[Call]:
    q, k = f(2, 2, 5, 8), f(2, 2, 7, 8)
    return [
        c(q, k, k),
        c(q, q, q, None, 0.0, True),
        c(q, k, k, f(5, 7)),
        c(q, k, k, b(2, 1, 5, 7)),
        c(q, k, k, None, 0.3),
        c(f(2, 4, 5, 8), k, k, None, 0.0, False, enable_gqa=True),
        c(f(3, 5, 8), f(3, 7, 8), f(3, 7, 8), scale=0.2),
        c(f(2, 2, 64, 16), f(2, 2, 64, 16), f(2, 2, 64, 16)),
    ]


def _recurrent(gates: int) -> list[Call]:
    """Sequences of 4 of size 3, batch of 2; hidden size 5, or 5 projected on 2 (LSTM)."""

    def weights(size: int, biases: bool, layers: int, ways: int, projected: int = 0) -> list[T]:
        out, found = projected or 5, []
        for layer in range(layers):
            for _ in range(ways):
                found += [f(5 * gates, size if not layer else out * ways), f(5 * gates, out)]
                found += [f(5 * gates), f(5 * gates)] * biases + [f(out, 5)] * bool(projected)
        return found

    def state(count: int, *batch: int, projected: int = 0) -> object:
        hidden = f(count, *batch, projected or 5)
        return [hidden, f(count, *batch, 5)] if gates == 4 else hidden

    calls = [
        c(f(2, 4, 3), state(1, 2), weights(3, True, 1, 1), True, 1, 0.0, False, False, True),
        c(f(4, 2, 3), state(1, 2), weights(3, False, 1, 1), False, 1, 0.0, True, False, False),
        c(f(2, 4, 3), state(4, 2), weights(3, True, 2, 2), True, 2, 0.3, True, True, True),
    ]
    if gates == 4:
        projected = weights(3, True, 1, 1, projected=2)
        calls.append(c(f(2, 4, 3), state(1, 2, projected=2), projected, True, 1, 0.0, True, False, True))
    return calls


def _convolutions() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for n in (1, 2, 3):
        x, w, back, none, one, two = (
            f(2, 4, *(6,) * n),
            f(6, 4, *(3,) * n),
            f(4, 6, *(3,) * n),
            [0] * n,
            [1] * n,
            [2] * n,
        )
        deep, single = f(4, 1, *(3,) * n), f(4, *(6,) * n)
        found[f"conv{n}d"] = [c(x, w, f(6)), c(x, w, f(6), two, one, one, 1), c(x, deep, None, one, one, two, 4)]
        found[f"conv{n}d"] += [c(single, w, None), c(x, f(6, 2, *(1,) * n), f(6), one, none, one, 2)]
        found[f"conv{n}d.padding"] = [c(x, w, f(6), one, "same", one, 1), c(x, w, None, one, "valid", one, 1)]
        found[_TRANSPOSED[n]] = [c(x, back, f(6)), c(x, back, f(6), two, one, one, 1, one)]
        found[_TRANSPOSED[n]] += [c(x, deep, None, one, none, none, 4)]
    return found


_TRANSPOSED = {1: "conv_transpose1d", 2: "conv_transpose2d.input", 3: "conv_transpose3d.input"}


def _pools() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for n in (1, 2, 3):
        x, none, one, two, three, four = f(2, 3, *(6,) * n), *([size] * n for size in range(5))
        found[f"max_pool{n}d"] = [c(x, two), c(x, three, two, one, one, True)]
        found[f"max_pool{n}d"] += [c(f(3, *(6,) * n), two, one, none, two)]
        found[f"avg_pool{n}d"] = [c(x, two), c(x, three, two, one, True, False)]
        found[f"adaptive_avg_pool{n}d"] = [c(x, two), c(x, one), c(x, four)]
        if n < 3:
            found[f"adaptive_max_pool{n}d"] = [c(x, two), c(x, four)]
    return found | {"max_pool2d_with_indices": found["max_pool2d"]}


def _images() -> dict[str, list[Call]]:
    x = f(2, 3, 6, 6)
    found: dict[str, list[Call]] = {}
    for n in (1, 2, 3):
        y = f(2, 3, *(6,) * n)
        found[f"upsample_nearest{n}d.vec"] = [c(y, None, [2.0] * n), c(y, [9] * n, None)]
    for name, n in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3), ("bicubic2d", 2)):
        y = f(2, 3, *(6,) * n)
        found[f"upsample_{name}.vec"] = [c(y, None, False, [2.0] * n), c(y, [9] * n, True, None)]
        found[f"upsample_{name}.vec"] += [c(y, [3] * n, False, None)]
    modes = ("reflect", "replicate", "circular")
    return found | {
        "im2col": [c(x, [3, 3], [1, 1], [1, 1], [2, 2]), c(x, [2, 2], [2, 2], [0, 0], [1, 1])],
        "col2im": [
            c(f(2, 27, 9), [6, 6], [3, 3], [1, 1], [1, 1], [2, 2]),
            c(f(2, 12, 16), [6, 6], [2, 2], [2, 2], [0, 0], [1, 1]),
        ],
        "pad": [
            c(x, [1, 2, 0, 1]),
            c(x, [1, -1], "constant", 2.0),
            *(c(x, [1, 2, 0, 1], mode) for mode in modes),
            *(c(f(2, 3, *(5,) * n), [1, 1] * n, mode) for n in (1, 3) for mode in modes),
        ],
        "constant_pad_nd": [c(x, [1, 2, 0, 1]), c(x, [-1, 2], 3.0)],
        "pixel_shuffle": [c(f(2, 8, 3, 3), 2)],
        "pixel_unshuffle": [c(x, 2), c(x, 3)],
    }


def _norms() -> dict[str, list[Call]]:
    x, image, d = f(3, 4, 5), f(2, 4, 3, 3), f(4)
    variance = T((4,), fill="unit")
    stats = (d, variance, True, 0.1, 1e-5, True)
    kept = (d, variance, False, 0.1, 1e-5, True)
    none = (None, None, True, 0.1, 1e-5, True)
    return {
        "batch_norm": [c(x, d, d, *stats), c(f(6, 4), d, d, *kept), c(x, None, None, *stats), c(image, d, d, *none)],
        "instance_norm": [c(x, d, d, *stats), c(x, None, None, *none), c(image, d, d, *kept)],
        "layer_norm": [c(x, [5], f(5), f(5)), c(x, [4, 5]), c(x, [5], f(5), None, 1e-3)],
        "rms_norm": [c(x, [5], f(5)), c(x, [4, 5]), c(x, [5], None, 1e-3)],
        "group_norm": [c(x, 2, d, d), c(x, 4), c(image, 2, d, None)],
    }


def _indexing() -> dict[str, list[Call]]:
    x = f(4, 5, 6)
    at = i(3, high=4)
    return {
        "embedding": [
            c(f(7, 4), i(2, 3, high=7)),
            c(f(7, 4), i(5, high=7), 0),
            c(f(7, 4), T((5,), torch.int32, "index", 7), -1, True),
        ],
        "one_hot": [c(i(5, high=4), 4), c(i(2, 3, high=4))],
        "index.Tensor": [
            c(x, [at]),
            c(x, [None, at]),
            c(x, [at, at, at]),
            c(x, [b(4)]),
            c(x, [b(4, 5)]),
            c(x, [i(2, 1, high=4), None, i(3, high=6)]),
        ],
        "index_select": [c(x, 0, at), c(x, 2, i(9, high=6)), c(f(4), 0, i(2, high=4))],
        "gather": [c(x, 2, i(4, 5, 2, high=6)), c(x, 0, i(2, 5, 6, high=4))],
        "take_along_dim": [c(x, i(4, 5, 2, high=6), 2), c(x, i(7, high=99)), c(x, i(1, 5, 1, high=4), 0)],
        "topk": [c(x, 3), c(x, 2, 0, False, False), c(f(40), 25)],
        "sort": [c(x), c(x, 0, True), c(f(60))],
        "select.int": [c(x, 1, 2), c(x, 0, -1)],
        "slice.Tensor": [c(x, 1, 1, 4, 2), c(x, 0, None, None), c(x, 2, -3, 9_223_372_036_854_775_807)],
        "narrow": [c(x, 1, 1, 3), c(x, 0, -2, 1)],
        "diagonal": [c(x), c(x, 1, 0, 2), c(x, -1)],
        "flip": [c(x, [0]), c(x, [0, 2])],
        "tril triu": [c(x), c(f(5, 5), 1), c(f(3, 4), -2)],
        "roll": [c(x, [2], [1]), c(x, [3]), c(x, [1, -1], [0, 2])],
        "masked_fill.Scalar masked_fill_.Scalar": [c(f(2, 3, 4), b(3, 4), -1.5), c(f(2, 3, 4), b(2, 3, 4), 0)],
        "masked_fill.Tensor masked_fill_.Tensor": [c(f(2, 3, 4), b(3, 4), f()), c(f(2, 3, 4), b(2, 3, 4), f())],
        "where.self": [c(b(3, 4), f(2, 3, 4), f(4)), c(b(4), f(4), f())],
        "where.ScalarOther": [c(b(3, 4), f(2, 3, 4), 1.5)],
        "where.ScalarSelf": [c(b(3, 4), 1.5, f(2, 3, 4))],
        "where.Scalar": [c(b(3, 4), 1.5, 2)],
    }


def _products() -> dict[str, list[Call]]:
    m, n, p = f(4, 5), f(5, 6), f(3, 4, 5)
    return {
        "linear": [c(f(2, 4), f(3, 4), f(3)), c(p, f(6, 5)), c(f(5), f(6, 5), f(6))],
        "bilinear": [c(f(2, 3), f(2, 4), f(5, 3, 4), f(5)), c(f(2, 6, 3), f(2, 6, 4), f(5, 3, 4))],
        "matmul": [c(m, n), c(p, n), c(f(5), n), c(m, f(5)), c(f(5), f(5)), c(f(2, 1, 4, 5), f(3, 5, 6))],
        "mm": [c(m, n), c(f(33, 17), f(17, 40))],
        "bmm": [c(p, f(3, 5, 6)), c(f(2, 17, 9), f(2, 9, 20))],
        "addmm": [c(f(6), m, n), c(f(4, 6), m, n, beta=0.5, alpha=2.0), c(f(4, 6), m, n, beta=0)],
        "baddbmm": [c(f(3, 4, 6), p, f(3, 5, 6)), c(f(1, 4, 6), p, f(3, 5, 6), beta=0, alpha=0.5)],
        "einsum": [
            c("ij,jk->ik", [m, n]),
            c("bij,bjk->bik", [p, f(3, 5, 6)]),
            c("ii->i", [f(4, 4)]),
            c("...ij->...ji", [p]),
            c("i,j->ij", [f(3), f(4)]),
        ],
        "addcmul addcdiv": [c(f(3, 4), f(3, 4), f(4)), c(f(4), f(3, 4), f(1), value=0.5)],
        "lerp.Scalar": [c(f(3, 4), f(4), 0.3)],
        "lerp.Tensor": [c(f(3, 4), f(4), f(3, 4)), c(f(3, 4), f(3, 4), f())],
        "_softmax _log_softmax": [c(f(3, 4, 5), 1, False), c(f(3, 70), -1, False)],
        "prelu": [c(f(2, 4, 5), f(4)), c(f(2, 4, 5), f(1))],
        "threshold threshold_": [c(f(3, 4), 0.1, 20.0)],
        "clamp clamp_": [c(f(3, 4), -0.5, 0.5), c(f(3, 4), None, 1), c(f(3, 4), 0.0)],
        "clamp.Tensor": [c(f(3, 4), f(4), f(3, 1)), c(f(3, 4), None, f())],
        "div.Tensor_mode": [
            *(c(f(3, 4), f(4), rounding_mode=mode) for mode in ("floor", "trunc", None)),
            c(i(40, high=9), _COUNTS, rounding_mode="floor"),
        ],
        "div.Scalar_mode": [
            *(c(f(3, 4), 0.7, rounding_mode=mode) for mode in ("floor", "trunc", None)),
            c(i(40, high=9), 3, rounding_mode="trunc"),
        ],
        "pow.Scalar": [c(2.0, f(3, 4))],
        "bernoulli": [c(f(3, 4, fill="unit"))],
        "bernoulli.p": [c(f(3, 4), 0.3)],
        "bernoulli_.float": [c(f(3, 4), 0.3), c(f(3, 4))],
        "norm.ScalarOpt_dim": [c(f(3, 4), 2, [1]), c(f(3, 4), None, [0], True), c(f(3, 4), 1, [0, 1])],
        "bitwise_not": [c(i(3, 4)), c(b(4))],
    }


def _shapes() -> dict[str, list[Call]]:
    x = f(2, 3, 4)
    return {
        "view reshape _unsafe_view": [c(x, [6, 4]), c(x, [-1]), c(x, [2, -1, 2])],
        "view_as reshape_as": [c(x, f(6, 4))],
        "flatten.using_ints": [c(x, 1), c(x, 0, 1), c(f())],
        "unflatten.int": [c(x, 2, [2, 2]), c(x, 0, [-1, 1])],
        "squeeze.dims": [c(f(2, 1, 1), [1, 2]), c(x, [0])],
        "transpose.int swapaxes": [c(x, 0, 2), c(x, -1, -2)],
        "permute": [c(x, [2, 0, 1]), c(x, [0, -1, 1])],
        "t numpy_T": [c(f(3, 4)), c(f(3))],
        "matrix_H": [c(f(3, 4))],
        "movedim.int": [c(x, 0, 2)],
        "movedim.intlist": [c(x, [0, 1], [2, 0])],
        "expand broadcast_to": [c(f(1, 4), [3, 4]), c(f(3, 1), [2, -1, 5])],
        "expand_as": [c(f(1, 4), f(3, 4))],
        "repeat tile": [c(x, [2, 1, 1]), c(x, [2, 2, 1, 3])],
        "repeat_interleave.self_int": [c(x, 2), c(x, 3, 1), c(x, 2, 0, output_size=4)],
        "cat concat": [c([x, f(2, 5, 4)], 1), c([x, x, x]), c([f(0), x], 0), c([x, f(2, 3, 1)], -1)],
        "stack": [c([x, x], 1), c([f(3)])],
        "chunk tensor_split.sections": [c(x, 2, 1), c(x, 3)],
        "split.Tensor": [c(x, 2, 1), c(x, 1)],
        "split.sizes split_with_sizes": [c(x, [1, 2], 1), c(x, [2])],
        "meshgrid.indexing": [c([f(3), f(4)], indexing="ij"), c([f(3), f(4), f(2)], indexing="xy")],
        "unfold": [c(f(2, 9), 1, 3, 2), c(x, 0, 2, 1)],
        "arange": [c(5), c(2.5, dtype=torch.float32)],
        "arange.start": [c(1, 6), c(-1.5, 2)],
        "arange.start_step": [c(0, 9, 2), c(5, 0, -1, dtype=torch.int64), c(0.0, 1.0, 0.25)],
        "linspace": [c(0.0, 1.0, 5), c(3, -3, 7, dtype=torch.float64)],
        "eye": [c(4)],
        "scalar_tensor": [c(1.5), c(2, dtype=torch.int64)],
        "full": [c([2, 3], 1.5), c([2], 7, **_CONTEXT), c([], True)],
        "new_zeros new_ones new_empty": [c(x, [2, 2]), c(x, [3], dtype=torch.int64)],
        "new_full": [c(x, [2, 2], 1.5)],
        "to.dtype": [c(x, torch.float64), c(x, torch.int32, False, True)],
        "to.device": [c(x, torch.device("cpu"), torch.float16)],
        "clone contiguous": [c(f(2, 3, 4, 4), memory_format=torch.channels_last)],
        _FACTORY: [c([2, 3], **_CONTEXT), c([4]), c([])],
        "linalg_vector_norm": [c(x, 2, [1]), c(x, 1, None, True), c(x, float("inf"), [0, 2])],
        "var.correction std.correction var_mean.correction": [c(x, [1], correction=0, keepdim=True)],
        "cosine_similarity": [c(f(3, 4), f(3, 4), 1, 1e-8)],
        "glu": [c(f(3, 6), 1), c(f(4, 3), 0)],
    }


def _sizes() -> dict[str, list[Call]]:
    """Arithmetic on sizes."""
    unary = ("_operator.neg", "_operator.not_")
    found = {name: [c(5)] if name in unary else [c(7, 3)] for name in FUNCTIONS if name.startswith("_operator.")}
    found |= {f"math.{name}": [c(2.5)] for name in ("ceil", "floor", "trunc")}
    found |= {f"torch.{name}": [c(4)] for name in ("sym_float", "sym_int")}
    found |= {f"torch.{name}": [c(4, 9)] for name in ("sym_max", "sym_min")}
    return found | {"torch.sym_not": [c(True)]}


@cache
def seeds() -> dict[str, list[Call]]:
    """Calls by the full name of each operator."""
    x = f(2, 3, 4)
    groups: list[dict[str, list[Call]]] = [
        {_LIKE: [c(x), c(f(33))]},
        {_PAIR: [c(x, x), c(x, f(4)), c(x, f())]},
        {_WHOLE: [c(i(40, high=9), _COUNTS)]},
        {_SCALAR: [c(x, 1.5), c(x, 2), c(i(40, high=9), 3)]},
        {_BITS: [c(i(3, 4), i(4)), c(b(3, 4), b(3, 4))], _BIT: [c(i(3, 4), 3)]},
        {"pow_.Scalar div_.Scalar": [c(x, 2), c(x, 1.5)], "fmod.Scalar": [c(x, 1.5), c(x, 2)]},
        {_ONE_DIM: [c(x, 1), c(x, -1)], _DIMS: [c(x, [1]), c(x, [-1, 0])]},
        {_DROPOUT: [c(x, 0.4, True), c(x, 0.4, False), c(f(2, 3, 4, 4), 0.5, True)]},
        {"scaled_dot_product_attention": _attention()},
        {"lstm.input": _recurrent(4), "gru.input": _recurrent(3), "rnn_tanh.input rnn_relu.input": _recurrent(1)},
        *(_convolutions(), _pools(), _images(), _norms(), _indexing(), _products(), _shapes()),
        *(part() for part in (*more_seeds.ALL, *complex_seeds.ALL)),
    ]
    found: dict[str, list[Call]] = {}
    for group in groups:
        for names, calls in group.items():
            for name in names.split():
                found.setdefault(full_name(name), []).extend(calls)
    return found | _sizes()
