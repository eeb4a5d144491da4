"""Settings of the process and of the thread that trains, which no step may leave changed.

A network from a file has no operator for any of them. A plug-in or a kernel can change them, and its neighbours would
then compute other bits, or die of a signal in its place. The default generators are no part of this: each sub-model
brings the state of its own (`RngState`).
"""

import ctypes
import platform
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import torch

from unifiednn_core.engine.device import DETERMINISM, REPEATABLE_KERNELS, TF32, THREADS, Setting

# Those that a crash raises, and the one that asks a worker to leave.
_SIGNALS = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGTERM)
# Room for any C library's fenv_t, sigset_t and struct sigaction.
_Opaque32, _Opaque64 = ctypes.c_uint32 * 64, ctypes.c_uint64 * 32
# Control bits (rounding, denormals, exceptions that trap) in `fenv_t` of the C library, as 32-bit words; the other bits
# say what has happened.
_CONTROL: dict[str, tuple[tuple[int, int], ...]] = {
    "x86_64": ((0, 0xFFFF), (7, 0xFFC0)),  # x87 control word, MXCSR
    "aarch64": ((0, 0xFFFFFFFF),),  # FPCR
}
_ONE, _SMALL, _DENORMAL = 1.0, 1e-30, 1e-310
_KEPT_MODES: list[object] = []


class ProcessState:
    """The settings as they are now. `restore` puts back what has changed since; so does the end of a `with` block."""

    def __init__(self, device: torch.device):
        shown, whole = _floating_point()
        precision, precisions = _precision("cuda" if device.type == "cuda" else "mkldnn")
        self._often = _Group([*_of_torch(device), precision, *shown])
        self._seldom = _Group([precisions, *_of_signals(), *whole])

    def restore(self, *, seldom: bool = True) -> tuple[str, ...]:
        """Put back what has changed since; returns the names of those settings.

        `seldom` looks also at what is unlikely to change and slow to read: signals, traps, precision of single kinds of
        layers. If nothing has changed, it takes 2 us without and 8 us with it; in the cold caches after a step some 20
        and 60 us.
        """
        return self._often.restore() + (self._seldom.restore() if seldom else ())

    def __enter__(self) -> "ProcessState":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.restore()


class _Group:
    """Settings with their values at first."""

    def __init__(self, settings: Iterable[Setting]):
        self._settings = tuple(settings)
        self._reads = [setting.read for setting in self._settings]
        self._values = [read() for read in self._reads]

    def restore(self) -> tuple[str, ...]:
        now = [read() for read in self._reads]
        if now == self._values:
            return ()
        changed = []
        for setting, before, found in zip(self._settings, self._values, now, strict=True):
            if found != before:
                changed.append(setting.name)
                with suppress(RuntimeError):  # the neighbours suffer either way, and the event names it
                    setting.write(before)
        return tuple(dict.fromkeys(changed))


# -- torch; its public properties of backends cost up to 40 times as much as what they call


def _of_torch(device: torch.device) -> Iterable[Setting]:
    kind = device.type
    yield Setting("default type", torch.get_default_dtype, torch.set_default_dtype)
    yield THREADS
    yield Setting("inference mode", torch.is_inference_mode_enabled, _enter_inference_mode)
    yield Setting("gradient mode", torch.is_grad_enabled, torch._C._set_grad_enabled)
    yield _autocast()
    yield DETERMINISM
    yield Setting("oneDNN", torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled)
    depth, pop = torch._C._len_torch_function_stack, torch._C._pop_torch_function_stack
    yield Setting("modes of torch", depth, partial(_unwind, depth, pop))
    depth, pop = torch._C._len_torch_dispatch_stack, partial(torch._C._pop_torch_dispatch_stack, None)
    yield Setting("modes of torch", depth, partial(_unwind, depth, pop))
    if kind == "cuda":
        yield Setting("CUDA device", torch.cuda.current_device, torch.cuda.set_device)
        yield Setting("CUDA stream", torch.cuda.current_stream, torch.cuda.set_stream)
        yield from (setting for setting, _ in REPEATABLE_KERNELS if setting.name not in (DETERMINISM.name, TF32))


