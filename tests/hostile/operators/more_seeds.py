"""Ordinary calls of further operators: losses, cells, images, writes to places, statistics, and what networks draw."""

import torch

from tests.hostile.operators.values import Call, T, b, c, f, i

_SHARES = T((4, 3), fill="unit")


def losses() -> dict[str, list[Call]]:
    x, y = f(4, 3), f(4, 3)
    classes, deep = i(4), (f(2, 3, 4, 4), i(2, 4, 4))
    return {
        "cross_entropy_loss": [
            c(x, classes),
            c(x, classes, f(3), 2, 0, 0.1),
            c(x, _SHARES),
            c(*deep),
            c(f(3), i()),
            c(x, _SHARES, f(3), 0, -100, 0.2),
            c(f(40, 3), i(40), None, 0),
        ],
        "nll_loss_nd": [c(x, classes), c(x, classes, f(3), 0, 1), c(*deep, f(3)), c(f(3), i()), c(f(2, 3, 5), i(2, 5))],
        "mse_loss l1_loss smooth_l1_loss huber_loss hinge_embedding_loss soft_margin_loss": [
            c(x, y),
            c(x, y, reduction=0),
            c(f(4, 3), f(3), reduction=2),
            c(f(33, 17), f(33, 17)),
        ],
        "kl_div": [c(x, _SHARES), c(x, y, 0, log_target=True), c(x, _SHARES, 2)],
        "binary_cross_entropy": [c(_SHARES, _SHARES), c(_SHARES, _SHARES, f(4, 3), 0), c(_SHARES, _SHARES, f(3), 2)],
        "binary_cross_entropy_with_logits": [c(x, _SHARES), c(x, _SHARES, f(4, 1), f(3), 0), c(x, y, None, f(3), 2)],
        "poisson_nll_loss": [c(x, _SHARES, True, True, 1e-8, 1), c(_SHARES, _SHARES, False, False, 1e-8, 0)],
        "multi_margin_loss": [c(x, classes), c(x, classes, 2, 0.5, f(3), 0), c(f(3), i(1))],
        "multilabel_margin_loss": [c(x, i(4, 3)), c(f(3), i(3), 0), c(x, T((4, 3), torch.int64, "negative", 1), 2)],
        "margin_ranking_loss": [c(x, y, f(4, 3)), c(f(4), f(4), f(4), 0.5, 0)],
        "cosine_embedding_loss": [c(x, y, f(4)), c(f(3), f(3), f(), 0.2, 0)],
        "triplet_margin_loss": [c(x, y, f(4, 3)), c(x, y, f(4, 3), 1.0, 1.0, 1e-6, True, 0)],
        "pairwise_distance": [c(x, y), c(x, f(3), 1.0, 1e-6, True)],
        "cdist": [c(f(2, 4, 3), f(2, 5, 3)), c(x, f(6, 3), 1.0), c(f(30, 3), f(31, 3)), c(x, x, 0.5), c(x, x, 2.0, 2)],
        "dist": [c(x, y), c(x, f(3), 1)],
    }


def cells() -> dict[str, list[Call]]:
    """Batch of 2, width 3, hidden size 5."""
    x, h = f(2, 3), f(2, 5)

    def weights(gates: int) -> list[T]:
        return [f(5 * gates, 3), f(5 * gates, 5), f(5 * gates), f(5 * gates)]

    return {
        "lstm_cell": [c(x, [h, h], *weights(4)), c(x, [h, h], *weights(4)[:2])],
        "gru_cell": [c(x, h, *weights(3)), c(x, h, *weights(3)[:2])],
        "rnn_tanh_cell rnn_relu_cell": [c(x, h, *weights(1)), c(x, h, *weights(1)[:2])],
        "_weight_norm": [c(f(4, 5), f(4, 1)), c(f(4, 5), f(1, 5), 1), c(f(4, 3, 2), f(), -1), c(f(5), f(5))],
    }


def bags() -> dict[str, list[Call]]:
    table, at = f(7, 4), i(10, high=7)
    offsets, rising = T((4,), torch.int64, "zero"), T((4,), torch.int64, "rising", 10)
    single = c(table, at, T((1,), torch.int64, "zero"), False, 0, False, None, False, None)
    return {
        "embedding_bag.padding_idx": [
            single,
            c(table, at, offsets, False, 0, False, f(10), False, -1),
            c(table, at, offsets, True, 1, False, None, False, None),
            c(table, at, rising, False, 2, False, None, True, 2),
            c(f(7, 40), i(10, high=7), rising, False, 1, False, None, True, 0),
        ],
        "embedding_renorm_": [c(table, at, 1.0, 2.0), c(f(7, 4), i(2, 3, high=7), 0.5, 1.0)],
    }


