"""Ordinary calls with complex numbers, and Fourier transforms."""

import torch

from tests.hostile.operators.values import Call, T, c, f, i, z

_LINES = "fft_fft fft_ifft fft_irfft fft_hfft"
_GRIDS = "fft_fftn fft_ifftn fft_irfftn"


def spectra() -> dict[str, list[Call]]:
    x, w = f(2, 5, 6), z(2, 5, 6)
    return {
        "view_as_complex": [c(f(2, 3, 2)), c(f(2))],
        "view_as_real real imag angle _conj conj_physical resolve_conj resolve_neg": [c(w), c(z())],
        "real angle": [c(x)],
        "complex polar": [c(x, f(2, 5, 6)), c(x, f(6))],
        _LINES: [c(w), c(w, 4, 1), c(w, 9, 0, "ortho")],
        "fft_fft fft_ifft": [c(x), c(x, 16, -1, "forward")],
        "fft_rfft fft_ihfft": [c(x), c(x, 4, 1), c(x, 9, 0, "ortho")],
        "fft_fft2 fft_ifft2 fft_irfft2": [c(w), c(w, [4, 8], [0, 2], "ortho")],
        "fft_rfft2": [c(x), c(x, [4, 8], [0, 2], "ortho")],
        _GRIDS: [c(w), c(w, None, [1]), c(w, [4, 3], None, "forward"), c(w, [4, 8], [0, 2])],
        "fft_rfftn": [c(x), c(x, None, [1]), c(x, [4, 3], None, "forward")],
        "fft_fftshift fft_ifftshift": [c(x), c(w, [1])],
        "fft_fftfreq": [c(8), c(5, 0.5)],
        "fft_rfftfreq": [c(8), c(5, 0.5)],
        "stft": [
            c(f(2, 40), 8, return_complex=True),
            c(f(40), 8, 3, 6, f(6), True, False, return_complex=True),
            c(f(2, 64), 64, 16, 64, f(64), return_complex=True),
        ],
    }


def products() -> dict[str, list[Call]]:
    """Of those that take real numbers, too."""
    w, m = z(2, 3, 4), z(4, 6)
    pair = "add.Tensor add_.Tensor sub.Tensor sub_.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor multiply.Tensor"
    one = "neg abs exp sgn sum mean clone contiguous detach detach_ alias lift_fresh_copy zeros_like ones_like zero_"
    return {
        pair: [c(w, w), c(w, z(4)), c(w, f(2, 3, 4))],
        one: [c(w)],
        "add.Scalar mul.Scalar div.Scalar fill_.Scalar": [c(w, 1.5)],
        "sum.dim_IntList mean.dim": [c(w, [1]), c(w, [-1, 0])],
        "cat": [c([w, w], 1)],
        "stack": [c([w, w], 1)],
        "view reshape": [c(w, [6, 4]), c(w, [-1])],
        "transpose.int swapaxes movedim.int": [c(w, 0, 2)],
        "permute": [c(w, [2, 0, 1])],
        "flatten.using_ints unsqueeze unbind.int": [c(w, 1)],
        "expand": [c(z(1, 4), [3, 4])],
        "select.int": [c(w, 1, 2)],
        "slice.Tensor": [c(w, 1, 1, 4, 2)],
        "index_select": [c(m, 0, i(3, high=4))],
        "index.Tensor": [c(m, [i(3, high=4)])],
        "repeat": [c(w, [2, 1, 1])],
        "chunk split.Tensor": [c(w, 2, 1)],
        "copy_": [c(w, w), c(w, f(4))],
        "einsum": [c("bixy,ioxy->boxy", [z(2, 3, 4, 2), z(3, 5, 4, 2)]), c("ij,jk->ik", [m, z(6, 3)])],
        "matmul": [c(w, z(4, 5)), c(m, z(6))],
        "mm": [c(m, z(6, 5)), c(z(33, 17), z(17, 40))],
        "bmm": [c(w, z(2, 4, 5))],
        "outer": [c(z(3), z(4)), c(z(3), f(4))],
        "roll": [c(w, [2], [1])],
        "flip": [c(w, [0, 2])],
        "constant_pad_nd": [c(w, [1, 2, 0, 1])],
        "to.dtype": [c(w, torch.complex128), c(f(3), torch.complex64)],
        "view_as reshape_as": [c(w, z(6, 4))],
        "isfinite": [c(w)],
        "new_zeros": [c(w, [2, 2])],
        "type_as to.other": [c(f(3), z(3)), c(w, T((), torch.complex128))],
    }


ALL = (spectra, products)
