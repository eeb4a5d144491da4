"""The devices that NVML tells are those of torch."""

import pytest
import torch

from unifiednn_core.engine.device import resolve
from unifiednn_core.machine.budget import budget_of, slot
from unifiednn_core.machine.devices import devices_of_host, matching

GIB = 1024**3
pytestmark = pytest.mark.gpu


def test_nvml_tells_the_devices_of_torch(cuda: torch.device) -> None:
    there = devices_of_host()
    found = [one for one in there if one.type == "cuda"]
    assert len(found) == torch.cuda.device_count()
    for one in found:
        facts = torch.cuda.get_device_properties(one.index)
        assert one.kind.startswith(f"{facts.name}, compute capability {facts.major}.{facts.minor}, driver ")
        assert one.uuid == f"GPU-{facts.uuid}"
        assert one.total_bytes is not None and 0 <= one.total_bytes - facts.total_memory < 2 * GIB, "the driver's part"
        assert budget_of(one.name).total_bytes == one.total_bytes
        assert resolve(one.name) == torch.device("cuda", one.index)
        assert all(one in matching(asked, there) for asked in ("auto", "cuda", one.name, facts.name.split()[-1]))
    assert resolve(slot("auto")).type == "cuda"