def images() -> dict[str, list[Call]]:
    x, volume = f(2, 3, 6, 6), f(2, 3, 4, 4, 4)
    grid = f(2, 5, 4, 2)
    pooled, places = f(2, 3, 3, 3), i(2, 3, 3, 3, high=36)
    return {
        "grid_sampler": [
            *(c(x, grid, mode, padding, False) for mode in range(3) for padding in range(3)),
            c(x, T((2, 5, 4, 2), fill="large"), 0, 0, True),
            c(volume, f(2, 3, 2, 5, 3), 0, 0, True),
            c(volume, f(2, 3, 2, 5, 3), 1, 2, False),
            c(f(2, 3, 17, 16), f(2, 16, 16, 2), 0, 0, False),
        ],
        "affine_grid_generator": [c(f(2, 2, 3), [2, 3, 6, 5], False), c(f(2, 3, 4), [2, 3, 4, 5, 6], True)],
        "_upsample_nearest_exact1d.vec": [c(f(2, 3, 6), None, [2.0]), c(f(2, 3, 6), [9], None)],
        "_upsample_nearest_exact2d.vec": [c(x, None, [2.0, 2.0]), c(x, [9, 4], None)],
        "_upsample_nearest_exact3d.vec": [c(volume, None, [2.0] * 3), c(volume, [5, 4, 3], None)],
        "_upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec": [
            c(x, [4, 4], False, None),
            c(x, None, True, [2.0, 0.5]),
        ],
        "adaptive_max_pool3d": [c(volume, [2, 2, 2]), c(volume, [3, 1, 4])],
        "max_pool1d_with_indices": [c(f(2, 3, 6), [2]), c(f(3, 6), [3], [2], [1], [1], True)],
        "max_pool3d_with_indices": [c(volume, [2] * 3), c(volume, [3] * 3, [2] * 3, [1] * 3)],
        "max_unpool2d": [c(pooled, places, [6, 6]), c(f(3, 3, 3), i(3, 3, 3, high=36), [6, 6])],
        "max_unpool3d": [c(f(2, 3, 2, 2, 2), i(2, 3, 2, 2, 2, high=64), [4] * 3, [2] * 3, [0] * 3)],
        "channel_shuffle": [c(f(2, 6, 4), 3), c(f(2, 4, 3, 3), 2)],
    }


def draws() -> dict[str, list[Call]]:
    x = f(2, 3, 4)
    return {
        "uniform_": [c(x), c(x, -1.0, 2.0), c(f(40))],
        "normal_": [c(x), c(x, 1.0, 0.5), c(f(40), 0.0, 0.0)],
        "exponential_": [c(x), c(f(40), 2.0)],
        "normal.Tensor_float": [c(x), c(f(40), 0.5)],
        "normal.float_Tensor": [c(0.5, _SHARES)],
        "normal.Tensor_Tensor": [c(f(4, 3), _SHARES), c(f(3), _SHARES)],
        "randint": [c(9, [2, 3]), c(2**31 - 1, [40])],
        "randint.low": [c(-3, 9, [2, 3])],
        "randint_like": [c(x, 9), c(i(4), 3)],
        "randint_like.low_dtype": [c(x, -2, 9)],
        "randperm": [c(7), c(100)],
        "multinomial": [c(_SHARES, 2), c(_SHARES, 5, True), c(T((6,), fill="unit"), 6), c(_SHARES, 1)],
    }


