"""Complex numbers and Fourier transforms."""

import math
from collections.abc import Sequence
from typing import Any

import torch

from unifiednn_core.formats.contracts.contract import Contract, Rule, each, full_name, note, require, rule
from unifiednn_core.formats.contracts.predicates import (
    broadcast,
    check_count,
    check_dim,
    check_same_type,
    check_vector,
    dims,
    shape_of,
    tensor,
    word,
)

_LONG = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def _check_signal(value: Any, sizes: Sequence[int | None], places: Sequence[int]) -> None:
    given = tensor("self", value)
    require(given.dtype in _LONG, f"'self' is {given.dtype}, not float32, float64 or complex")
    require(given.dim() > 0 and given.numel() > 0, f"'self' has the shape {list(given.shape)}")
    wanted = list(given.shape)
    for size, place in zip(sizes, places, strict=True):
        at = check_dim(place, given.dim())
        wanted[at] = wanted[at] if size in (None, -1) else size
        require(size in (None, -1) or (size or 0) >= 1, f"it transforms {size} entries")
    require(len({check_dim(place, given.dim()) for place in places}) == len(places), f"'dim' is {list(places)}")
    check_count(2, *wanted)  # from half a spectrum come nearly twice as many entries


@rule("self is float32, float64 or complex, not empty, with the dimension dim; n, if given, is above 0")
def _line(self: Any, n: int | None, dim: int) -> None:
    _check_signal(self, [n], [dim])


@rule(
    "self is float32, float64 or complex, not empty; dim names dimensions of it, none twice, all where it is not "
    "given; s, if given, has a size above 0 (or -1) for each of them"
)
def _grid(self: Any, s: Sequence[int] | None, dim: Sequence[int] | None) -> None:
    rank = len(shape_of(self))
    count = rank if s is None else len(s)
    places = list(range(rank - count, rank)) if dim is None else list(dim)
    require(len(places) > 0 and (s is None or len(s) == len(places)), f"'s' is {s}, 'dim' is {dim}")
    _check_signal(self, [None] * len(places) if s is None else list(s), places)


@rule("self is real")
def _real(self: Any) -> None:
    require(not tensor("self", self).is_complex(), f"'self' is {self.dtype}")


@rule("self is complex")
def _complex(self: Any) -> None:
    require(tensor("self", self).is_complex(), f"'self' is {self.dtype}")


@rule("self is float32 or float64; its last dimension has 2 entries side by side, and the others have even strides")
def _two(self: Any) -> None:
    given = tensor("self", self)
    require(given.dtype in _LONG[:2], f"'self' is {given.dtype}")
    require(given.dim() > 0 and given.shape[-1] == 2, f"'self' has the shape {list(given.shape)}")
    even = given.stride(-1) == 1 and not any(step % 2 for step in (*given.stride()[:-1], given.storage_offset()))
    require(even, f"'self' has the strides {list(given.stride())}")


def _parts(first: str, second: str) -> Rule:
    def check(arguments: Any) -> None:
        one = tensor(first, arguments[first])
        require(one.dtype in _LONG[:2], f"'{first}' is {one.dtype}")
        check_same_type(first, one, second, arguments[second])

    return Rule(f"{first} and {second} are float32 or float64, of one type", check)


@rule(
    "self is [length] or [batch, length], float32 or float64; n_fft is from 1 to length, hop_length above 0, "
    "win_length from 1 to n_fft; window is [win_length]; return_complex is true, align_to_window is off"
)
def _windows(
    self: Any,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Any,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> None:
    given = tensor("self", self, 1, 2)
    require(given.dtype in _LONG[:2] and given.numel() > 0, f"'self' is {given.dtype} {list(given.shape)}")
    hop, size = n_fft // 4 if hop_length is None else hop_length, n_fft if win_length is None else win_length
    fits = 1 <= size <= n_fft <= given.shape[-1] and hop >= 1
    require(fits, f"windows of {size} in {n_fft} of {given.shape[-1]}, step {hop}")
    require(bool(return_complex) and not align_to_window, "'return_complex' is off, or 'align_to_window' on")
    check_vector("window", window, size)
    check_same_type("self", given, "window", window)
    check_count(*given.shape[:-1], n_fft, (given.shape[-1] - n_fft) // hop + 1)


@rule("n is above 0, and d finite and not 0")
def _steps(n: int, d: float) -> None:
    require(n >= 1 and math.isfinite(d) and d != 0, f"'n' is {n}, 'd' is {d}")


_NORM = word("norm", None, "backward", "ortho", "forward")
CONTRACTS: dict[str, Contract] = {
    **each("view_as_complex", _two),
    **each("view_as_real", _complex),
    **each("complex", _parts("real", "imag"), broadcast("real", "imag")),
    **each("polar", _parts("abs", "angle"), broadcast("abs", "angle")),
    **each("real angle"),
    **each("imag", _complex),
    **each("_conj", note("it runs as conj_physical, so that no tensor is marked as a conjugate")),
    **each("conj_physical resolve_conj resolve_neg"),
    **each("fft_fft fft_ifft fft_irfft fft_hfft", _line, _NORM),
    **each("fft_rfft fft_ihfft", _real, _line, _NORM),
    **each("fft_fft2 fft_ifft2 fft_irfft2 fft_fftn fft_ifftn fft_irfftn", _grid, _NORM),
    **each("fft_rfft2 fft_rfftn", _real, _grid, _NORM),
    **each("fft_fftshift fft_ifftshift", dims("self", "dim")),
    **each("fft_fftfreq fft_rfftfreq", _steps),
    **each("stft", _windows),
}
# What also takes complex numbers; any other operator refuses them.
_ALSO_COMPLEX = """
view_as_real complex polar real imag angle _conj conj_physical resolve_conj resolve_neg fft_fft fft_ifft fft_irfft
fft_hfft fft_fft2 fft_ifft2 fft_irfft2 fft_fftn fft_ifftn fft_irfftn fft_fftshift fft_ifftshift add.Tensor add_.Tensor
sub.Tensor sub_.Tensor mul.Tensor mul_.Tensor div.Tensor div_.Tensor multiply.Tensor add.Scalar mul.Scalar div.Scalar
neg abs exp sgn sum sum.dim_IntList mean mean.dim cat stack view reshape view_as reshape_as flatten.using_ints
unflatten.int transpose.int swapaxes permute movedim.int unsqueeze squeeze squeeze.dim expand select.int slice.Tensor
narrow index_select unbind.int split.Tensor split_with_sizes chunk repeat clone contiguous detach detach_ alias
lift_fresh_copy zeros_like ones_like new_zeros copy_ zero_ fill_.Scalar einsum matmul mm bmm outer roll flip
constant_pad_nd to.dtype to.dtype_layout to.device to.other type_as _to_copy index.Tensor sym_size.int sym_numel
isfinite
"""
ALSO_COMPLEX = frozenset(map(full_name, _ALSO_COMPLEX.split()))
