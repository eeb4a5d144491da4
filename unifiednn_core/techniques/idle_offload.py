"""Host offload of idle sub-models: their tensors wait in pinned memory, from where a GPU reads them fastest.

Equation 2 of UnifiedNN takes the most that any one sub-model needs: true only if idle ones leave the device.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


def send_to_host(tensors: Iterable[Tensor]) -> None:
    """Move the content of tensors from a GPU to pinned memory, all copies in one go; those on the host stay."""
    streams = set[torch.cuda.Stream]()
    for tensor in tensors:
        if tensor.device.type != "cuda":
            continue
        streams.add(torch.cuda.current_stream(tensor.device))
        host = torch.empty_like(tensor, device="cpu", pin_memory=True, requires_grad=False)
        tensor.data = host.copy_(tensor.detach(), non_blocking=True)
    for stream in streams:
        stream.synchronize()
