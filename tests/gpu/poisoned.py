"""Operators on a device whose free memory holds a pattern, and whose tensors lie between guard zones of it.

As `tests.hostile.operators` does it on the host, in one process and for ordinary calls alone: a call that reads out of
range can end a CUDA context. Each runs twice over one pattern and once over another; what differs in the first two is
not repeatable for other reasons, and tells nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tests.hostile.operators.seeds import seeds
from tests.hostile.operators.values import Call, T, contents, flat, mapped
from unifiednn_core.engine.device import exact_profile
from unifiednn_core.formats.operators import resolve

GUARD_BYTES = 4096
BLOCKS_BYTES = (512, 4096, 2**16, 2**20, 2**22)
PATTERNS = (0x00, 0x00, 0x41)


class Zone:
    """Makes tensors between guard zones."""

    def __init__(self, device: torch.device, pattern: int):
        self._device, self._pattern = device, pattern
        self._blocks: list[Tensor] = []

    def make(self, tensor: T) -> Tensor:
        values = contents(tensor, len(self._blocks))
        if not len(values):
            return torch.empty_strided(tensor.shape, tensor.strides(), dtype=tensor.dtype, device=self._device)
        whole = torch.full((2 * GUARD_BYTES + values.nbytes,), self._pattern, dtype=torch.uint8, device=self._device)
        whole[GUARD_BYTES:-GUARD_BYTES] = values.view(torch.uint8).to(self._device)
        self._blocks.append(whole)
        return whole[GUARD_BYTES:-GUARD_BYTES].view(tensor.dtype).as_strided(tensor.shape, tensor.strides()).detach()

    def touched(self) -> bool:
        return any(
            bool((zone != self._pattern).any())
            for whole in self._blocks
            for zone in (whole[:GUARD_BYTES], whole[-GUARD_BYTES:])
        )


def harmful(device: torch.device, functions: Mapping[str, Callable[..., Any]] | None = None) -> list[str]:
    """Operators whose results depend on memory that is not theirs, or that write to it.

    All that graphs may call are tried, or these `functions` with the arguments of the operators that they stand for.
    """
    tried = functions or {name: resolve(name) for name in seeds()}
    with exact_profile(device, 1):
        return [
            f"{name} {call}"
            for name, function in tried.items()
            for call in seeds()[name]
            if _does_harm(function, call, device)
        ]


def _does_harm(function: Callable[..., Any], call: Call, device: torch.device) -> bool:
    runs = [_run(function, call, device, pattern) for pattern in PATTERNS]
    (first, again, other), touched = ([run[0] for run in runs], any(run[1] for run in runs))
    return touched or (first == again and first != other)


def _run(function: Callable[..., Any], call: Call, device: torch.device, pattern: int) -> tuple[list[Any], bool]:
    """Bytes of results and gradients, or the refusal; and whether a guard zone was touched."""
    free = [torch.full((size,), pattern, dtype=torch.uint8, device=device) for size in BLOCKS_BYTES for _ in range(4)]
    del free  # stays with torch, which hands it out again as it is
    zone, leaves = Zone(device, pattern), list[Tensor]()
    args, kwargs = (mapped(part, zone.make) for part in (call.args, dict(call.kwargs)))
    if "device" in kwargs:
        kwargs["device"] = device
    for at, value in enumerate(args):
        if at < 3 and isinstance(value, Tensor) and value.is_floating_point() and not _writes(function):
            leaves.append(value.requires_grad_())
    torch.manual_seed(0)
    try:
        outputs = list(flat(function(*args, **kwargs)))
        roots = [part for part in outputs if isinstance(part, Tensor) and part.requires_grad]
        gradients = (
            torch.autograd.grad(roots, leaves, [*map(torch.ones_like, roots)], allow_unused=True) if roots else ()
        )
    except (RuntimeError, NotImplementedError) as error:
        return [type(error).__name__], zone.touched()
    return [_bytes(part) for part in (*outputs, *gradients)], zone.touched()


def _writes(function: Callable[..., Any]) -> bool:
    schema = getattr(function, "_schema", None)
    return schema is not None and schema.is_mutable


def _bytes(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return bytes(value.detach().resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8).cpu().numpy())
