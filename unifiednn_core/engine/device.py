"""Devices by name, the settings that make a step repeatable, and RNG states as values."""

import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from unifiednn_core.base.errors import BadInput
from unifiednn_core.machine import allocator
from unifiednn_core.spec.devices import torch_name


@dataclass(frozen=True, slots=True)
class RngState:
    """State of the default CPU generator and, for a CUDA device, of that device's generator."""

    cpu: Tensor
    cuda: Tensor | None

    @classmethod
    def of_seed(cls, seed: int, device: torch.device) -> "RngState":
        """State after `torch.manual_seed(seed)`; the current state does not change."""
        cpu = torch.Generator().manual_seed(seed).get_state()
        cuda = torch.Generator(device).manual_seed(seed).get_state() if device.type == "cuda" else None
        return cls(cpu, cuda)

    @classmethod
    def current(cls, device: torch.device) -> "RngState":
        """State of the default generators now. Takes 1 µs on the CPU."""
        return cls(torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None)

    def restore(self, device: torch.device) -> None:
        """Put the default generators into this state."""
        torch.set_rng_state(self.cpu)
        if self.cuda is not None:
            torch.cuda.set_rng_state(self.cuda, device)


@contextmanager
def preserved(device: torch.device) -> Iterator[None]:
    """Restore the state of the default generators on exit."""
    before = RngState.current(device)
    try:
        yield
    finally:
        before.restore(device)


@contextmanager
def exact_profile(device: torch.device, threads: int, *, fast: bool = False) -> Iterator[None]:
    """Apply the profile `exact`: intra-op threads of the calling thread and, on CUDA, repeatable kernels.

    With `fast` products may use TF32. On exit every setting has its previous value again.
    """
    wanted: list[tuple[Setting, object]] = [(THREADS, threads)]
    wanted += REPEATABLE_KERNELS if device.type == "cuda" else []
    wanted = [(setting, fast if setting.name == TF32 else value) for setting, value in wanted]
    before, outside = [setting.read() for setting, _ in wanted], getattr(_PROFILE, "applied", False)
    try:
        for setting, value in wanted:
            setting.write(value)
        _PROFILE.applied = True
        yield
    finally:
        _PROFILE.applied = outside
        for (setting, _), value in zip(wanted, before, strict=True):
            setting.write(value)


def require_profile(device: torch.device) -> None:
    """Raise `RuntimeError` for a GPU outside `exact_profile` of the calling thread: convolutions would use TF32."""
    if device.type == "cuda" and not getattr(_PROFILE, "applied", False):
        raise RuntimeError("A step on a GPU has other bits outside exact_profile. Enter exact_profile before world.")


@contextmanager
def own_stream(device: torch.device, lane: int) -> Iterator[None]:
    """Let the calling thread compute beside other threads: on CUDA in the stream of a lane."""
    if device.type != "cuda":
        yield
        return
    with torch.cuda.stream(_stream(device, lane)):
        yield


@cache
def _stream(device: torch.device, lane: int) -> torch.cuda.Stream:
    """The same one for each run in this process: cuBLAS keeps a workspace for each stream that it has seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


_PROFILE = threading.local()
"""`applied` inside `exact_profile`."""


class Setting(NamedTuple):
    """How to read and write a setting of the process or of the calling thread."""

    name: str
    read: Callable[[], object]
    write: Callable[..., object]


def _attribute(name: str, owner: object, attribute: str) -> Setting:
    return Setting(name, partial(getattr, owner, attribute), partial(setattr, owner, attribute))


TF32 = "TF32"
_CUDA, _CUDNN = torch.backends.cuda, torch.backends.cudnn
THREADS = Setting("number of threads", torch.get_num_threads, torch.set_num_threads)
DETERMINISM = Setting("determinism", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode)
REPEATABLE_KERNELS: list[tuple[Setting, object]] = [
    (_attribute(TF32, _CUDA.matmul, "allow_tf32"), False),
    (_attribute(TF32, _CUDNN, "allow_tf32"), False),
    (_attribute("choice of kernels", _CUDNN, "benchmark"), False),
    (_attribute("choice of kernels", _CUDNN, "deterministic"), True),
    # Kernels without a deterministic twin warn; an error would fail a model in its third epoch.
    (DETERMINISM, 1),  # 1 is "warn"
    # A warning is not enough for these attention kernels: their gradients are not repeatable.
    (Setting("choice of kernels", _CUDA.mem_efficient_sdp_enabled, _CUDA.enable_mem_efficient_sdp), False),
    (Setting("choice of kernels", _CUDA.flash_sdp_enabled, _CUDA.enable_flash_sdp), False),
    (Setting("choice of kernels", _CUDA.cudnn_sdp_enabled, _CUDA.enable_cudnn_sdp), False),
    # Filling fresh memory helps debugging; a program that reads only what it wrote gets the same results.
    (_attribute("filling of memory", torch.utils.deterministic, "fill_uninitialized_memory"), False),
]


def resolve(name: str) -> torch.device:
    """The device `auto`, `cpu`, `cpu:N`, `cuda` or `cuda:N`; raises `BadInput` for one that torch does not see."""
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(torch_name(name))
    if device.type != "cuda":
        return device
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise BadInput.of(
            "No such device",
            field="device",
            message=f"torch sees {torch.cuda.device_count()} CUDA devices here; '{name}' is not among them.",
            remedy='Use "auto" or "cpu", or install the CUDA build of torch.',
        )
    return torch.device("cuda", index)


def warm_up(device: torch.device) -> None:
    """Load what the first step of any network loads on the host, so that it counts as context, not as a sub-model.

    Without `late_dynamo` the first optimizer imports 820 modules. Does nothing on a GPU: nothing trains there yet.
    """
    if device.type != "cpu":
        return
    with preserved(device):
        network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
        optimizer = torch.optim.AdamW(network.parameters())
        nn.CrossEntropyLoss()(network(torch.zeros(2, 1, 6, 6)), torch.zeros(2, dtype=torch.int64)).backward()
        optimizer.step()


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished everything that was launched on it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def launched(device: torch.device) -> torch.cuda.Event | None:
    """Event after all that this thread has launched, for threads that read it; None on a CPU and the default stream.

    Reading waits for the default stream by itself, as other threads read there.
    """
    if device.type != "cuda" or torch.cuda.current_stream(device) == torch.cuda.default_stream(device):
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def is_healthy(device: torch.device) -> bool:
    """Whether the device still works for this process; some CUDA errors stay until the process ends."""
    with suppress(RuntimeError):
        synchronize(device)
        return True
    return False


def free_cached(device: torch.device) -> None:
    """Return reserved but unused memory to the system, for other processes and sub-models.

    On a GPU torch holds the reserve; on the host the allocator of the process does.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
    else:
        allocator.release()


def environment(device: torch.device, threads: int) -> dict[str, object]:
    """Describe what a result depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
    }
