"""Settings of the process and of the thread that trains, which no step may leave changed.

A network from a file has no operator for any of them. A plug-in or a kernel can change them, and its neighbours would
then compute other bits, or die of a signal in its place. The default generators are no part of this: each sub-model
brings the state of its own (`RngState`).
"""

import ctypes
import platform
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import torch

from unifiednn_core.engine.device import DETERMINISM, REPEATABLE_KERNELS, THREADS, Setting

# Those that a crash raises, and the one that asks a worker to leave.
_SIGNALS = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTERM)
_OPAQUE_BYTES = 256  # room for any C library's fenv_t, sigset_t and struct sigaction
_COMPARED_BYTES = 8  # a handler, or a set of 64 signals
# Control bits (rounding, denormals, exceptions that trap) in `fenv_t` of the C library, as 32-bit words; the other bits
# say what has happened.
_CONTROL: dict[str, tuple[tuple[int, int], ...]] = {
    "x86_64": ((0, 0xFFFF), (7, 0xFFC0)),  # x87 control word, MXCSR
    "aarch64": ((0, 0xFFFFFFFF),),  # FPCR
}
_BACKENDS = tuple((backend, part) for backend in ("mkldnn", "cuda") for part in ("all", "matmul", "conv", "rnn"))


class ProcessState:
    """The settings as they are now. `restore` puts back what has changed since; so does the end of a `with` block."""

    def __init__(self, device: torch.device):
        self._settings = [*_OF_TORCH, *_of_c_library(), *(_OF_CUDA if device.type == "cuda" else ())]
        self._reads = [setting.read for setting in self._settings]
        self._values = self._read()

    def restore(self) -> tuple[str, ...]:
        """Put back what has changed since; returns the names of those settings. Takes about 10 us if none has."""
        now = self._read()
        if now == self._values:
            return ()
        changed = []
        for setting, before, found in zip(self._settings, self._values, now, strict=True):
            if found != before:
                changed.append(setting.name)
                with suppress(RuntimeError, ValueError):  # signals belong to the main thread
                    setting.write(before)
        return tuple(dict.fromkeys(changed))

    def __enter__(self) -> "ProcessState":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()

    def _read(self) -> list[object]:
        return [read() for read in self._reads]


# -- torch; its public properties of backends cost 40 times as much as what they call


def _matmul_precision() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # somebody has mixed this interface and the newer one
        return "mixed"


_KEPT_MODES: list[object] = []


def _leave_inference_mode(wanted: bool) -> None:
    """Torch has no setter; a mode that is entered and kept does the same."""
    _KEPT_MODES.append(torch.inference_mode(wanted))
    _KEPT_MODES[-1].__enter__()  # type: ignore[attr-defined]


def _unwind(depth: Callable[[], int], pop: Callable[[], object], wanted: int) -> None:
    """Take modes off a stack of torch that somebody has entered and not left."""
    torch.set_default_device(None)
    while depth() > wanted:
        pop()


def _precision(backend: str, part: str) -> Setting:
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    return Setting("precision of float32", partial(read, backend, part), partial(write, backend, part))


_OF_TORCH = (
    Setting("default type", torch.get_default_dtype, torch.set_default_dtype),
    THREADS,
    DETERMINISM,
    Setting("inference mode", torch.is_inference_mode_enabled, _leave_inference_mode),
    Setting("gradient mode", torch.is_grad_enabled, torch._C._set_grad_enabled),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    *(
        Setting("autocast", partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind))
        for kind in ("cpu", "cuda")
    ),
    Setting("precision of float32", _matmul_precision, torch.set_float32_matmul_precision),
    _precision("generic", "all"),
    *(_precision(backend, part) for backend, part in _BACKENDS),
    Setting("oneDNN", torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    Setting(
        "modes of torch",
        torch._C._len_torch_function_stack,
        partial(_unwind, torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack),
    ),
    Setting(
        "modes of torch",
        torch._C._len_torch_dispatch_stack,
        partial(_unwind, torch._C._len_torch_dispatch_stack, partial(torch._C._pop_torch_dispatch_stack, None)),
    ),
)
_OF_CUDA = (
    Setting("CUDA device", torch.cuda.current_device, torch.cuda.set_device),
    Setting("CUDA stream", torch.cuda.current_stream, torch.cuda.set_stream),
    *(setting for setting, _ in REPEATABLE_KERNELS),
)


# -- processor and kernel, through the C library


def _of_c_library() -> Iterable[Setting]:
    """Settings that this C library and processor have; none of those that are unknown here."""
    library: Any = ctypes.CDLL(None)
    with suppress(AttributeError):
        for number in _SIGNALS:
            yield _kept("signal handlers", partial(library.sigaction, number.value))
        yield _kept("blocked signals", partial(library.pthread_sigmask, signal.SIG_SETMASK.value))
        if words := _CONTROL.get(platform.machine()):
            yield _floating_point(library.fegetenv, library.fesetenv, words)


def _kept(name: str, call: Callable[..., int]) -> Setting:
    """A setting that `call(new, old)` writes and reads; what follows its first bytes may be uninitialised."""
    kept, held = ctypes.create_string_buffer(_OPAQUE_BYTES), ctypes.create_string_buffer(_OPAQUE_BYTES)
    call(None, kept)

    def read() -> bytes:
        call(None, held)
        return held.raw[:_COMPARED_BYTES]

    return Setting(name, read, lambda _: call(kept, None))


def _floating_point(get: Callable[..., int], put: Callable[..., int], words: Sequence[tuple[int, int]]) -> Setting:
    """Rounding, denormals and traps of the thread."""
    held = (ctypes.c_uint32 * (_OPAQUE_BYTES // 4))()

    def read() -> list[int]:
        get(held)
        return [held[place] & bits for place, bits in words]

    def write(wanted: Sequence[int]) -> None:
        get(held)
        for (place, bits), value in zip(words, wanted, strict=True):
            held[place] = held[place] & ~bits | value
        put(held)

    return Setting("floating point of the processor", read, write)