def _autocast() -> Setting:
    kept = {kind: torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")}

    def write(_: object) -> None:
        for kind, enabled in kept.items():
            torch.set_autocast_enabled(kind, enabled)

    return Setting("autocast", torch._C._is_any_autocast_enabled, write)


def _enter_inference_mode(wanted: bool) -> None:
    """Torch has no setter; a mode that is entered and kept does the same."""
    mode = torch.inference_mode(wanted)
    mode.__enter__()
    _KEPT_MODES.append(mode)


def _unwind(depth: Callable[[], int], pop: Callable[[], object], wanted: int) -> None:
    """Take modes off a stack of torch that somebody has entered and not left."""
    torch.set_default_device(None)
    while depth() > wanted:
        pop()


def _precision(backend: str) -> tuple[Setting, Setting]:
    """To what numbers of float32 may be rounded: in products, and in each kind of layers.

    The older settings of torch write to the newer places, too.
    """
    get, put, older = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter, []
    for read_older, write_older in _OLDER_PRECISION:
        with suppress(RuntimeError):  # torch refuses to read them after a change of the newer ones
            older.append((write_older, read_older()))
    places = [("generic", "all"), *((name, part) for name in ("mkldnn", "cuda") for part in ("all", *_PARTS))]
    newer = {place: get(*place) for place in places}

    def write(_: object) -> None:
        for write_older, value in older:
            write_older(value)
        for place, value in newer.items():
            put(*place, value)

    name = "precision of float32"
    return Setting(name, _of_products, write), Setting(name, lambda: [get(backend, part) for part in _PARTS], write)


def _of_products() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # the newer settings say something else
        return "mixed"


_PARTS = ("matmul", "conv", "rnn")
_OLDER_PRECISION: tuple[tuple[Callable[[], object], Callable[..., object]], ...] = (
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch._C._get_cublas_allow_tf32, torch._C._set_cublas_allow_tf32),
    (torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),
)


# -- processor and kernel, through the C library; nothing on one that has no such function. In the cold caches after a
# step the first call of a foreign function takes 20 us, so only the end of a turn pays for it.


def _of_signals() -> Iterable[Setting]:
    library: Any = ctypes.CDLL(None)
    with suppress(AttributeError):
        for number in _SIGNALS:
            yield _kept("signal handlers", partial(library.sigaction, number.value))
        yield _kept("blocked signals", partial(library.pthread_sigmask, signal.SIG_SETMASK.value))


def _kept(name: str, call: Callable[..., int]) -> Setting:
    """A setting that `call(new, old)` writes and reads. Its first 8 bytes count: a handler, or a set of 64 signals."""
    kept, held = _Opaque64(), _Opaque64()
    call(None, kept)

    def read() -> int:
        call(None, held)
        return held[0]

    return Setting(name, read, lambda _: call(kept, None))


def _floating_point() -> tuple[list[Setting], list[Setting]]:
    """Rounding and denormals of the thread as a calculation shows them, and its whole control word with the traps."""
    library: Any = ctypes.CDLL(None)
    words = _CONTROL.get(platform.machine(), ())
    if not words or not hasattr(library, "fegetenv"):
        return [], []
    held = _Opaque32()

    def control() -> list[int]:
        library.fegetenv(held)
        return [held[place] & bits for place, bits in words]

    kept = control()

    def put_back(_: object) -> None:
        library.fegetenv(held)
        for (place, bits), value in zip(words, kept, strict=True):
            held[place] = held[place] & ~bits | value
        library.fesetenv(held)

    name = "floating point of the processor"
    return [Setting(name, _calculation, put_back)], [Setting(name, control, put_back)]


def _calculation() -> tuple[float, float, float]:
    """Results that depend on how the processor rounds, and on whether it has denormal numbers."""
    return _ONE + _SMALL, _ONE - _SMALL, _ONE * _DENORMAL
