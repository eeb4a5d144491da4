"""Calls of losses, cells, lookups, writes, images and draws, with changes that their contracts do not allow."""

import torch

from tests.unit.formats.contracts.calls import INF, NAN, Sample, b, f, i

_SHARES = f(4, 3).abs()
_CLASSES = {"self": f(4, 3), "target": i(4), "weight": f(3), "reduction": 1}
_BAD_CLASSES = (
    ({"target": i(5)}, "target"),
    ({"target": i(4, dtype=torch.int32)}, "int32"),
    ({"weight": f(4)}, "weight"),
    ({"weight": f(6)[::2]}, "contiguous"),
    ({"weight": f(3).double()}, "float64"),
    ({"self": f()}, "single"),
    ({"reduction": 3}, "reduction"),
)
_PAIR = {"self": f(4, 3), "target": f(4, 3)}
_BAD_PAIR = (({"target": f(4, 2)}, "fit"), ({"target": i(4, 3)}, "int64"), ({"reduction": -1}, "reduction"))


def _cell(name: str, gates: int) -> Sample:
    state = f(2, 5)

    def hx(one: torch.Tensor) -> object:
        return [one, one] if gates == 4 else one

    good = {
        "input": f(2, 4),
        "hx": hx(state),
        "w_ih": f(gates * 5, 4),
        "w_hh": f(gates * 5, 5),
        "b_ih": f(gates * 5),
        "b_hh": f(gates * 5),
    }
    return Sample(
        name,
        good,
        (
            ({"hx": hx(f(3, 5))}, "hx"),
            ({"hx": hx(f(2, 0))}, "input"),
            ({"w_ih": f(gates * 5, 3)}, "w_ih"),
            ({"w_hh": f(gates * 4, 5)}, "w_hh"),
            ({"b_hh": f(5 * gates - 1)}, "b_hh"),
            ({"b_hh": None}, "missing"),
            ({"w_hh": f(5, gates * 5).t()}, "contiguous"),
            ({"input": f(2, 4).double()}, "float32"),
        ),
    )


_BAG = {
    "weight": f(7, 4),
    "indices": i(10, below=7),
    "offsets": torch.tensor([0, 3, 3, 9]),
    "scale_grad_by_freq": False,
    "mode": 0,
    "sparse": False,
    "per_sample_weights": f(10),
    "include_last_offset": False,
    "padding_idx": 2,
}
_SCATTER = {"self": f(4, 5), "dim": 1, "index": i(3, 7), "src": f(3, 8)}
_GRID = {
    "input": f(2, 3, 4, 4),
    "grid": f(2, 5, 6, 2),
    "interpolation_mode": 0,
    "padding_mode": 0,
    "align_corners": True,
}