def writes() -> dict[str, list[Call]]:
    x, at, row = f(4, 5, 6), i(4, 5, 2, high=6), i(3, high=4)
    few = i(2, 1, high=4)
    return {
        "scatter.value scatter_.value": [c(x, 2, at, 1.5), c(x, 0, i(2, 5, 6, high=4), 0)],
        "scatter.src scatter_.src scatter_add scatter_add_": [
            c(x, 2, at, f(4, 5, 2)),
            c(x, 0, i(2, 5, 6, high=4), f(4, 5, 6)),
            c(f(9), 0, i(30, high=9), f(30)),
        ],
        "scatter_reduce.two scatter_reduce_.two": [
            *(c(x, 2, at, f(4, 5, 2), how) for how in ("sum", "prod", "mean", "amax", "amin")),
            c(x, 2, at, f(4, 5, 2), "mean", include_self=False),
        ],
        "index_add index_add_ index_copy index_copy_": [c(x, 0, row, f(3, 5, 6)), c(x, 2, i(9, high=6), f(4, 5, 9))],
        "index_fill.int_Scalar index_fill_.int_Scalar": [c(x, 0, row, 1.5), c(x, 2, i(9, high=6), 0)],
        "index_fill.int_Tensor index_fill_.int_Tensor": [c(x, 0, row, f())],
        "index_put index_put_": [
            c(x, [row], f(3, 5, 6)),
            c(x, [None, row], f(6)),
            c(x, [row, row, row], f(3), True),
            c(x, [b(4)], f()),
            c(x, [few, None, i(3, high=6)], f(2, 3, 5)),
            c(x, [b(4, 5), None], f(6)),
            c(x, [None, row, row], f(4, 3)),
            c(x, [row], f(), True),
        ],
        "masked_scatter masked_scatter_": [c(x, b(5, 6), f(4, 5, 6)), c(f(7), b(7), f(7))],
        "select_scatter": [c(x, f(4, 6), 1, 2), c(x, f(5, 6), 0, -1)],
        "slice_scatter": [c(x, f(4, 2, 6), 1, 1, 4, 2), c(x, f(4, 5, 6), 0)],
        "take": [c(x, i(3, 2, high=120))],
        "bucketize.Tensor": [c(x, f(6)), c(f(40), f(3), right=True, out_int32=True)],
        "searchsorted.Tensor": [c(f(6), x), c(f(4, 6), f(4, 9), right=True), c(f(4, 6), f(4, 2), side="left")],
        "isin.Tensor_Tensor": [c(i(4, 5), i(3)), c(i(4), i(30), invert=True)],
        "histc": [c(f(40), 5, -1, 1), c(x, 10), c(f(3000), 7, 0, 2)],
        "masked_select": [c(x, b(4, 5, 6)), c(x, b(6))],
        "nonzero nonzero_numpy": [c(b(4, 5)), c(f(3))],
    }


def statistics() -> dict[str, list[Call]]:
    x = f(2, 3, 4)
    return {
        "std_mean var_mean median nanmedian": [c(x), c(f(40))],
        "std_mean.correction": [c(x, [1], correction=0, keepdim=True), c(x)],
        "std_mean.dim var_mean.dim nansum nanmean": [c(x, [1]), c(x, [-1, 0])],
        "cummax cummin logcumsumexp mode median.dim nanmedian.dim argsort cumsum_ cumprod_": [c(x, 1), c(x, -1)],
        "special_softmax special_log_softmax": [c(x, 1)],
        "special_logsumexp": [c(x, [1])],
        "count_nonzero": [c(x), c(x, 1)],
        "count_nonzero.dim_IntList": [c(x, [0, 1])],
        "argsort.stable": [c(x, stable=True, dim=1, descending=True), c(f(60), stable=True)],
        "sort.stable": [c(x, stable=True, dim=1, descending=True), c(f(60), stable=True)],
        "aminmax": [c(x), c(x, dim=1, keepdim=True)],
        "kthvalue": [c(x, 2), c(x, 1, 0, True), c(f(40), 17)],
        "linalg_norm": [c(x), c(x, 2, [1]), c(x, 1, [-1], True)],
        "linalg_matrix_norm.str_ord": [c(x), c(f(3, 4), "fro", [1, 0], True)],
        "renorm": [c(x, 2, 0, 1.0), c(f(5, 7), 1, 1, 0.5)],
        "diff": [c(x), c(x, 2, 1), c(x, 1, 2, f(2, 3, 1), f(2, 3, 2))],
        "trace": [c(f(3, 4)), c(f(5, 5))],
        "msort": [c(x), c(f(30))],
        "clamp_min.Tensor clamp_max.Tensor": [c(x, f(4)), c(x, f())],
        "clip clip_": [c(x, -0.5, 0.5), c(x, None, 1)],
        "clip.Tensor": [c(x, f(4), f(3, 1)), c(x, None, f())],
        "heaviside": [c(x, f(4)), c(x, f())],
        "broadcast_tensors": [c([x, f(4), f(3, 1)]), c([f()])],
        "fill.Tensor fill_.Tensor": [c(x, f()), c(i(4), i())],
        "__lshift__.Scalar __rshift__.Scalar": [c(i(40, high=9), 2)],
        "lerp_.Scalar": [c(x, f(4), 0.3)],
        "lerp_.Tensor": [c(x, f(4), f(2, 3, 4)), c(x, f(4), f())],
        "addcmul_ addcdiv_": [c(x, f(3, 4), f(4)), c(f(4), f(4), f(1), value=0.5)],
        "round.decimals": [c(x, decimals=2), c(x, decimals=-1)],
    }


