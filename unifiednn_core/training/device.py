"""Devices, and the settings that make a step repeatable on them."""

import ctypes
import os
import platform
from collections.abc import Callable
from functools import cache
from typing import cast

import torch
from torch import nn

from unifiednn_core.errors import BadInput
from unifiednn_core.training.rng import preserved


def resolve(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:N` into a device; raises `BadInput` where there is no such device."""
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    device = torch.device(name)
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


def use_exact_profile(device: torch.device, threads: int) -> None:
    """Set what the profile `exact` asks for: intra-op threads of the calling thread, and on CUDA repeatable kernels."""
    torch.set_num_threads(threads)
    if device.type != "cuda":
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # Kernels without a deterministic twin warn instead of failing somebody's model at its third epoch.
    torch.use_deterministic_algorithms(True, warn_only=True)
    # These attention kernels have gradients that are not repeatable where warnings are enough.
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    # Filling fresh memory is for debugging; it changes no result of a program that reads only what it wrote.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def warm_up(device: torch.device) -> None:
    """Load what the first step of any network loads on the host: part of the context, not of a sub-model.

    The first optimizer of a process alone brings 800 modules with it. A GPU is left alone: nobody trains there yet.
    """
    if device.type != "cpu":
        return
    with preserved(device):
        network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 2))
        optimizer = torch.optim.AdamW(network.parameters())
        nn.CrossEntropyLoss()(network(torch.zeros(2, 1, 6, 6)), torch.zeros(2, dtype=torch.int64)).backward()
        optimizer.step()


def synchronize(device: torch.device) -> None:
    """Wait until everything that was launched on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def is_healthy(device: torch.device) -> bool:
    """Whether the device still works for this process; some CUDA errors stay until the process ends."""
    try:
        synchronize(device)
    except RuntimeError:
        return False
    return True


def free_cached(device: torch.device) -> None:
    """Give memory that is held in reserve back to the system, for other processes and sub-models.

    On a GPU torch holds it; on the host the C library does, glibc's in pieces of any size.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif (trim := _malloc_trim()) is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The function of glibc that gives free memory back; None where the C library is another."""
    try:
        return cast(Callable[[int], int], ctypes.CDLL(None).malloc_trim)
    except (OSError, AttributeError):
        return None


def environment(device: torch.device, threads: int) -> dict[str, object]:
    """Record what a result depends on."""
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": threads,
    }