MORE = (
    Sample("cross_entropy_loss", _CLASSES, (*_BAD_CLASSES, ({"label_smoothing": 1.5}, "label_smoothing"))),
    Sample("cross_entropy_loss", {**_CLASSES, "target": _SHARES}, (({"target": f(4, 2)}, "[4, 2]"),)),
    Sample("nll_loss_nd", _CLASSES, (*_BAD_CLASSES, ({"target": _SHARES}, "target"))),
    Sample("nll_loss_nd", {"self": f(2, 3, 4), "target": i(2, 4)}, (({"target": i(2, 3)}, "target"),)),
    Sample("mse_loss", _PAIR, _BAD_PAIR),
    Sample("huber_loss", _PAIR, (*_BAD_PAIR, ({"delta": 0.0}, "delta"), ({"delta": NAN}, "delta"))),
    Sample("smooth_l1_loss", _PAIR, (*_BAD_PAIR, ({"beta": -1.0}, "beta"))),
    Sample("kl_div", _PAIR, _BAD_PAIR),
    Sample(
        "binary_cross_entropy",
        {"self": _SHARES, "target": _SHARES},
        (({"target": f(3).abs()}, "shape"), ({"weight": f(5)}, "fit")),
    ),
    Sample("binary_cross_entropy_with_logits", _PAIR, (({"target": f(3)}, "shape"), ({"pos_weight": f(5)}, "fit"))),
    Sample(
        "multi_margin_loss",
        {"self": f(4, 3), "target": i(4), "weight": f(3)},
        (
            ({"target": i(3)}, "target"),
            ({"weight": f(2)}, "weight"),
            ({"p": 3}, "'p'"),
            ({"target": i(4, dtype=torch.int32)}, "int32"),
            ({"self": f(3, 4).t()}, "self"),
        ),
    ),
    Sample(
        "multilabel_margin_loss",
        {"self": f(4, 3), "target": i(4, 3)},
        (({"target": i(4, 2)}, "target"), ({"self": f(0, 3), "target": i(0, 3)}, "self")),
    ),
    Sample(
        "cosine_embedding_loss",
        {"input1": f(4, 3), "input2": f(4, 3), "target": f(4)},
        (({"target": f(3)}, "shapes"), ({"input2": f(1, 3)}, "shapes")),
    ),
    Sample(
        "triplet_margin_loss",
        {"anchor": f(4, 3), "positive": f(4, 3), "negative": f(4, 3)},
        (({"negative": f(4, 2)}, "fit"), ({"negative": f(3)}, "shapes"), ({"p": NAN}, "'p'")),
    ),
    Sample(
        "cdist",
        {"x1": f(4, 3), "x2": f(5, 3)},
        (({"x2": f(5, 2)}, "shapes"), ({"p": -1.0}, "'p'"), ({"compute_mode": 5}, "compute_mode")),
    ),
    _cell("lstm_cell", 4),
    _cell("gru_cell", 3),
    _cell("rnn_tanh_cell", 1),
    Sample(
        "_weight_norm",
        {"v": f(4, 5), "g": f(4, 1), "dim": 0},
        (
            ({"g": f(1, 1)}, "'g'"),
            ({"g": f(4)}, "'g'"),
            ({"dim": 1}, "'g'"),
            ({"dim": 2}, "dim"),
            ({"dim": -2}, "dim"),
            ({"g": f(4, 1).double()}, "float64"),
        ),
    ),
    Sample(
        "embedding_bag.padding_idx",
        _BAG,
        (
            ({"offsets": torch.tensor([0, 5, 2])}, "rise"),
            ({"offsets": torch.tensor([1, 5])}, "rise"),
            ({"offsets": torch.tensor([0, 11])}, "rise"),
            ({"offsets": torch.tensor([0, -4])}, "rise"),
            ({"offsets": i(0)}, "0 offsets"),
            ({"include_last_offset": True}, "last"),
            ({"offsets": torch.tensor([0], dtype=torch.int32)}, "int32"),
            ({"per_sample_weights": f(9)}, "per_sample_weights"),
            ({"mode": 1}, "mode"),
            ({"mode": 3, "per_sample_weights": None}, "mode"),
            ({"padding_idx": 7}, "padding_idx"),
            ({"sparse": True}, "sparse"),
            ({"indices": i(2, 5)}, "indices"),
        ),
    ),
    Sample(
        "scatter.src",
        _SCATTER,
        (
            ({"index": i(5, 7)}, "shapes"),
            ({"src": f(3, 6)}, "src"),
            ({"src": f(3, 8).double()}, "float64"),
            ({"index": i(3, 7, dtype=torch.int32)}, "int32"),
            ({"dim": 2}, "dimension"),
            ({"src": f(24)}, "src"),
        ),
    ),
    Sample("scatter_reduce.two", {**_SCATTER, "reduce": "amax"}, (({"reduce": "max"}, "reduce"),)),
    Sample(
        "scatter_.value", {"self": f(4, 5), "dim": 1, "index": i(3, 7), "value": 1.5}, (({"index": i(5, 7)}, "shapes"),)
    ),
    Sample(
        "index_add",
        {"self": f(4, 5), "dim": 0, "index": i(6), "source": f(6, 5)},
        (({"source": f(5, 5)}, "source"), ({"source": f(6, 5).half()}, "float16"), ({"index": i(6, 1)}, "index")),
    ),
    Sample(
        "index_fill.int_Scalar",
        {"self": f(4, 5), "dim": 0, "index": i(6), "value": 1.5},
        (({"index": f(6)}, "float32"), ({"index": i(6, 1)}, "index"), ({"dim": 2}, "dimension")),
    ),
    Sample(
        "index_put",
        {"self": f(4, 5, 6), "indices": [None, i(3), i(2, 1)], "values": f(4, 2, 3)},
        (
            ({"values": f(5, 2, 3)}, "fit"),
            ({"values": f(2, 4, 2, 3)}, "values"),
            ({"values": i(4, 2, 3)}, "int64"),
            ({"indices": [None, b(4)]}, "mask"),
            ({"indices": [i(2)] * 4}, "more"),
        ),
    ),
    Sample(
        "index_put",
        {"self": f(4, 5, 6), "indices": [i(2), None, i(2)], "values": f(2, 5)},
        (({"values": f(5, 2)}, "fit"),),
    ),
    Sample(
        "index_put_", {"self": f(4, 5), "indices": [b(4)], "values": f()}, (({"self": f(1, 5).expand(4, 5)}, "same"),)
    ),
    Sample("masked_scatter", {"self": f(4), "mask": b(4), "source": f(4)}, (({"mask": i(4)}, "int64"),)),
    Sample(
        "select_scatter",
        {"self": f(4, 5), "src": f(4), "dim": 1, "index": 2},
        (({"src": f(5)}, "src"), ({"index": 5}, "5")),
    ),
    Sample(
        "slice_scatter",
        {"self": f(4, 5), "src": f(4, 2), "dim": 1, "start": 1, "end": 9, "step": 2},
        (({"src": f(4, 3)}, "src"), ({"step": 0}, "step")),
    ),
    Sample(
        "histc",
        {"self": f(9), "bins": 5, "min": 0, "max": 1},
        (
            ({"bins": 0}, "bins"),
            ({"bins": 2**30}, "bins"),
            ({"max": INF}, "inf"),
            ({"min": 2}, "from 2"),
            ({"self": i(9)}, "int64"),
        ),
    ),
    Sample(
        "searchsorted.Tensor",
        {"sorted_sequence": f(4, 6), "self": f(4, 3)},
        (({"self": f(3, 3)}, "shapes"), ({"sorter": i(4, 6)}, "sorter"), ({"side": "middle"}, "side")),
    ),
    Sample(
        "grid_sampler",
        _GRID,
        (
            ({"grid": f(1, 5, 6, 2)}, "grid"),
            ({"grid": f(2, 5, 6, 3)}, "grid"),
            ({"grid": f(2, 0, 6, 2)}, "grid"),
            ({"input": f(2, 3, 0, 4)}, "input"),
            ({"interpolation_mode": 3}, "interpolation"),
            ({"padding_mode": 3}, "padding"),
            ({"padding_mode": 2, "grid": f(2, 5, 6, 2) * NAN}, "nan"),
            ({"grid": f(2, 5, 6, 2).double()}, "float64"),
        ),
    ),
    Sample(
        "affine_grid_generator",
        {"theta": f(2, 2, 3), "size": [2, 3, 4, 5], "align_corners": True},
        (({"size": [3, 3, 4, 5]}, "theta"), ({"size": [2, 3, 4]}, "size"), ({"size": [2, 3, 0, 5]}, "size")),
    ),
    Sample(
        "max_unpool2d",
        {"self": f(2, 3, 2, 2), "indices": i(2, 3, 2, 2), "output_size": [4, 4]},
        (({"indices": i(2, 3, 2)}, "indices"), ({"output_size": [0, 4]}, "output_size")),
    ),
    Sample(
        "uniform_",
        {"self": f(4), "from": 0.0, "to": 1.0},
        (
            ({"from": 2.0}, "from 2"),
            ({"to": INF}, "inf"),
            ({"self": i(4)}, "floating"),
            ({"self": f(1).expand(4)}, "same"),
        ),
    ),
    Sample("normal_", {"self": f(4)}, (({"std": -1.0}, "std"), ({"mean": NAN}, "mean"))),
    Sample("randint.low", {"low": 0, "high": 3, "size": [4]}, (({"low": 3}, "from 3"), ({"size": [-1]}, "result"))),
    Sample(
        "multinomial",
        {"self": f(2, 4).abs(), "num_samples": 3},
        (({"num_samples": 5}, "num_samples"), ({"num_samples": 0}, "num_samples"), ({"self": i(2, 4)}, "int64")),
    ),
    Sample(
        "diff",
        {"self": f(2, 5), "n": 1, "dim": 1},
        (
            ({"n": 99}, "'n'"),
            ({"prepend": f(3, 1)}, "shapes"),
            ({"prepend": f(2)}, "prepend"),
            ({"dim": 2}, "dimension"),
        ),
    ),
    Sample("max.other", {"self": f(2, 3), "other": f(3)}, (({"other": f(2)}, "fit"),)),
    Sample(
        "fill_.Tensor",
        {"self": i(2, 3), "value": f()},
        (({"value": f(3)}, "value"), ({"self": i(1).expand(3)}, "same")),
    ),
    Sample("fmod.Tensor", {"self": f(3), "other": f(3)}, (({"self": i(3), "other": i(3)}, "whole"),)),
    Sample("kthvalue", {"self": f(3, 4), "k": 4, "dim": 1}, (({"k": 0}, "'k'"), ({"k": 5}, "'k'"))),
    Sample(
        "tensordot",
        {"self": f(2, 3, 4), "other": f(4, 3), "dims_self": [1, 2], "dims_other": [1, 0]},
        (({"dims_other": [0, 1]}, "shapes"), ({"dims_self": [1, 1]}, "twice"), ({"dims_self": [1]}, "sums")),
    ),
    Sample("outer", {"self": f(3), "vec2": f(4)}, (({"vec2": f(4, 1)}, "vec2"),)),
    Sample("dot", {"self": f(3), "tensor": f(3)}, (({"tensor": f(4)}, "shapes"),)),
    Sample("cross", {"self": f(4, 3), "other": f(4, 3), "dim": 1}, (({"dim": 0}, "dim"), ({"dim": None}, "dim"))),
    Sample(
        "diag_embed", {"self": f(2, 3)}, (({"dim2": -2}, "dimensions"), ({"offset": 2**30, "self": f(2**11)}, "result"))
    ),
    Sample(
        "block_diag",
        {"tensors": [f(2, 3), f(4)]},
        (({"tensors": []}, "0 tensors"), ({"tensors": [f(1, 2, 3)]}, "tensors")),
    ),
    Sample(
        "tensor_split.indices",
        {"self": f(6), "indices": [2, 4]},
        (({"indices": [4, 2]}, "indices"), ({"indices": [9]}, "9")),
    ),
    Sample(
        "channel_shuffle", {"self": f(2, 6, 4), "groups": 3}, (({"groups": 4}, "groups"), ({"groups": 0}, "groups"))
    ),
    Sample(
        "linalg_inv",
        {"A": f(2, 3, 3)},
        (({"A": f(3, 4)}, "'A'"), ({"A": f(0, 0)}, "'A'"), ({"A": f(3, 3).half()}, "16")),
    ),
    Sample(
        "linalg_solve",
        {"A": torch.eye(3), "B": f(3, 2)},
        (({"B": f(2, 3)}, "shapes"), ({"B": f(3)}, "'B'"), ({"B": f(3, 2).double()}, "float64")),
    ),
    Sample(
        "linalg_householder_product",
        {"input": f(5, 3), "tau": f(3)},
        (({"tau": f(4)}, "tau"), ({"input": f(3, 5)}, "tau"), ({"tau": f(2, 3)}, "tau")),
    ),
    Sample(
        "fft_irfft",
        {"self": f(3, 5), "n": 8, "dim": 1},
        (({"n": 0}, "transforms"), ({"dim": 2}, "dimension"), ({"self": f(0, 3)}, "self"), ({"norm": "half"}, "norm")),
    ),
    Sample(
        "fft_rfft2",
        {"self": f(3, 5)},
        (({"s": [1]}, "'s'"), ({"dim": [0, 0]}, "dim"), ({"self": f(3, 5) * 1j}, "complex")),
    ),
    Sample("view_as_complex", {"self": f(3, 2)}, (({"self": f(2, 3)}, "shape"), ({"self": f(2, 3).t()}, "strides"))),
    Sample("mul.Tensor", {"self": f(3) * 1j, "other": f(3)}, (({"self": torch.conj(f(3) * 1j)}, "complex64"),)),
    Sample(
        "div.out",
        {"self": f(3), "other": f(3) + 2, "out": f(3)},
        (
            ({"out": f(4)}, "out"),
            ({"out": f(0)}, "out"),
            ({"out": f(1).expand(3)}, "same"),
            ({"out": f(3).double()}, "64"),
        ),
    ),
    Sample("relu", {"self": f(3)}, (({"self": f(3) * 1j}, "complex64"),)),
    Sample(
        "stft",
        {"self": f(2, 40), "n_fft": 8, "window": f(8), "return_complex": True},
        (
            ({"n_fft": 41}, "windows"),
            ({"window": f(7)}, "window"),
            ({"hop_length": 0}, "step"),
            ({"return_complex": False}, "off"),
        ),
    ),
)
