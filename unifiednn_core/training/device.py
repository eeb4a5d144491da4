"""Devices, and the settings that make a step repeatable on them."""

import os
import platform

import torch

from unifiednn_core.errors import BadInput


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
    # Filling fresh memory is for debugging; it changes no result of a program that reads only what it wrote.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


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
    """Give memory that torch holds in reserve back to the device, for other processes and sub-models."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def reset_peak(device: torch.device) -> None:
    """Start a new count of the most that torch allocates on the device."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_allocated_bytes(device: torch.device) -> int | None:
    """Most that torch had allocated since `reset_peak`; None on a CPU, where torch does not count."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


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