def shapes() -> dict[str, list[Call]]:
    x, m = f(2, 3, 4), f(4, 6)
    return {
        "ravel atleast_1d atleast_2d atleast_3d mT fliplr flipud": [c(x), c(m)],
        "swapdims": [c(x, 0, 2)],
        "moveaxis.int": [c(x, 0, 2)],
        "moveaxis.intlist": [c(x, [0, 1], [2, 0])],
        "hstack vstack dstack column_stack": [c([m, m]), c([f(3), f(3)])],
        "block_diag": [c([m, f(2, 2), f(3), f()])],
        "diag": [c(f(4)), c(m, 1), c(f(3), -2)],
        "diag_embed": [c(x), c(f(3), 1), c(x, -1, 0, 2)],
        "tril_indices triu_indices": [c(4, 5), c(3, 3, 1)],
        "tensor_split.indices": [c(x, [1, 2], 2), c(m, [2])],
        "hsplit.int": [c(m, 3), c(f(4), 2)],
        "vsplit.int": [c(m, 2)],
        "unsafe_chunk": [c(x, 2, 1)],
        "unsafe_split.Tensor": [c(x, 2, 1)],
        "rot90": [c(m), c(x, 2, [0, 2])],
        "cartesian_prod": [c([f(3), f(4)]), c([f(3)])],
        "meshgrid": [c([f(3), f(4)])],
        "logspace": [c(0.0, 1.0, 5), c(3, -3, 7, 2.0)],
        "eye.m": [c(4, 5)],
        "hann_window hamming_window": [c(8), c(1), c(0)],
        "hann_window.periodic hamming_window.periodic": [c(8, False), c(40, True)],
        "mv": [c(m, f(6)), c(f(40, 33), f(33))],
        "addmv": [c(f(4), m, f(6)), c(f(1), m, f(6), beta=0.5, alpha=2.0)],
        "dot vdot": [c(f(6), f(6)), c(f(100), f(100))],
        "outer": [c(f(3), f(4))],
        "inner": [c(f(2, 4), f(3, 4)), c(f(4), f(4)), c(f(), f(3))],
        "tensordot": [c(x, f(4, 3, 5), [1, 2], [1, 0]), c(m, f(3, 6), [1], [1]), c(f(3), f(2), [], [])],
        "kron": [c(f(2, 3), f(3, 2)), c(f(3), f(2))],
        "cross": [c(f(4, 3), f(4, 3), 1), c(f(3, 2), f(3, 1), 0)],
        "linalg_cross": [c(f(4, 3), f(1, 3)), c(f(3, 2), f(3, 2), dim=0)],
    }


def matrices() -> dict[str, list[Call]]:
    square, several = f(4, 4), f(2, 3, 3)
    return {
        "linalg_det linalg_slogdet linalg_inv det slogdet logdet inverse matrix_exp linalg_matrix_exp": [
            c(square),
            c(several),
            c(f(17, 17)),
            c(f(1, 1)),
        ],
        "linalg_cholesky cholesky": [c(f(1, 1, fill="positive")), c(T((2, 1, 1), fill="unit"))],
        "linalg_matrix_power matrix_power": [c(square, 3), c(several, -2), c(square, 0)],
        "linalg_solve": [c(square, f(4, 3)), c(several, f(3, 2)), c(square, f(5, 4), left=False)],
        "linalg_solve_triangular": [c(square, f(4, 3), upper=True), c(several, f(3, 2), upper=False)],
        "linalg_qr": [c(f(5, 3)), c(f(2, 3, 5)), c(f(5, 3), "complete")],
        "linalg_householder_product": [c(f(5, 3), f(3)), c(f(2, 4, 4), f(2, 3))],
        "div.out": [c(f(2, 3), f(3), out=f(2, 3)), c(f(40), f(), out=f(40))],
        "adjoint mH": [c(square), c(several)],
        "quantile.scalar nanquantile.scalar": [c(square, 0.5), c(several, 0.3, 1, True, interpolation="lower")],
        "trapezoid.dx cumulative_trapezoid.dx": [c(square), c(several, dx=0.5, dim=1)],
    }


ALL = (matrices, losses, cells, bags, images, draws, writes, statistics, shapes)
